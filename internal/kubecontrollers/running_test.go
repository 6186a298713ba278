package kubecontrollers

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// TestStatusIsWhatIsInEffect: as upstream's controllers write it.
func TestStatusIsWhatIsInEffect(t *testing.T) {
	for _, tt := range []struct {
		name, resource string
		env            Environment
		kubernetes     bool
		want           string
	}{
		{
			"nothing", "", nil, false,
			`{"runningConfig":{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{` +
				`"node":{"reconcilerPeriod":"5m0s","syncLabels":"Enabled","hostEndpoint":{"autoCreate":"Disabled","createDefaultHostEndpoint":"Enabled"},"leakGracePeriod":"15m0s"},` +
				`"policy":{"reconcilerPeriod":"5m0s"},"workloadEndpoint":{"reconcilerPeriod":"5m0s"},"serviceAccount":{"reconcilerPeriod":"5m0s"},"namespace":{"reconcilerPeriod":"5m0s"},` +
				`"loadBalancer":{"assignIPs":"AllServices"},"policyMigration":{"enabled":"Enabled"}}}}`,
		},
		{
			"the resource", `"logSeverityScreen":"Warning","healthChecks":"Disabled","prometheusMetricsPort":0,"debugProfilePort":7,"controllers":{"node":{"leakGracePeriod":"20m",` +
				`"hostEndpoint":{"autoCreate":"Enabled","templates":[{"generateName":"t","interfacePattern":"eth.*"}]}},"policy":{},"loadBalancer":{"assignIPs":"RequestedServicesOnly"}}`, nil, true,
			`{"runningConfig":{"logSeverityScreen":"Warning","healthChecks":"Disabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":0,"controllers":{` +
				`"node":{"reconcilerPeriod":"5m0s","syncLabels":"Disabled","hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Enabled",` +
				`"templates":[{"generateName":"t","interfacePattern":"eth.*"}]},"leakGracePeriod":"20m0s"},"loadBalancer":{"assignIPs":"RequestedServicesOnly"}},"debugProfilePort":7},` +
				`"environmentVars":{"DATASTORE_TYPE":"kubernetes"}}`,
		},
		{
			"the environment", `"controllers":{"node":{"hostEndpoint":{"autoCreate":"Disabled"}},"policy":{}}`,
			Environment{
				"LOG_LEVEL": "debug", "ENABLED_CONTROLLERS": "node,policy", "RECONCILER_PERIOD": "105s", "COMPACTION_PERIOD": "33m", "HEALTH_ENABLED": "false",
				"SYNC_NODE_LABELS": "false", "AUTO_HOST_ENDPOINTS": "enabled", "NODE_WORKERS": "3",
			},
			false,
			`{"runningConfig":{"logSeverityScreen":"Debug","healthChecks":"Disabled","etcdV3CompactionPeriod":"33m0s","prometheusMetricsPort":9094,"controllers":{` +
				`"node":{"reconcilerPeriod":"1m45s","syncLabels":"Disabled","hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Enabled"},"leakGracePeriod":"15m0s"},` +
				`"policy":{"reconcilerPeriod":"1m45s"}}},"environmentVars":{"AUTO_HOST_ENDPOINTS":"enabled","COMPACTION_PERIOD":"33m","ENABLED_CONTROLLERS":"node,policy",` +
				`"HEALTH_ENABLED":"false","LOG_LEVEL":"debug","RECONCILER_PERIOD":"105s","SYNC_NODE_LABELS":"false"}}`,
		},
		{
			"names of policies stay", `"controllers":{"policyMigration":{"enabled":"Disabled"}}`, nil, true,
			`{"runningConfig":{"logSeverityScreen":"Info","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{"policyMigration":{"enabled":"Disabled"}}}}`,
		},
		{
			"without the controller of nodes, its variables are not taken over", `"controllers":{}`,
			Environment{"AUTO_HOST_ENDPOINTS": "enabled", "LOG_LEVEL": "fatal"},
			true,
			`{"runningConfig":{"logSeverityScreen":"Fatal","healthChecks":"Enabled","etcdV3CompactionPeriod":"10m0s","prometheusMetricsPort":9094,"controllers":{}},"environmentVars":{"LOG_LEVEL":"fatal"}}`,
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
			got, err := json.Marshal(tt.env.Status(k, tt.kubernetes))
			if err != nil || string(got) != tt.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

// runRunning is run with the controller of the configuration's status.
func runRunning(t *testing.T, env Environment, test func(*bench)) {
	t.Helper()
	run(t, true, func(b *bench) {
		r := newRunning(runningConfig{Store: b.store, Environment: env, Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(b, nil))})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.loop.Run(ctx) }()
		b.stops = append(b.stops, func() { cancel(); <-done })
		b.after(2 * time.Second)
		test(b)
	})
}

// configuration is the one that is stored.
func (b *bench) configuration() (*api.KubeControllersConfiguration, string) {
	b.Helper()
	u, _, _ := b.stored(settings)
	st, err := api.DecodeStored(u)
	if err != nil {
		b.Fatal(err)
	}
	return st.Resource.(*api.KubeControllersConfiguration), string(u.Value)
}

// TestTheConfigurationSaysWhatIsInEffect: it is made if there is none, follows what is written to it, and what others wrote stays.
func TestTheConfigurationSaysWhatIsInEffect(t *testing.T) {
	runRunning(t, Environment{"LOG_LEVEL": "debug", "AUTO_HOST_ENDPOINTS": "enabled"}, func(b *bench) {
		k, text := b.configuration()
		if s := k.Spec; s.LogSeverityScreen != "Info" || s.Controllers.Policy == nil || s.HostEndpoints().AutoCreate != api.Disabled || k.HostEndpoints().AutoCreate != api.Enabled {
			b.Errorf("the one that was made is %s", text)
		}
		if r := k.Status.RunningConfig; r == nil || r.LogSeverityScreen != "Debug" || k.Status.EnvironmentVars["LOG_LEVEL"] != "debug" {
			b.Errorf("its status is that of %s", text)
		}
		quiet := b.store.Revision()
		b.after(time.Hour)
		if b.store.Revision() != quiet {
			b.Error("something was written, and nothing had changed")
		}
		b.put(settings, `{"metadata":{"name":"default","uid":"u"},"spec":{"later":1,"healthChecks":"Disabled","controllers":{"node":{}}},"status":{"other":7,"environmentVars":{"OLD":"1"}}}`)
		b.after(2 * time.Second)
		k, text = b.configuration()
		if r := k.Status.RunningConfig; r == nil || r.HealthChecks != api.Disabled || r.Controllers.Policy != nil || len(k.Status.EnvironmentVars) != 2 || !strings.Contains(text, `"other":7`) || !strings.Contains(text, `"later":1`) {
			b.Errorf("another one is %s", text)
		}
		b.put(settings, `{`)
		b.after(time.Hour)
		if u, _ := b.store.Get(b.Context(), api.ResourcesPrefix+settings); string(u.Value) != "{" {
			b.Errorf("what cannot be read is %s", u.Value)
		}
		b.remove(b.store, settings)
		b.after(2 * time.Second)
		if k, text = b.configuration(); k.Status.RunningConfig == nil {
			b.Errorf("one that was deleted is %s", text)
		}
	})
}

// TestTwoWhoWriteTheStatusDoNotRace: Calico's controllers, with another environment, answer each write at once.
func TestTwoWhoWriteTheStatusDoNotRace(t *testing.T) {
	runRunning(t, nil, func(b *bench) {
		const other = `{"metadata":{"name":"default"},"spec":{"controllers":{"node":{}}},"status":{"environmentVars":{"LOG_LEVEL":"error"}}}`
		writes := 0
		for range 60 { // they look every ten seconds
			b.after(10 * time.Second)
			if k, _ := b.configuration(); k.Status.EnvironmentVars["LOG_LEVEL"] == "" {
				writes++
				b.put(settings, other)
			}
		}
		if writes < 2 || writes > 4 || strings.Count(b.log.String(), "somebody else writes another status") != 1 {
			b.Errorf("written %d times in ten minutes", writes)
		}
	})
}
