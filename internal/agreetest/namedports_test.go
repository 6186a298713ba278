package agreetest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/packet"
)

type object = map[string]any

// stored is a resource as the store has it.
func stored(t *testing.T, kind, namespace, name string, labels, spec object) api.Update {
	t.Helper()
	key, err := api.Ref{Kind: kind, Namespace: namespace, Name: name}.Key()
	must(t, err)
	meta := object{"name": name, "labels": labels}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	value, err := json.Marshal(object{"kind": kind, "apiVersion": api.GroupVersion, "metadata": meta, "spec": spec})
	must(t, err)
	return api.Update{Key: key, Value: value, Revision: api.RevisionOf("1")}
}

// TestFiftyByFiftyNamedPorts asks packets of a rule with fifty names and a number on each side, whose sources are hosts and
// prefixes: that is one kernel rule for each way of matching, and not one for each pair of names.
func TestFiftyByFiftyNamedPorts(t *testing.T) {
	const names = 50
	named := func(prefix string, first int) (ports []object, refs []any) {
		for i := range names {
			ports = append(ports, object{"name": fmt.Sprint(prefix, i), "protocol": "TCP", "port": first + i})
			refs = append(refs, fmt.Sprint(prefix, i))
		}
		return ports, refs
	}
	clientPorts, clientNames := named("client", 30000)
	serverPorts, serverNames := named("server", 8000)
	_, notNames := named("nobody", 0)
	workload := func(name, link, v4, v6 string, ports []object, profiles ...string) api.Update {
		return stored(t, api.KindWorkloadEndpoint, "ns1", nodeName+"-k8s-"+name+"-eth0", object{"app": name, api.LabelNamespace: "ns1", api.LabelOrchestrator: "k8s"}, object{
			"orchestrator": "k8s", "workload": name, "pod": name, "endpoint": "eth0", "node": nodeName, "containerID": name, "interfaceName": link,
			"mac": "ee:ee:ee:ee:ee:ee", "ipNetworks": []string{v4 + "/32", v6 + "/128"}, "ports": ports, "profiles": profiles,
		})
	}
	g := calc.New(nodeName)
	g.Update([]api.Update{
		workload("client", "cali0", "10.65.0.1", "fd00:65::1", clientPorts, api.ProfileDefaultAllow),
		workload("server", "cali1", "10.65.0.2", "fd00:65::2", serverPorts),
		stored(t, api.KindGlobalNetworkSet, "", "outside", object{"app": "client"}, object{"nets": []string{"203.0.113.0/24", "2001:db8:ffff::/48"}}),
		stored(t, api.KindGlobalNetworkPolicy, "", "ports", nil, object{
			"selector": `app == "server"`, "types": []string{"Ingress"}, "ingress": []object{{
				"action": "Allow", "protocol": "TCP", "source": object{"selector": `app == "client"`, "ports": append(clientNames, 53)},
				"destination": object{"selector": `app == "server"`, "ports": append(serverNames, 443), "notPorts": append(notNames, "server48")},
			}},
		}),
	})
	g.SetInSync()
	n := newNode(t, inNftables)
	n.program(g.Flush())

	rs, err := n.conn.List(kernel.TableName)
	must(t, err)
	kernelRules := 0
	for _, r := range rs.Rules {
		if strings.HasPrefix(r.Comment, "ports ingress[0]") {
			kernelRules++
		}
	}
	t.Logf("%d kernel rules", kernelRules)
	if kernelRules == 0 || kernelRules > 100 {
		t.Errorf("the rule is %d in the kernel, want 1 to 100", kernelRules)
	}

	for _, tt := range []struct {
		name     string
		src      string
		from, to uint16
		want     bool
	}{
		{"first name to first name", "client", 30000, 8000, true},
		{"last name to last name", "client", 30049, 8049, true},
		{"any name to any other", "client", 30007, 8031, true},
		{"a number to a name", "client", 53, 8049, true},
		{"a name to a number", "client", 30049, 443, true},
		{"a number to a number", "client", 53, 443, true},
		{"a port that has no name, to a name", "client", 30050, 8000, false},
		{"a name to a port that has no name", "client", 30000, 8050, false},
		{"a name among those that it must not be", "client", 30000, 8048, false},
		{"the server's names are not the client's", "client", 8000, 8000, false},
		{"a prefix has numbers", "outside", 53, 8000, true},
		{"a prefix has no names", "outside", 30000, 8000, false},
	} {
		for _, a := range map[string][][3]string{
			"client":  {{"10.65.0.1", "10.65.0.2", "cali0"}, {"fd00:65::1", "fd00:65::2", "cali0"}},
			"outside": {{"203.0.113.7", "10.65.0.2", uplink}, {"2001:db8:ffff::7", "fd00:65::2", uplink}},
		}[tt.src] {
			p := sending{packet.Packet{Src: netip.MustParseAddr(a[0]), Dst: netip.MustParseAddr(a[1]), Proto: 6, SrcPort: tt.from, DstPort: tt.to}, a[2]}
			ps := []sending{p}
			_, passed := n.deliver(ps).out[ps[0].Mark]
			if passed != tt.want {
				t.Errorf("%s: %v passed: %v, want %v", tt.name, p.Packet, passed, tt.want)
			}
		}
	}
}
