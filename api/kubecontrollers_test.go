package api

import (
	"bytes"
	"strings"
	"testing"
)

func TestKubeControllersConfigurationIsValidated(t *testing.T) {
	const at = "spec.controllers.node.hostEndpoint"
	template := func(fields string) string {
		return "{controllers: {node: {hostEndpoint: {autoCreate: Enabled, templates: [" + fields + "]}}}}"
	}
	const good = "{generateName: a, interfaceCIDRs: [10.0.0.0/8, 'fd00::/8'], interfacePattern: '^eth[0-9]$', nodeSelector: has(x), labels: {a: b}}"
	for _, tt := range []struct{ name, spec, want string }{
		{"nothing said", "{controllers: {}}", ""},
		{"all of upstream's", `{logSeverityScreen: Info, healthChecks: Enabled, etcdV3CompactionPeriod: 10m, prometheusMetricsPort: 9094, debugProfilePort: 0, controllers: {
			node: {reconcilerPeriod: 5m, leakGracePeriod: 15m, syncLabels: Enabled, hostEndpoint: {autoCreate: Disabled, createDefaultHostEndpoint: Enabled}},
			policy: {reconcilerPeriod: 5m}, workloadEndpoint: {reconcilerPeriod: 5m}, serviceAccount: {reconcilerPeriod: 5m}, namespace: {reconcilerPeriod: 5m},
			loadBalancer: {assignIPs: AllServices}, policyMigration: {enabled: Enabled}}}`, ""},
		{"a level", "{logSeverityScreen: loud}", "spec.logSeverityScreen"},
		{"health checks", "{healthChecks: 'yes'}", "spec.healthChecks"},
		{"a port", "{prometheusMetricsPort: 70000}", "spec.prometheusMetricsPort"},
		{"a duration", "{etcdV3CompactionPeriod: often}", "spec.etcdV3CompactionPeriod"},
		{"another port", "{debugProfilePort: -1}", "spec.debugProfilePort"},
		{"a period", "{controllers: {policy: {reconcilerPeriod: 5}}}", "spec.controllers.policy.reconcilerPeriod"},
		{"a period of endpoints", "{controllers: {workloadEndpoint: {reconcilerPeriod: often}}}", "spec.controllers.workloadEndpoint.reconcilerPeriod"},
		{"a period of accounts", "{controllers: {serviceAccount: {reconcilerPeriod: often}}}", "spec.controllers.serviceAccount.reconcilerPeriod"},
		{"a period of namespaces", "{controllers: {namespace: {reconcilerPeriod: often}}}", "spec.controllers.namespace.reconcilerPeriod"},
		{"a period of nodes", "{controllers: {node: {reconcilerPeriod: often}}}", "spec.controllers.node.reconcilerPeriod"},
		{"a grace period", "{controllers: {node: {leakGracePeriod: often}}}", "spec.controllers.node.leakGracePeriod"},
		{"renaming policies", "{controllers: {policyMigration: {enabled: 'on'}}}", "spec.controllers.policyMigration.enabled"},
		{"which services", "{controllers: {loadBalancer: {assignIPs: Some}}}", "spec.controllers.loadBalancer.assignIPs"},
		{"labels", "{controllers: {node: {syncLabels: 'on'}}}", "spec.controllers.node.syncLabels"},
		{"autoCreate", "{controllers: {node: {hostEndpoint: {autoCreate: enabled}}}}", at + ".autoCreate"},
		{"the default one", "{controllers: {node: {hostEndpoint: {createDefaultHostEndpoint: Maybe}}}}", at + ".createDefaultHostEndpoint"},
		{"a template", template(good), ""},
		{"a template without a name", template("{interfaceCIDRs: [10.0.0.0/8]}"), at + ".templates[0].generateName"},
		{"two of one name", template(good + "," + good), at + ".templates[1]"},
		{"a template for no address", template("{generateName: a}"), at + ".templates[0].interfaceCIDRs"},
		{"an address for a prefix", template("{generateName: a, interfaceCIDRs: [10.0.0.1]}"), at + ".templates[0].interfaceCIDRs[0]"},
		{"no regular expression", template("{generateName: a, interfacePattern: '('}"), at + ".templates[0].interfacePattern"},
		{"no selector", template("{generateName: a, interfacePattern: a, nodeSelector: '('}"), at + ".templates[0].nodeSelector"},
		{"no label", template("{generateName: a, interfacePattern: a, labels: {a: 'b c'}}"), at + ".templates[0].labels.a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: KubeControllersConfiguration\nmetadata: {name: default}\nspec: " + tt.spec))
			if err != nil {
				if tt.want == "" || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("decode: %v, want %q", err, tt.want)
				}
				return
			}
			errs := Validate(docs[0].Resource)
			if found := strings.Contains(errsText(errs), tt.want); (len(errs) > 0) != (tt.want != "") || !found {
				t.Errorf("%v, want one at %q", errs, tt.want)
			}
		})
	}
	judge(t, KindKubeControllersConfiguration, "name: other", "{}", "metadata.name")
}

func errsText(errs FieldErrors) string {
	if len(errs) == 0 {
		return ""
	}
	return errs.Err().Error()
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
