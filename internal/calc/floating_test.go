package calc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

// floats is a workload of a node with a floating address and others.
func floats(node, name, created, own string, external ...string) api.Update {
	return floatsOf("k8s", node, name, created, own, external...)
}

// floatsOf is one of an orchestrator.
func floatsOf(orchestrator, node, name, created, own string, external ...string) api.Update {
	nats := make([]string, len(external))
	for i, e := range external {
		nats[i] = fmt.Sprintf(`{"internalIP":%q,"externalIP":%q}`, own, e)
	}
	resource := node + "-" + orchestrator + "-" + name + "-eth0"
	return rawUpdate("workloadendpoints/ns/"+resource, fmt.Sprintf(`{"kind":"WorkloadEndpoint","metadata":{"name":%q,"namespace":"ns","creationTimestamp":%q},`+
		`"spec":{"orchestrator":%q,"node":%q,"pod":%q,"workload":%q,"endpoint":"eth0","interfaceName":"cali%s","ipNetworks":["%s/32"],"ipNATs":[%s]}}`,
		resource, created, orchestrator, node, name, name, name, own, strings.Join(nats, ",")))
}

func TestWhoHasAFloatingAddress(t *testing.T) {
	const early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
	gone := func(u api.Update) api.Update { return api.Update{Key: u.Key} }
	felix := func(value string) api.Update {
		return rawUpdate("felixconfigurations/default", `{"kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"floatingIPs":"`+value+`"}}`)
	}
	neutrons := func(external ...string) api.Update {
		return floatsOf("openstack", "h1", "os", late, "10.0.0.9", external...)
	}
	atAnother := floatsOf("openstack", "h2", "os", late, "10.0.0.9", "10.9.0.1")
	a, b := floats("h1", "a", late, "10.0.0.1", "10.9.0.1"), floats("h1", "b", early, "10.0.0.2")
	g := New("h1")
	g.SetInSync()
	for _, step := range []struct {
		name    string
		update  []api.Update
		want    string // who has which, of this node
		refused string // what a's problems say
	}{
		{"nobody says that there are any", []api.Update{a, b, poolUpdate("p", `"cidr":"10.9.0.0/24"`)}, "", "floatingIPs is not Enabled"},
		{"they are enabled", []api.Update{felix("Enabled")}, "a=10.9.0.1", ""},
		{"an older workload asks, too", []api.Update{floats("h1", "b", early, "10.0.0.2", "10.9.0.1")}, "b=10.9.0.1", "is that of ns/h1-k8s-b-eth0"},
		{"it does not any more", []api.Update{b}, "a=10.9.0.1", ""},
		{"an older one of another node does", []api.Update{floats("h2", "c", early, "10.0.0.3", "10.9.0.1")}, "", "is that of ns/h2-k8s-c-eth0"},
		{"that one is gone", []api.Update{gone(floats("h2", "c", "", ""))}, "a=10.9.0.1", ""},
		{"a younger one of another node does", []api.Update{floats("h2", "c", "2026-01-03T00:00:00Z", "10.0.0.3", "10.9.0.1")}, "a=10.9.0.1", ""},
		{"somebody of another node has the address as its own", []api.Update{floats("h2", "c", early, "10.9.0.1")}, "", "is a workload's own address"},
		{"and gives it back", []api.Update{floats("h2", "c", early, "10.0.0.3")}, "a=10.9.0.1", ""},
		{"a node has it", []api.Update{rawUpdate("nodes/h3", `{"spec":{"bgp":{"ipv4Address":"192.0.2.3/24","ipv4IPIPTunnelAddr":"10.9.0.1"}}}`)}, "", "is a node's address"},
		{"the node is gone", []api.Update{{Key: api.ResourcesPrefix + "nodes/h3"}}, "a=10.9.0.1", ""},
		{"the pool is for services", []api.Update{poolUpdate("p", `"cidr":"10.9.0.0/24","allowedUses":["LoadBalancer"]`)}, "", "not for workloads"},
		{"the pool is another", []api.Update{poolUpdate("p", `"cidr":"10.8.0.0/24"`)}, "", "is in no IPPool"},
		{"there are two", []api.Update{poolUpdate("p", `"cidr":"10.9.0.0/24"`), floats("h1", "a", late, "10.0.0.1", "10.9.0.1", "10.9.0.2")}, "a=10.9.0.1 a=10.9.0.2", ""},
		{"they are disabled", []api.Update{felix("Disabled")}, "", "floatingIPs is not Enabled"},
		{"enabled again", []api.Update{felix("enabled")}, "a=10.9.0.1 a=10.9.0.2", ""},
		{"OpenStack's have them, whatever the setting says, and need no pool", []api.Update{felix("Disabled"), gone(a), neutrons("10.9.0.1", "203.0.113.7")}, "os=10.9.0.1 os=203.0.113.7", ""},
		{"before what pods say, whose is older", []api.Update{felix("Enabled"), floats("h1", "a", early, "10.0.0.1", "10.9.0.1")}, "os=10.9.0.1 os=203.0.113.7", "is that of ns/h1-openstack-os-eth0"},
		{"also on another host", []api.Update{neutrons(), atAnother}, "", "is that of ns/h2-openstack-os-eth0"},
		{"a pod has what OpenStack takes back", []api.Update{{Key: atAnother.Key}}, "a=10.9.0.1", ""},
		{"a pod needs a pool", []api.Update{floats("h1", "a", early, "10.0.0.1", "203.0.113.7")}, "", "is in no IPPool"},
		{"a node's address is nobody else's", []api.Update{gone(a), rawUpdate("nodes/h3", `{"spec":{"bgp":{"ipv4Address":"203.0.113.7/24"}}}`), neutrons("203.0.113.7")}, "", "is a node's address"},
		{"the workload is gone", []api.Update{gone(neutrons())}, "", ""},
	} {
		g.Update(step.update)
		problems := fmt.Sprint(g.Problems())
		g.Flush()
		var got []string
		for _, e := range g.Intents().Endpoints {
			for _, n := range e.NATs {
				got = append(got, strings.TrimPrefix(e.Label, "ns/")+"="+n.External.String())
				if n.Internal != e.Addrs[0] {
					t.Errorf("%s: leads to %s, want %s", step.name, n.Internal, e.Addrs[0])
				}
			}
		}
		if text := strings.Join(got, " "); text != step.want {
			t.Errorf("%s: %q, want %q", step.name, text, step.want)
		}
		if !strings.Contains(problems, step.refused) || step.refused == "" && strings.Contains(problems, "floating address") {
			t.Errorf("%s: problems %s, want %q", step.name, problems, step.refused)
		}
		routed := 0
		for _, r := range g.Intents().Routes {
			if strings.HasPrefix(r.Dst.String(), "10.9.0.") && r.Link == "calia" || r.Link == "calib" && r.Dst.String() == "10.9.0.1/32" || r.Link == "calios" && r.Dst.String() != "10.0.0.9/32" {
				routed++
			}
		}
		if routed != len(got) {
			t.Errorf("%s: %d routes to floating addresses, want %d", step.name, routed, len(got))
		}
	}
}
