package api

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api/apitest"
)

func TestKubeControllersConfigurationIsValidated(t *testing.T) {
	judgeAll(t, apitest.Controllers())
	judge(t, KindKubeControllersConfiguration, "name: other", "{}", "metadata.name")
}

func TestWhichHostEndpointsAreWantedMustBeReadable(t *testing.T) {
	for _, tt := range []struct{ name, spec, closed, create, standard string }{
		{"nothing said", `{"controllers":{}}`, "", Disabled, Enabled},
		{"on", `{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Disabled"}}}}`, "", Enabled, Disabled},
		{"what is wrong elsewhere is no concern of ours", `{"healthChecks":7,"controllers":{"policy":{"reconcilerPeriod":"x"},"node":{"syncLabels":"x","hostEndpoint":{"autoCreate":"Enabled"}}}}`, "", Enabled, Enabled},
		{"a word that is none", `{"controllers":{"node":{"hostEndpoint":{"autoCreate":"on"}}}}`, hostEndpointPath + ".autoCreate", "", ""},
		{"no word at all", `{"controllers":{"node":{"hostEndpoint":{"autoCreate":true}}}}`, hostEndpointPath + ".autoCreate", "", ""},
		{"a template", `{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","templates":[{"generateName":"a","interfacePattern":"("}]}}}}`, hostEndpointPath + ".templates[0]", "", ""},
		{"a controller that is no object", `{"controllers":{"node":7}}`, "spec.controllers.node", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "kubecontrollersconfigurations/default", `{"spec":`+tt.spec+`}`)
			if (s.Closed == "") != (tt.closed == "") || !strings.Contains(s.Closed, tt.closed) {
				t.Fatalf("closed %q, want %q", s.Closed, tt.closed)
			}
			if h := s.Resource.(*KubeControllersConfiguration).HostEndpoints(); tt.closed == "" && (h.AutoCreate != tt.create || h.CreateDefaultHostEndpoint != tt.standard) {
				t.Errorf("got %+v", h)
			}
		})
	}
}

func TestKubeControllersConfigurationIsStoredAsUpstreamDoes(t *testing.T) {
	const doc = `{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"u","creationTimestamp":"t"},` +
		`"spec":{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","controllers":{"node":{"reconcilerPeriod":"5m0s","syncLabels":"Enabled",` +
		`"hostEndpoint":{"autoCreate":"Disabled","createDefaultHostEndpoint":"Enabled"},"leakGracePeriod":"15m0s"},"policy":{"reconcilerPeriod":"5m0s"}}},"status":{}}`
	r := stored(t, "kubecontrollersconfigurations/default", doc).Resource
	if got, err := EncodeStored(r); err != nil || !bytes.Equal(got, []byte(doc)) {
		t.Errorf("got %s, %v\nwant %s", got, err, doc)
	}
}

// TestTheControllersEnvironmentGoesBeforeTheResource: as the status has it.
func TestTheControllersEnvironmentGoesBeforeTheResource(t *testing.T) {
	const spec = `{"controllers":{"node":{"hostEndpoint":{"autoCreate":"SPEC","createDefaultHostEndpoint":"Disabled","templates":[{"generateName":"a","interfaceCIDRs":["10.0.0.0/8"]}]}}}}`
	for _, tt := range []struct {
		name, spec, vars string
		closed           bool
		want             string // autoCreate, createDefaultHostEndpoint, number of templates
	}{
		{"another variable", Enabled, `{"LOG_LEVEL":"debug"}`, false, "Enabled Disabled 1"},
		{"on", Disabled, `{"AUTO_HOST_ENDPOINTS":"enabled"}`, false, "Enabled Enabled 0"},
		{"off", Enabled, `{"AUTO_HOST_ENDPOINTS":"DISABLED"}`, false, "Disabled Enabled 0"},
		{"a word that is none", Enabled, `{"AUTO_HOST_ENDPOINTS":"on"}`, true, ""},
		{"no word", Enabled, `{"AUTO_HOST_ENDPOINTS":""}`, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "kubecontrollersconfigurations/default", `{"spec":`+strings.Replace(spec, "SPEC", tt.spec, 1)+`,"status":{"environmentVars":`+tt.vars+`}}`)
			if (s.Closed != "") != tt.closed {
				t.Fatalf("closed %q", s.Closed)
			}
			h := s.Resource.(*KubeControllersConfiguration).HostEndpoints()
			if got := fmt.Sprint(h.AutoCreate, " ", h.CreateDefaultHostEndpoint, " ", len(h.Templates)); !tt.closed && got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
