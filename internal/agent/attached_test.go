package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/upkeep"
)

var (
	onlyTap = config.Layer{Name: "test", Values: map[string]string{"interfacePrefix": "tap"}}
	onCali1 = api.Update{Key: api.KeyPrefix(api.KindWorkloadEndpoint, "") + "ns/h1-k8s-a-eth0", Value: []byte(
		`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1-k8s-a-eth0","namespace":"ns"},"spec":{"orchestrator":"k8s","node":"h1","pod":"a","endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.0.0.1/32"]}}`)}
)

// What a plugin asks for over the agent's socket is a workload's whatever its name is; what the datastore says of the same
// endpoint, without that, is not.
func TestAnInterfaceThatIsBeingAttachedIsAWorkloads(t *testing.T) {
	for _, announced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log, store := slog.New(slog.DiscardHandler), memstore.New()
			out := make(chan intent.Batch, 10)
			d := &calcLoop{
				node: "h1", graph: calc.New("h1", onlyTap), out: out, log: log, local: make(chan local),
				watch: newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
				keep:  keepers{upkeep.New(upkeep.Config{Node: "h1", Store: store, Log: log})},
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- d.run(ctx) }()
			u := onCali1
			u.Revision = api.RevisionOf("7")
			if announced {
				d.Announce(u.Key, "cali1")
				u.Revision = attach.Pending
			}
			if err := d.Overlay(ctx, []api.Update{u}); err != nil {
				t.Fatal(err)
			}
			es := (<-out).Endpoints
			if len(es) != 1 || (es[0].Link == "cali1") != announced {
				t.Errorf("announced %v: endpoints %+v", announced, es)
			}
			cancel()
			<-ended
		})
	}
}

// After a restart the alias of a link is all that says that a plugin made it; its name may have no configured prefix.
func TestAfterARestartInterfacesThatPluginsMadeAreWorkloads(t *testing.T) {
	for _, tt := range []struct {
		name, alias string
		want        bool // the endpoint has its interface
	}{
		{"the plugin's alias", wire.Ref{Network: "net", ContainerID: "c1", Ifname: "eth0"}.Alias(), true},
		{"no alias", "", false},
		{"somebody else's alias", "to the switch", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := netnstest.New(t)
			ns.Veth("cali1", "peer1")
			if tt.alias != "" {
				ns.Run("ip", "link", "set", "cali1", "alias", tt.alias)
			}
			ns.Do(func() {
				d, g, _, err := begin(Config{Node: "h1", Local: []config.Layer{onlyTap}}, inNftables)
				if err != nil {
					t.Error(err)
					return
				}
				defer d.close()
				g.Update([]api.Update{onCali1})
				es := g.Flush().Endpoints
				if len(es) != 1 || (es[0].Link == "cali1") != tt.want || (es[0].Closed == "") != tt.want {
					t.Errorf("endpoints %+v, want one that has its interface: %v", es, tt.want)
				}
			})
		})
	}
}
