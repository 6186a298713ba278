package kubecontrollers

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/upkeep"
)

// keeping is run with the controller of automatic host endpoints, with etcd or without, and an environment.
func keeping(t *testing.T, etcd bool, env Environment, test func(*bench)) {
	t.Helper()
	run(t, etcd, func(b *bench) {
		c := newHosts(hostsConfig{
			Store: b.store, Same: !etcd, Environment: env, Turn: func(string, error) {}, Log: slog.New(slog.NewTextHandler(b, nil)),
			Settings: func() Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.settings },
		})
		b.runHosts(c)
		test(b)
	})
}

func (b *bench) runHosts(c *upkeep.Controller) {
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	b.stops = append(b.stops, func() { cancel(); <-done })
}

// hostEndpoints are the names of those that are stored.
func (b *bench) hostEndpoints() (out []string) {
	b.Helper()
	snap, err := b.store.List(b.Context(), api.KeyPrefix(api.KindHostEndpoint, ""))
	if err != nil {
		b.Fatal(err)
	}
	for _, u := range snap.Sorted() {
		out = append(out, strings.TrimPrefix(u.Key, api.KeyPrefix(api.KindHostEndpoint, "")))
	}
	return out
}

func (b *bench) wantHosts(what string, want ...string) {
	b.Helper()
	b.after(2 * time.Minute)
	if got := b.hostEndpoints(); !slices.Equal(got, want) {
		b.Errorf("%s: there are %v, want %v", what, got, want)
	}
}

// agent has one report from a node: ours with a version, for 90 s.
func (b *bench) agent(node, version string) {
	b.Helper()
	now := time.Now().UTC()
	text := `{"time":"` + now.Format(time.RFC3339) + `","uptime":1,"first_update":false,"ready":true,"expires":"` + now.Add(time.Hour).Format(time.RFC3339) + `"`
	if version != "" {
		text += `,"version":"` + version + `"`
	}
	b.putIn(b.store, api.Root+"felix/v2/no-region/host/"+node+"/status", text+"}")
}

const (
	hostsOn  = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled"}}}}}`
	hostsOff = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Disabled"}}}}}`
	byHand   = `{"metadata":{"name":"eth0"},"spec":{"node":"n1","interfaceName":"eth0"}}`
	settings = "kubecontrollersconfigurations/default"
)

// TestNodesWithoutAnAgentHaveHostEndpoints: and those with one are left to it, from when it reports until it does not.
func TestNodesWithoutAnAgentHaveHostEndpoints(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		keeping(t, etcd, nil, func(b *bench) {
			b.put("hostendpoints/eth0", byHand)
			b.agent("n2", "v1")
			b.wantHosts("off", "eth0")
			b.put(settings, hostsOn)
			b.wantHosts("n2 has an agent", "eth0", "n1-auto-hep")
			first, _, _ := b.stored("hostendpoints/n1-auto-hep")
			b.put("nodes/n1", `{"metadata":{"name":"n1","labels":{"rack":"b"}},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)
			b.after(time.Second)
			now, meta, _ := b.stored("hostendpoints/n1-auto-hep")
			if meta.Labels["rack"] != "b" || !strings.Contains(string(now.Value), `"192.0.2.1"`) || string(now.Value) == string(first.Value) {
				b.Errorf("the node has other labels and addresses, and its host endpoint is %s", now.Value)
			}

			b.agent("n2", "") // Calico's
			b.wantHosts("the agent of n2 is another's now", "eth0", "n1-auto-hep", "n2-auto-hep")
			before, _, _ := b.stored("hostendpoints/n2-auto-hep")
			b.agent("n1", "v1")
			b.agent("n2", "v1")
			b.put("nodes/n2", `{"metadata":{"name":"n2","labels":{"rack":"c"}}}`)
			b.after(5 * time.Minute)
			if after, _, _ := b.stored("hostendpoints/n2-auto-hep"); after.Revision != before.Revision {
				b.Errorf("an agent has come, and its host endpoint is changed: %s", after.Value)
			}
			b.put(settings, hostsOff)
			b.wantHosts("off, and it is for agents to delete", "eth0", "n1-auto-hep", "n2-auto-hep")
			b.agent("n2", "")
			b.wantHosts("one agent is gone", "eth0", "n1-auto-hep")
			b.after(time.Hour)
			b.wantHosts("so is the other: it reports no more", "eth0")
		})
	}
}

// TestTheEnvironmentSaysWhichHostEndpointsThereAre: before the resource, of which the templates do not count then.
func TestTheEnvironmentSaysWhichHostEndpointsThereAre(t *testing.T) {
	const templates = `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Disabled","templates":[{"generateName":"t","interfaceCIDRs":["192.0.2.0/24"],"labels":{"of":"t"}}]}}}}}`
	for name, tt := range map[string]struct {
		env  Environment
		want []string
	}{
		"nothing":  {nil, []string{"n1-t-auto-hep"}},
		"enabled":  {Environment{api.EnvAutoHostEndpoints: "Enabled"}, []string{"n1-auto-hep", "n2-auto-hep"}},
		"disabled": {Environment{api.EnvAutoHostEndpoints: "disabled"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			keeping(t, true, tt.env, func(b *bench) {
				b.put("nodes/n1", `{"metadata":{"name":"n1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)
				b.put("nodes/n2", `{"metadata":{"name":"n2"},"spec":{"bgp":{"ipv4Address":"198.51.100.1/24"}}}`)
				b.put(settings, templates)
				// A status that another process wrote says nothing here.
				b.wantHosts("with templates", tt.want...)
			})
		})
	}
}

// TestAHostIsNeverWithoutAHostEndpointWhenTheyChange: what is new comes before what is old goes, and if it cannot come, that stays.
func TestAHostIsNeverWithoutAHostEndpointWhenTheyChange(t *testing.T) {
	keeping(t, true, nil, func(b *bench) {
		b.put("nodes/n1", `{"metadata":{"name":"n1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)
		b.remove(b.store, "nodes/n2")
		b.put(settings, hostsOn)
		b.wantHosts("on", "n1-auto-hep")
		b.store.Fail(func(op memstore.Op) error {
			if op.Verb == "create" {
				return errAway
			}
			return nil
		})
		b.put(settings, `{"spec":{"controllers":{"node":{"hostEndpoint":{"autoCreate":"Enabled","createDefaultHostEndpoint":"Disabled","templates":[{"generateName":"t","interfaceCIDRs":["192.0.2.0/24"]}]}}}}}`)
		b.wantHosts("the new one cannot be written", "n1-auto-hep")
		b.store.Fail(nil)
		b.wantHosts("it can", "n1-t-auto-hep")
	})
}

// TestHostEndpointsOfANodeThatIsGone: Kubernetes' go with all that hung on the node; else once the datastore says that there is none.
func TestHostEndpointsOfANodeThatIsGone(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		keeping(t, etcd, nil, func(b *bench) {
			b.put(settings, hostsOn)
			b.wantHosts("on", "n1-auto-hep", "n2-auto-hep")
			b.endpoint("n1", "web", b.assign("n1", "web", ""))
			b.remove(b.store, "nodes/n1")
			want := []string{"n1-auto-hep", "n2-auto-hep"} // a pod is still there
			if etcd {
				want = want[1:]
			}
			b.wantHosts("n1 is gone", want...)
		})
	}
}

// TestHostEndpointsStayWhile nobody may write them.
func TestHostEndpointsStayWhile(t *testing.T) {
	for name, off := range map[string]func(*bench){
		"the controller is off":       func(b *bench) { b.set(func() { b.settings.Node = nil }); b.put(settings, hostsOff) },
		"the settings cannot be read": func(b *bench) { b.put(settings, strings.Replace(hostsOff, "Disabled", "never", 1)) },
		"nobody can say which agents live": func(b *bench) {
			b.store.Fail(func(op memstore.Op) error {
				if op.Verb == "list" && strings.HasPrefix(op.Key, api.Root+"felix/") {
					return errAway
				}
				return nil
			})
			b.put(settings, hostsOff)
		},
	} {
		t.Run(name, func(t *testing.T) {
			keeping(t, true, nil, func(b *bench) {
				b.put(settings, hostsOn)
				b.wantHosts("on", "n1-auto-hep", "n2-auto-hep")
				off(b)
				b.wantHosts(name, "n1-auto-hep", "n2-auto-hep")
			})
		})
	}
}
