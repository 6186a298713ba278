package kubecontrollers

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// TestSettingsAreTheEnvironmentsThenTheResources: and each that has no effect is named.
func TestSettingsAreTheEnvironmentsThenTheResources(t *testing.T) {
	node := func(labels bool, period, grace time.Duration) *NodeSettings {
		return &NodeSettings{labels, period, grace}
	}
	copies := func(compact time.Duration, resync time.Duration, names ...string) CopySettings {
		return CopySettings{names, resync, compact}
	}
	lb := func(all bool) *BalancerSettings { return &BalancerSettings{all} }
	all := copies(10*time.Minute, 5*time.Minute, "policy", "namespace", "serviceaccount", "workloadendpoint")
	none := copies(10*time.Minute, 5*time.Minute)
	for _, tt := range []struct {
		name     string
		env      Environment
		resource string // its spec; empty: there is none
		etcd     bool
		want     Settings
		warns    []string // begin of each
	}{
		{"nothing", nil, "", false, Settings{slog.LevelInfo, true, 9094, 0, node(false, 5*time.Minute, 15*time.Minute), CopySettings{}, lb(true), true}, nil},
		{"nothing, with etcd", nil, "", true, Settings{slog.LevelInfo, true, 9094, 0, node(true, 5*time.Minute, 15*time.Minute), all, lb(true), true}, nil},
		{
			"the resource", nil, `"logSeverityScreen":"Debug","healthChecks":"Disabled","prometheusMetricsPort":0,"controllers":{"node":{"reconcilerPeriod":"1m","leakGracePeriod":"30s"}}`, false,
			Settings{slog.LevelDebug, false, 0, 0, node(false, time.Minute, 30*time.Second), CopySettings{}, nil, false},
			nil,
		},
		{
			"labels are not copied", nil, `"controllers":{"node":{"syncLabels":"Disabled"}}`, true,
			Settings{slog.LevelInfo, true, 9094, 0, node(false, 5*time.Minute, 15*time.Minute), none, nil, false},
			nil,
		},
		{
			"labels of nodes are Kubernetes' own",
			Environment{"SYNC_NODE_LABELS": "false"},
			`"controllers":{"node":{"syncLabels":"Disabled"}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, node(false, 5*time.Minute, 15*time.Minute), CopySettings{}, nil, false},
			[]string{"spec.controllers.node.syncLabels", "SYNC_NODE_LABELS"},
		},
		{"a resource without node turns that off", nil, `"controllers":{}`, false, Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, nil, false}, nil},
		{
			"the environment goes first",
			Environment{"LOG_LEVEL": "error", "HEALTH_ENABLED": "false", "ENABLED_CONTROLLERS": "node, policy", "RECONCILER_PERIOD": "2m", "SYNC_NODE_LABELS": "false"},
			`"logSeverityScreen":"Debug","controllers":{"node":{"reconcilerPeriod":"1m","leakGracePeriod":"0s"}}`, true,
			Settings{slog.LevelError, false, 9094, 0, node(false, 2*time.Minute, 0), copies(10*time.Minute, 2*time.Minute, "policy"), nil, false},
			nil,
		},
		{
			"what has no effect",
			Environment{"NODE_WORKERS": "3", "COMPACTION_PERIOD": "1m"},
			`"debugProfilePort":6060,"controllers":{"namespace":{}}`, true,
			Settings{slog.LevelInfo, true, 9094, 6060, nil, copies(time.Minute, 5*time.Minute, "namespace"), nil, false},
			[]string{"NODE_WORKERS"},
		},
		{
			"old manifests say profile of what namespaces become",
			Environment{"ENABLED_CONTROLLERS": "policy,profile,workloadendpoint"},
			"", true,
			Settings{slog.LevelInfo, true, 9094, 0, nil, copies(10*time.Minute, 5*time.Minute, "policy", "namespace", "workloadendpoint"), nil, false},
			nil,
		},
		{
			"what is copied", nil,
			`"etcdV3CompactionPeriod":"0s","controllers":{"policy":{"reconcilerPeriod":"3m"},"workloadEndpoint":{"reconcilerPeriod":"90s"},"serviceAccount":{"reconcilerPeriod":"never"}}`, true,
			Settings{slog.LevelInfo, true, 9094, 0, nil, copies(0, 90*time.Second, "policy", "serviceaccount", "workloadendpoint"), nil, false},
			[]string{"spec.controllers.serviceAccount.reconcilerPeriod"},
		},
		{"load balancers", nil, `"controllers":{"loadBalancer":{}}`, false, Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, lb(true), false}, nil},
		{
			"load balancers of services that ask", nil, `"controllers":{"loadBalancer":{"assignIPs":"RequestedServicesOnly"}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, lb(false), false},
			nil,
		},
		{
			"load balancers by the environment",
			Environment{"ENABLED_CONTROLLERS": "loadbalancer"},
			`"controllers":{"node":{}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, lb(true), false},
			nil,
		},
		{"names of policies", nil, `"controllers":{"policyMigration":{}}`, false, Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, nil, true}, nil},
		{"names of policies stay", nil, `"controllers":{"policyMigration":{"enabled":"Disabled"}}`, false, Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, nil, false}, nil},
		{
			"names of policies by the environment",
			Environment{"ENABLED_CONTROLLERS": "migration"},
			`"controllers":{"node":{}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, nil, true},
			nil,
		},
		{
			"the environment does not turn on what the resource turns off",
			Environment{"ENABLED_CONTROLLERS": "migration"},
			`"controllers":{"policyMigration":{"enabled":"Disabled"}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, nil, CopySettings{}, nil, false},
			nil,
		},
		{
			"what is wrong has no effect", nil, `"controllers":{"node":{"reconcilerPeriod":"0s","leakGracePeriod":"soon"}}`, false,
			Settings{slog.LevelInfo, true, 9094, 0, node(false, 5*time.Minute, 15*time.Minute), CopySettings{}, nil, false},
			[]string{"spec.controllers.node.reconcilerPeriod", "spec.controllers.node.leakGracePeriod"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k *api.KubeControllersConfiguration
			if tt.resource != "" {
				st, err := api.DecodeStored(api.Update{Key: api.KeyPrefix(api.KindKubeControllersConfiguration, "") + "default", Value: []byte(`{"metadata":{"name":"default"},"spec":{` + tt.resource + `}}`)})
				if err != nil {
					t.Fatal(err)
				}
				k = st.Resource.(*api.KubeControllersConfiguration)
			}
			if err := tt.env.Check(); err != nil {
				t.Fatal(err)
			}
			got, warns := tt.env.Resolve(k, !tt.etcd)
			if !equal(got, tt.want) {
				t.Errorf("got %+v %+v, want %+v %+v", got, got.Node, tt.want, tt.want.Node)
			}
			if !slices.EqualFunc(warns, tt.warns, strings.HasPrefix) {
				t.Errorf("warnings %q, want %q", warns, tt.warns)
			}
		})
	}
}

func TestAWrongVariableIsRefusedByName(t *testing.T) {
	for name, value := range map[string]string{
		"LOG_LEVEL": "loud", "ENABLED_CONTROLLERS": "node,pods", "RECONCILER_PERIOD": "soon", "COMPACTION_PERIOD": "10", "SYNC_NODE_LABELS": "perhaps",
		"HEALTH_ENABLED": "perhaps", "AUTO_HOST_ENDPOINTS": "yes",
	} {
		err := ReadEnvironment(func(n string) (string, bool) { return value, n == name }).Check()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	for name, value := range map[string]string{"AUTO_HOST_ENDPOINTS": "enabled", "ENABLED_CONTROLLERS": "node", "LOG_LEVEL": "Warning"} {
		if err := (Environment{name: value}).Check(); err != nil {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if err := (Environment{"ENABLED_CONTROLLERS": "flannelmigration"}).Check(); err == nil || !strings.Contains(err.Error(), "flannel") {
		t.Errorf("got %v", err)
	}
}
