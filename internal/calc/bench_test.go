package calc

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// The worlds of docs/benchmarks.md, calc alone: what upstream's own benchmark has,
// as many different label sets included.
const (
	namespaces = 100
	thisNode   = "h1"
)

type object = map[string]any

func update(t testing.TB, plural, name string, labels map[string]string, spec object) api.Update {
	b, err := json.Marshal(object{"metadata": object{"labels": labels}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return api.Update{Key: api.ResourcesPrefix + plural + "/" + name, Value: b}
}

func marker(i int) string { return fmt.Sprintf("example.org/marker-%d", i%31) }

// workload i of a node: nearly all have labels that no other has.
func workload(t testing.TB, node string, i int) api.Update {
	labels := map[string]string{marker(i): "true"}
	for _, n := range []int{10, 11, 20, 30, 40} {
		labels[fmt.Sprintf("one-in-%d", n)] = fmt.Sprintf("value-%d", i%n)
	}
	ns := fmt.Sprintf("namespace-%d", i%namespaces)
	addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	if node == thisNode {
		addr = netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
	}
	return update(t, "workloadendpoints", fmt.Sprintf("%s/%s-k8s-wep--%d-eth0", ns, node, i), labels, object{
		"orchestrator": "k8s", "node": node, "endpoint": "eth0", "pod": fmt.Sprintf("wep-%d", i), "interfaceName": fmt.Sprintf("cali%d", i),
		"ipNetworks": []string{addr.String() + "/32"}, "profiles": []string{"kns." + ns},
	})
}

func profiles(t testing.TB) (out []api.Update) {
	for i := range namespaces {
		name := fmt.Sprintf("namespace-%d", i)
		out = append(out, update(t, "profiles", "kns."+name, nil, object{"labelsToApply": map[string]string{"pcns.projectcalico.org/name": name}}))
	}
	return out
}

// tagPolicy is for endpoints with a marker, from endpoints with five others.
func tagPolicy(t testing.TB, i int) api.Update {
	var rules []object
	for j := range 5 {
		rules = append(rules, object{"action": "Allow", "source": object{"selector": "has(" + marker(i+j) + ")"}})
	}
	return update(t, "globalnetworkpolicies", fmt.Sprintf("tag-pol-%d", i), nil, object{"selector": "has(" + marker(i) + ")", "ingress": rules})
}

// netset i is a network set and a policy for all that lets it in.
func netset(t testing.TB, i int) []api.Update {
	name := fmt.Sprintf("network-set-%d", i)
	var nets []string
	for j := range []int{1, 1, 1, 1, 2, 3, 4, 5, 100, 1000}[i%10] {
		nets = append(nets, netip.AddrFrom4([4]byte{byte(100 + i>>14), byte(i >> 6), byte(i<<2) | byte(j>>8), byte(j)}).String()+"/32")
	}
	return []api.Update{
		update(t, "globalnetworksets", name, map[string]string{"network-set-name": name}, object{"nets": nets}),
		update(t, "globalnetworkpolicies", fmt.Sprintf("network-set-pol-%d", i), nil, object{"selector": "all()", "ingress": []object{
			{"action": "Allow", "source": object{"selector": "network-set-name == '" + name + "'"}},
		}}),
	}
}

func tagWorld(t testing.TB, remote, local, policies int) (us []api.Update) {
	for i := range policies {
		us = append(us, tagPolicy(t, i))
	}
	us = append(us, profiles(t)...)
	for i := range remote {
		us = append(us, workload(t, "remote", i))
	}
	for i := range local {
		us = append(us, workload(t, thisNode, i))
	}
	return us
}

func netsetWorld(t testing.TB, remote, local, sets int) (us []api.Update) {
	us = tagWorld(t, remote, 0, 0)
	for i := range sets {
		us = append(us, netset(t, i)...)
	}
	for i := range local {
		us = append(us, workload(t, thisNode, i))
	}
	return us
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// benchStart reports the graph's own seconds and megabytes, and decoding apart.
func benchStart(b *testing.B, world func() []api.Update) {
	var graph, decode, size, sets float64
	for range b.N {
		before := heap()
		us := world()
		start := time.Now()
		stored := make([]api.Stored, len(us))
		for i, u := range us {
			s, err := api.DecodeStored(u)
			if err != nil {
				b.Fatal(err)
			}
			stored[i] = s
		}
		decode += time.Since(start).Seconds()
		runtime.GC()
		g := New(thisNode)
		start = time.Now()
		for i := range stored {
			g.put(stored[i].Key, stored[i])
		}
		g.SetInSync()
		batch := g.Flush()
		graph += time.Since(start).Seconds()
		sets = float64(len(batch.IPSets))
		clear(us)
		clear(stored)
		clear(batch.IPSets)
		size += heap() - before
		runtime.KeepAlive(g)
	}
	b.ReportMetric(graph/float64(b.N), "graph-s")
	b.ReportMetric(decode/float64(b.N), "decode-s")
	b.ReportMetric(size/float64(b.N), "MB")
	b.ReportMetric(sets, "sets")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkStart250kEndpoints10kPolicies(b *testing.B) {
	benchStart(b, func() []api.Update { return tagWorld(b, 250_000, 200, 10_000) })
}

func BenchmarkStart1mEndpoints10kPolicies(b *testing.B) {
	benchStart(b, func() []api.Update { return tagWorld(b, 1_000_000, 200, 10_000) })
}

func BenchmarkStart10kEndpoints10kNetsetPolicies(b *testing.B) {
	benchStart(b, func() []api.Update { return netsetWorld(b, 10_000, 200, 10_000) })
}

// benchEvent measures one update and its flush, in turn there and back.
func benchEvent(b *testing.B, one, other api.Update) {
	g := New(thisNode)
	g.Update(tagWorld(b, 100_000, 100, 2_000))
	g.Flush()
	for b.Loop() {
		g.Update([]api.Update{one})
		g.Flush()
		one, other = other, one
	}
}

func BenchmarkRemoteEndpointMoves(b *testing.B) {
	u := workload(b, "remote", 1000)
	benchEvent(b, api.Update{Key: u.Key}, u)
}

func BenchmarkPolicyRuleChanges(b *testing.B) {
	one, other := tagPolicy(b, 5), tagPolicy(b, 6)
	one.Key, one.Value = other.Key, json.RawMessage(other.Value)
	changed := update(b, "globalnetworkpolicies", "tag-pol-6", nil, object{"selector": "has(" + marker(6) + ")", "ingress": []object{{"action": "Deny"}}})
	benchEvent(b, changed, other)
}

func BenchmarkLocalEndpointComes(b *testing.B) {
	u := workload(b, thisNode, 5000)
	benchEvent(b, u, api.Update{Key: u.Key})
}
