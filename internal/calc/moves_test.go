package calc

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// TestWhichMachinesComeAndWhichGo by LiveMigrations, whichever comes first. What is wrong in one stops nothing.
func TestWhichMachinesComeAndWhichGo(t *testing.T) {
	const (
		at   = `{"hostname":"h1","orchestratorID":"openstack","workloadID":"ns1/vm","endpointID":"p"}`
		pod  = `{"hostname":"elsewhere","orchestratorID":"k8s","workloadID":"ns1/vm","endpointID":"p"}`
		away = `{"hostname":"h2","orchestratorID":"openstack","workloadID":"ns1/vm","endpointID":"p"}`
	)
	whole := func(id string) string { return fmt.Sprintf(`{"workload":%s}`, id) }
	end := func(id string) string { return fmt.Sprintf(`{"workloadEndpoint":%s}`, id) }
	spec := func(source, target string) string { return fmt.Sprintf(`{"source":%s,"target":%s}`, source, target) }
	selects := func(s string) string { return fmt.Sprintf(`{"selector":%q}`, s) }
	for _, tt := range []struct {
		name, namespace, spec, orchestrator string
		want                                intent.Move
	}{
		{"it is the target", "ns1", spec(end(away), end(at)), "openstack", intent.Comes},
		{"it is the source", "ns1", spec(end(at), end(away)), "openstack", intent.Goes},
		{"its workload is the source", "ns1", spec(whole(`{"hostname":"h1","orchestratorID":"openstack","workloadID":"ns1/vm"}`), selects("has(nothing)")), "openstack", intent.Goes},
		{"the same on another host", "ns1", spec(end(away), end(away)), "openstack", intent.Stays},
		{"a pod is the same on every host", "ns1", spec(end(away), end(pod)), "k8s", intent.Comes},
		{"another orchestrator's", "ns1", spec(end(away), end(pod)), "openstack", intent.Stays},
		{"a selector of the target", "ns1", spec("null", selects("app == 'vm'")), "openstack", intent.Comes},
		{"a selector of a label of its profile", "ns1", spec("null", selects("pcns.env == 'prod'")), "openstack", intent.Comes},
		{"a selector that does not select it", "ns1", spec("null", selects("app == 'db'")), "openstack", intent.Stays},
		{"a selector of another namespace", "ns2", spec("null", selects("all()")), "openstack", intent.Stays},
		{"a selector that would reach out of its namespace", "ns2", spec("null", selects(`has(x)) || (app == "vm"`)), "openstack", intent.Stays},
		{"another namespace's LiveMigration names it", "ns2", spec(end(away), end(at)), "openstack", intent.Comes},
		{"both", "ns1", spec(end(at), selects("app == 'vm'")), "openstack", intent.Comes},
		{"a target that is none", "ns1", spec(end(at), `{}`), "openstack", intent.Stays},
		{"a selector that is none", "ns1", spec(end(at), selects("(")), "openstack", intent.Stays},
		{"nothing", "ns1", `{}`, "openstack", intent.Stays},
	} {
		t.Run(tt.name, func(t *testing.T) {
			us := []api.Update{
				rawUpdate("workloadendpoints/ns1/vm", fmt.Sprintf(`{"metadata":{"labels":{"app":"vm"}},"spec":{"node":"h1","orchestrator":%q,"workload":"vm","pod":"vm","endpoint":"p","interfaceName":"cali1",
					"ipNetworks":["10.65.0.5/32"],"mac":"02:00:00:00:00:05","profiles":["kns.ns1"]}}`, tt.orchestrator)),
				rawUpdate("profiles/kns.ns1", `{"spec":{"labelsToApply":{"pcns.env":"prod"}}}`),
				rawUpdate("livemigrations/"+tt.namespace+"/m", `{"spec":`+tt.spec+`}`),
			}
			for first := range us { // in each order, alone and in one flush
				for _, apart := range []bool{false, true} {
					g := New("h1")
					g.SetInSync()
					for n := range us {
						g.Update([]api.Update{us[(first+n)%len(us)]})
						if apart {
							g.Flush()
						}
					}
					g.Flush()
					if routes := g.Intents().Routes; len(routes) != 1 || routes[0].Move != tt.want {
						t.Fatalf("%d first: routes %+v, want %d", first, routes, tt.want)
					}
					g.Update([]api.Update{{Key: us[2].Key}})
					b := g.Flush()
					if routes := g.Intents().Routes; len(routes) != 1 || routes[0].Move != intent.Stays || len(g.moves.migrations)+len(g.moves.targets)+len(g.moves.sources)+len(g.moves.workloads)+len(g.moves.selectors) > 0 {
						t.Fatalf("when it is over: routes %+v, and left %+v", routes, g.moves)
					}
					if len(b.Endpoints)+len(b.Policies) > 0 {
						t.Errorf("more than routes changed: %+v", b)
					}
				}
			}
		})
	}
}
