package config_test

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

func felix(name, selector string, action string) *api.FelixConfiguration {
	f := api.New(api.KindFelixConfiguration).(*api.FelixConfiguration)
	f.Metadata.Name = name
	f.Spec.NodeSelector = selector
	f.Spec.DefaultEndpointToHostAction = action
	return f
}

func value(t *testing.T, e config.Effective, name string) config.Value {
	t.Helper()
	i := slices.IndexFunc(e.Values, func(v config.Value) bool { return v.Param.Name == name })
	if i < 0 {
		t.Fatalf("no parameter %s", name)
	}
	return e.Values[i]
}

func TestVariablesThatAreNoSettingsAreNotTakenForSome(t *testing.T) {
	// Felix' own names of what a FelixConfiguration calls ipipEnabled and ipipMTU, as upstream's manifest has them.
	if l, problems := config.FromEnv([]string{"FELIX_IPINIPMTU=1400", "FELIX_IPINIPENABLED=false"}); len(problems) > 0 || l.Values["ipipMTU"] != "1400" || l.Values["ipipEnabled"] != "false" {
		t.Errorf("%v, problems %v", l.Values, problems)
	}
	if _, problems := config.FromEnv([]string{"TWILL_SOCKET=/a", "TWILL_BGP=bird", "TWILL_LOG_DIR=/d", "TWILL_BIRD_CONF=/b", "FELIX_CONFIG=/c"}); len(problems) > 0 {
		t.Error(problems)
	}
	if _, problems := config.FromEnv([]string{"TWILL_BIRDS=x"}); len(problems) == 0 {
		t.Error("a variable that is nothing is no problem")
	}
}

func made(f *api.FelixConfiguration, at string) *api.FelixConfiguration {
	f.Metadata.CreationTimestamp = at
	return f
}

func TestLaterSourcesWin(t *testing.T) {
	file, problems := config.FromFile("twill.conf", "[global]\n# as upstream's\nDefaultEndpointToHostAction = return\nReportingIntervalSecs = 7\n")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	env := func(vars ...string) config.Layer {
		l, problems := config.FromEnv(vars)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return l
	}
	const name = "defaultEndpointToHostAction"
	for _, tt := range []struct {
		says       string
		local      []config.Layer
		stored     []*api.FelixConfiguration
		want, from string
	}{
		{says: "nothing is given", want: "Drop", from: "default"},
		{says: "a file", local: []config.Layer{file}, want: "return", from: "twill.conf"},
		{says: "the environment over a file", local: []config.Layer{file, env("FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT")}, want: "ACCEPT", from: "environment"},
		{says: "our names over upstream's", local: []config.Layer{env("TWILL_DEFAULT_ENDPOINT_TO_HOST_ACTION=Drop", "FELIX_DefaultEndpointToHostAction=Accept")}, want: "Drop", from: "environment"},
		{
			says: "the datastore over the environment", local: []config.Layer{env("FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT")},
			stored: []*api.FelixConfiguration{felix("default", "", "Return")}, want: "Return", from: "FelixConfiguration default",
		},
		{
			says: "a selector over default", stored: []*api.FelixConfiguration{felix("default", "", "Return"), felix("rack", "rack == 'r1'", "Accept")},
			want: "Accept", from: "FelixConfiguration rack",
		},
		{
			says: "the oldest of several selectors", stored: []*api.FelixConfiguration{
				made(felix("a", "all()", "Accept"), "2026-11-01T00:00:00Z"), made(felix("z", "all()", "Return"), "2026-11-02T00:00:00Z"), made(felix("m", "all()", "Drop"), "2026-11-02T00:00:00Z"),
			},
			want: "Accept", from: "FelixConfiguration a",
		},
		{says: "a selector of other nodes says nothing", stored: []*api.FelixConfiguration{felix("rack", "rack == 'r2'", "Accept")}, want: "Drop", from: "default"},
		{
			says: "the node's own over a selector", stored: []*api.FelixConfiguration{felix("rack", "all()", "Accept"), felix("node.h1", "", "Return")},
			want: "Return", from: "FelixConfiguration node.h1",
		},
		{says: "another node's says nothing", stored: []*api.FelixConfiguration{felix("node.h2", "", "Return")}, want: "Drop", from: "default"},
		{
			says: "a wrong value gives way to the one below", stored: []*api.FelixConfiguration{felix("default", "", "Return"), felix("node.h1", "", "Open")},
			want: "Return", from: "FelixConfiguration default",
		},
	} {
		t.Run(tt.says, func(t *testing.T) {
			r := config.New("h1", tt.local...)
			r.SetLabels(map[string]string{"rack": "r1"})
			for _, f := range tt.stored {
				r.Set(f)
			}
			e := r.Resolve()
			if v := value(t, e, name); v.Text != tt.want || v.From != tt.from {
				t.Errorf("%s = %q from %s, want %q from %s", name, v.Text, v.From, tt.want, tt.from)
			}
			if !strings.EqualFold(e.Settings.EndpointToHost, tt.want) {
				t.Errorf("in effect is %s, want %s", e.Settings.EndpointToHost, tt.want)
			}
		})
	}
}

func TestValuesThatAreWrongAreReportedAndChangeNothing(t *testing.T) {
	for _, tt := range []struct{ variable, problem string }{
		{"TWILL_REPORTING_INTERVAL=soon", "want a duration"},
		{"TWILL_REPORTING_INTERVAL=-3s", "want a duration"},
		{"TWILL_HEALTH_PORT=0", "want a port"},
		{"TWILL_HEALTH_ENABLED=perhaps", "want true or false"},
		{"TWILL_INTERFACE_PREFIX=cali,a name", "want the beginning"},
		{"FELIX_DATASTORETYPE=consul", "want etcdv3"},
		{"FELIX_BPFENABLED=true", "has no effect: policy is enforced with nftables"},
		{"TWILL_NO_SUCH=1", "no such parameter"},
		{"TWILL_LOG_ACTION_RATE_LIMIT=many", "want a number and a unit"},
		{"TWILL_LOG_ACTION_RATE_LIMIT_BURST=0", "want 1 to 9999"},
		{"TWILL_HEALTH_TIMEOUT_OVERRIDES=calc", "want part=duration"},
		{"TWILL_GO_GC_THRESHOLD=-2", "want a whole number"},
	} {
		t.Run(tt.variable, func(t *testing.T) {
			l, problems := config.FromEnv([]string{tt.variable})
			e := config.New("h1", l).Resolve()
			problems = append(problems, e.Problems...)
			if len(problems) != 1 || !strings.Contains(problems[0].Reason, tt.problem) {
				t.Errorf("problems = %v, want one with %q", problems, tt.problem)
			}
			if got, want := e.Settings, config.New("h1").Resolve().Settings; got.ReportingInterval != want.ReportingInterval || got.Health != want.Health ||
				!slices.Equal(got.InterfacePrefixes, want.InterfacePrefixes) {
				t.Errorf("settings = %+v, want the defaults", got)
			}
		})
	}
}

func TestEveryUnitOfADuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"7": 7 * time.Second, "1.5": 1500 * time.Millisecond, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "0": 0} {
		l, _ := config.FromEnv([]string{"FELIX_REPORTINGINTERVALSECS=" + text})
		if got := config.New("h1", l).Resolve().Settings.ReportingInterval; got != want {
			t.Errorf("%q = %v, want %v", text, got, want)
		}
	}
}

func TestGeneralNamesOfTheEnvironmentSayWhereTheDatastoreIs(t *testing.T) {
	general := []string{
		"NODENAME=n7", "DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=http://192.0.2.1:2379, http://192.0.2.2:2379", "ETCD_USERNAME=u", "ETCD_PASSWORD=p",
		"ETCD_CERT_FILE=/crt", "ETCD_KEY_FILE=/key", "ETCD_CA_CERT_FILE=/ca",
	}
	l, problems := config.FromEnv(general)
	s := config.New("h1", l).Resolve().Settings
	want := config.Etcd{
		Endpoints: []string{"http://192.0.2.1:2379", "http://192.0.2.2:2379"}, Username: "u", Password: "p", CertFile: "/crt", KeyFile: "/key", CACertFile: "/ca",
	}
	if len(problems) != 0 || !reflect.DeepEqual(s.Etcd, want) || s.Node != "n7" {
		t.Errorf("%+v of node %s, want %+v of n7; problems %v", s.Etcd, s.Node, want, problems)
	}
	l, problems = config.FromEnv(append(general, "FELIX_ETCDENDPOINTS=http://192.0.2.3:2379", "FELIX_FELIXHOSTNAME=n8"))
	s = config.New("h1", l).Resolve().Settings
	if len(problems) != 0 || !slices.Equal(s.Etcd.Endpoints, []string{"http://192.0.2.3:2379"}) || s.Node != "n8" {
		t.Errorf("names for the agent alone: %v of node %s; problems %v", s.Etcd.Endpoints, s.Node, problems)
	}
	l, _ = config.FromEnv([]string{"DATASTORE_TYPE=kubernetes"})
	if e := config.New("h1", l).Resolve(); len(e.Problems) != 0 || e.Settings.DatastoreType != "kubernetes" {
		t.Errorf("Kubernetes is taken for %s: problems %v", e.Settings.DatastoreType, e.Problems)
	}
}

// TestAnEmptyValueIsNone: templates of manifests leave such lines.
func TestAnEmptyValueIsNone(t *testing.T) {
	source := func(env, file string) config.Effective {
		e, problems := config.FromEnv(strings.Split(env, "|"))
		f, more := config.FromFile("twill.conf", strings.ReplaceAll(file, "|", "\n"))
		if problems = append(problems, more...); len(problems) > 0 {
			t.Errorf("%s, %s: problems %v", env, file, problems)
		}
		return config.New("h1", f, e).Resolve()
	}
	for _, tt := range []struct{ env, file, node, from, etcd string }{
		{env: "NODENAME=", from: "default"},
		{env: "NODENAME=|TWILL_NODENAME=|FELIX_FELIXHOSTNAME=", from: "default"},
		{file: "nodeName =", from: "default"},
		{env: "NODENAME=n7|TWILL_NODENAME=", node: "n7", from: "environment"},
		{env: "NODENAME=", file: "nodeName = n8", node: "n8", from: "twill.conf"},
		{env: "ETCD_ENDPOINTS=", file: "etcdEndpoints = http://192.0.2.1:2379", from: "default", etcd: "http://192.0.2.1:2379"},
	} {
		got := source(tt.env, tt.file)
		if got.Settings.Node != tt.node || got.Values[0].Param.Name != "nodeName" || got.Values[0].From != tt.from {
			t.Errorf("%s, %s: the name is %q, from %s, want %q from %s", tt.env, tt.file, got.Settings.Node, got.Values[0].From, tt.node, tt.from)
		}
		if etcd := strings.Join(got.Settings.Etcd.Endpoints, ","); etcd != tt.etcd {
			t.Errorf("%s, %s: etcd is at %q, want %q", tt.env, tt.file, etcd, tt.etcd)
		}
	}
	var env, file []string
	for _, v := range config.New("h1").Resolve().Values {
		env, file = append(env, "FELIX_"+strings.ToUpper(v.Param.Name)+"="), append(file, v.Param.Name+" =")
	}
	e, problems := config.FromEnv(env)
	f, more := config.FromFile("twill.conf", strings.Join(file, "\n"))
	got, want := config.New("h1", f, e).Resolve(), config.New("h1").Resolve()
	if problems = slices.Concat(problems, more, got.Problems); len(problems) > 0 || !reflect.DeepEqual(got.Settings, want.Settings) {
		t.Errorf("with each setting empty they are\n%+v, want the defaults\n%+v; problems %v", got.Settings, want.Settings, problems)
	}
	l, _ := config.FromEnv([]string{"TWILL_INTERFACE_EXCLUDE=None"})
	if got := config.New("h1", l).Resolve().Settings.InterfaceExclude; len(got) != 0 {
		t.Errorf("interfaceExclude is %q, want none", got)
	}
}

// Every field of a FelixConfiguration that a parameter is named after can be given there.
func TestStoredSettingsArrive(t *testing.T) {
	yes, no, port, every := true, false, 9199, "45s"
	f := felix("default", "", "Accept")
	f.Spec.HealthEnabled, f.Spec.HealthPort, f.Spec.ReportingInterval = &no, &port, &every
	f.Spec.AllowVXLANPacketsFromWorkloads, f.Spec.WorkloadSourceSpoofing, f.Spec.DebugPort = &yes, "Any", &port
	f.Spec.IPv6Support = &no
	f.Spec.InterfacePrefix, f.Spec.InterfaceExclude, f.Spec.IPSetsRefreshInterval = "cali,tap", "/^kube/,dummy0", &every
	r := config.New("h1")
	r.Set(f)
	s := r.Resolve().Settings
	if s.IPv6 || s.Health != (config.Listener{Host: "localhost", Port: 9199}) || s.ReportingInterval != 45*time.Second || !s.AllowVXLAN || !s.AllowSourceSpoofing ||
		s.Debug != (config.Listener{Enabled: true, Host: "localhost", Port: 9199}) || !slices.Equal(s.InterfacePrefixes, []string{"cali", "tap"}) ||
		!slices.Equal(s.InterfaceExclude, []string{"/^kube/", "dummy0"}) || s.SetsRefresh != 45*time.Second {
		t.Errorf("settings = %+v", s)
	}
	r.Remove("default")
	if s := r.Resolve().Settings; !s.Health.Enabled || s.AllowVXLAN {
		t.Errorf("after it went: %+v", s)
	}
}

// TestAnnotationsOfAFelixConfigurationAreSettings, as for upstream's agents: the name of a parameter is Felix's, in any case, and what is none is reported.
func TestAnnotationsOfAFelixConfigurationAreSettings(t *testing.T) {
	f := felix("default", "", "Accept")
	f.Metadata.Annotations = map[string]string{
		"config.projectcalico.org/DefaultEndpointToHostAction": "RETURN", "config.projectcalico.org/ReportingIntervalSecs": "45", "config.projectcalico.org/healthport": "9199",
		"config.projectcalico.org/FailsafeInboundHostPorts": "tcp:2222", "config.projectcalico.org/VXLANPort": "many",
		"config.projectcalico.org/interfacePrefix": "a/b", "config.projectcalico.org/InterfaceExclude": "",
		"config.projectcalico.org/NodeName": "h9", "config.projectcalico.org/Nonsense": "x", "example.org/healthEnabled": "false",
	}
	f.Spec.InterfacePrefix, f.Spec.InterfaceExclude = "tap", "dummy0" // whose annotations are wrong, and empty
	r := config.New("h1")
	r.Set(f)
	e := r.Resolve()
	s := e.Settings
	if !strings.EqualFold(s.EndpointToHost, "Return") || s.ReportingInterval != 45*time.Second || s.Health.Port != 9199 || !s.Health.Enabled || len(s.FailsafeIn) != 1 || s.FailsafeIn[0].Port != 2222 ||
		!slices.Equal(s.InterfacePrefixes, []string{"tap"}) || !slices.Equal(s.InterfaceExclude, []string{"dummy0"}) {
		t.Errorf("settings = %+v", s)
	}
	var wrong []string
	for _, p := range e.Problems {
		wrong = append(wrong, p.From+": "+p.Name)
	}
	if want := []string{"FelixConfiguration default: annotation config.projectcalico.org/NodeName", "FelixConfiguration default: annotation config.projectcalico.org/Nonsense", "FelixConfiguration default: annotation config.projectcalico.org/VXLANPort", "FelixConfiguration default: annotation config.projectcalico.org/interfacePrefix"}; !slices.Equal(wrong, want) {
		t.Errorf("reported %q, want %q", wrong, want)
	}
	node := felix("node.h1", "", "Drop")
	r.Set(node)
	if got := r.Resolve().Settings.EndpointToHost; got != "Drop" {
		t.Errorf("a field of a later FelixConfiguration yields to an annotation of one before: %v", got)
	}
	r.Remove("default")
	r.Remove("node.h1")
	if e := r.Resolve(); len(e.Problems) > 0 || e.Settings.Health.Port == 9199 {
		t.Errorf("after they went: %+v", e)
	}
}

var write = flag.Bool("write", false, "write docs/settings.md anew")

func TestThePageIsTrue(t *testing.T) {
	const page = "../../docs/settings.md"
	var b bytes.Buffer
	if err := config.Reference(&b); err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile(page, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what `twill config params` prints (%v); run go test ./internal/config -write", page, err)
	}
}
