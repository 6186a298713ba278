package calc_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/intent"
)

// cluster is a synthetic one, in the shape that GOALS.md's figures were measured with.
type cluster struct {
	locals, remotes, policies, sets, netsPerSet, apps int
	ownSets                                           bool // each policy selects a network set of its own, and nothing else
}

const (
	root      = "/calico/resources/v3/projectcalico.org/"
	localNode = "h1"
	meta      = `"uid":"5a2b0a67-7b7f-4a0e-8f3c-%012x","creationTimestamp":"2026-01-01T00:00:00Z"`
)

var (
	tierLabels = []string{"web", "api", "db", "cache"}
	envs       = []string{"prod", "dev"}
)

func update(plural, name, format string, args ...any) api.Update {
	return api.Update{Key: root + plural + "/" + name, Value: fmt.Appendf(nil, format, args...)}
}

func (c cluster) workload(node, id, link, ip string, i int) api.Update {
	name := node + "-cni-" + id + "-eth0"
	return update("workloadendpoints", "default/"+name,
		`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"default",`+meta+
			`,"labels":{"app":"app-%d","env":%q,"projectcalico.org/namespace":"default","projectcalico.org/orchestrator":"cni","tier":%q,"zone":"z%d"}},`+
			`"spec":{"orchestrator":"cni","node":%q,"containerID":%q,"endpoint":"eth0","ipNetworks":["%s/32"],"profiles":["prof0"],"interfaceName":%q,"mac":"02:00:%02x:%02x:%02x:%02x"}}`,
		name, i, i%c.apps, envs[i/c.apps%2], tierLabels[i/(c.apps*2)%4], i/(c.apps*8)%8, node, id, ip, link, byte(i>>24), byte(i>>16), byte(i>>8), byte(i))
}

func (c cluster) local(i int) api.Update {
	return c.workload(localNode, fmt.Sprintf("l%05d", i), fmt.Sprintf("cali%05d", i), fmt.Sprintf("10.65.%d.%d", i/250, i%250+1), i)
}

func (c cluster) remote(i, block int) api.Update {
	return c.workload(fmt.Sprintf("r%04d", i/100), fmt.Sprintf("c%06d", i), fmt.Sprintf("cali%06x", i), fmt.Sprintf("10.%d.%d.%d", block+i/62500, i/250%250, i%250+1), i)
}

func (c cluster) policy(j, port int) api.Update {
	peer := func(a, e int) string { return fmt.Sprintf("app == 'app-%d' && env == '%s'", a%c.apps, envs[e%2]) }
	rule := func(side, proto, sel string, ports ...int) string {
		dst := fmt.Sprintf(`"ports":%s`, strings.ReplaceAll(fmt.Sprint(ports), " ", ","))
		if side == "source" {
			return fmt.Sprintf(`{"action":"Allow","protocol":%q,"source":{"selector":%q},"destination":{%s}}`, proto, sel, dst)
		}
		return fmt.Sprintf(`{"action":"Allow","protocol":%q,"destination":{"selector":%q,%s}}`, proto, sel, dst)
	}
	set := func(k int) string { return fmt.Sprintf("netset == 'ns-%d'", k%max(1, c.sets)) }
	in := []string{rule("source", "TCP", peer(j*3+1, j), port), rule("source", "TCP", peer(j*3+7, j+1), port+1, port+2), rule("source", "TCP", set(j), 443)}
	out := []string{rule("destination", "TCP", fmt.Sprintf("app == 'app-%d' && tier == '%s'", (j*5+2)%c.apps, tierLabels[j%4]), port), rule("destination", "UDP", set(j+50), 53)}
	if c.ownSets {
		in, out = []string{rule("source", "TCP", set(j), port)}, nil
	}
	name := fmt.Sprintf("pol%05d", j)
	return update("networkpolicies", "default/"+name,
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"default",`+meta+
			`,"labels":{"projectcalico.org/tier":"default"},"annotations":{"projectcalico.org/metadata":"{\"name\":\"%s\"}"}},`+
			`"spec":{"tier":"default","order":%d,"selector":"app == 'app-%d'","types":["Ingress","Egress"],"ingress":[%s],"egress":[%s]}}`,
		name, j, name, 10+j, j%c.apps, strings.Join(in, ","), strings.Join(out, ","))
}

func (c cluster) set(s int) api.Update {
	nets := make([]string, c.netsPerSet)
	for i := range nets {
		nets[i] = fmt.Sprintf(`"%d.%d.%d.0/24"`, 20+s/250, s%250, i%256)
	}
	name := fmt.Sprintf("ns%05d", s)
	return update("networksets", "default/"+name,
		`{"kind":"NetworkSet","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"default",`+meta+`,"labels":{"netset":"ns-%d"}},"spec":{"nets":[%s]}}`,
		name, s, s, strings.Join(nets, ","))
}

// all is the whole cluster, in the order in which a list of the store gives it:
// kinds by name, so that endpoints come last and sets before them.
func (c cluster) all() []api.Update {
	us := []api.Update{
		update("profiles", "prof0", `{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"prof0"},"spec":{"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}],"labelsToApply":{"team":"t0"}}}`),
		update("tiers", "default", `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"}}`),
	}
	for j := range c.policies {
		us = append(us, c.policy(j, 8000+j%500))
	}
	for s := range c.sets {
		us = append(us, c.set(s))
	}
	for i := range c.locals {
		us = append(us, c.local(i))
	}
	for i := range c.remotes {
		us = append(us, c.remote(i, 66))
	}
	return us
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// cold measures a start: all resources in chunks of a list's size, then one
// flush. heap-MB is what the graph holds on to, keys and last answer included.
func cold(b *testing.B, c cluster) {
	var last *calc.Graph
	var held uint64
	for b.Loop() {
		b.StopTimer()
		last = nil
		before := heap()
		us := c.all()
		b.StartTimer()
		g := calc.New(localNode)
		for len(us) > 0 {
			n := min(1000, len(us))
			g.Update(us[:n])
			us = us[n:]
		}
		g.SetInSync()
		batch := g.Flush()
		b.StopTimer()
		if len(batch.Endpoints) != c.locals || len(batch.IPSets) == 0 {
			b.Fatalf("%d endpoints and %d sets", len(batch.Endpoints), len(batch.IPSets))
		}
		batch, us = intent.Batch{}, nil
		held, last = heap()-before, g
		b.StartTimer()
	}
	runtime.KeepAlive(last)
	b.ReportMetric(float64(held)/(1<<20), "heap-MB")
}

// A cold start of GOALS.md's calc graph mark.
func BenchmarkCold250k(b *testing.B) {
	cold(b, cluster{locals: 200, remotes: 250_000 - 200, policies: 10_000, sets: 100, netsPerSet: 100, apps: 50})
}

// As above, with as many different selectors as policies.
func BenchmarkCold250kManyApps(b *testing.B) {
	cold(b, cluster{locals: 200, remotes: 250_000 - 200, policies: 10_000, sets: 100, netsPerSet: 100, apps: 10_000})
}

// A cold start where each of 10,000 policies applies here and has a network set of its own.
func Benchmark10kNetworkSets(b *testing.B) {
	cold(b, cluster{locals: 200, remotes: 10_000 - 200, policies: 10_000, sets: 10_000, netsPerSet: 1, apps: 50, ownSets: true})
}

// large is GOALS.md's dataset L.
var large = cluster{locals: 100, remotes: 100_000, policies: 2_000, sets: 100, netsPerSet: 100, apps: 50}

// running is a graph that holds L and has told all of it.
func running() *calc.Graph {
	g := calc.New(localNode)
	g.Update(large.all())
	g.SetInSync()
	g.Flush()
	return g
}

// event measures one change to L until its batch is there.
func event(b *testing.B, changes ...api.Update) {
	g := running()
	for i := 0; b.Loop(); i++ {
		g.Update(changes[i%len(changes) : i%len(changes)+1])
		if g.Flush().Empty() {
			b.Fatal("the event changes nothing")
		}
	}
}

func gone(u api.Update) api.Update { return api.Update{Key: u.Key} }

// A remote endpoint takes another address.
func BenchmarkRemoteEndpointEvent(b *testing.B) {
	event(b, large.remote(7, 80), large.remote(7, 66))
}

// A remote endpoint comes and goes.
func BenchmarkRemoteEndpointComesAndGoes(b *testing.B) {
	event(b, gone(large.remote(7, 66)), large.remote(7, 66))
}

// A rule of a policy that applies here changes.
func BenchmarkPolicyChange(b *testing.B) { event(b, large.policy(7, 9000), large.policy(7, 8007)) }

// A policy that applies here comes and goes.
func BenchmarkPolicyComesAndGoes(b *testing.B) {
	event(b, gone(large.policy(7, 8007)), large.policy(7, 8007))
}

// An endpoint of this node comes and goes.
func BenchmarkLocalEndpoint(b *testing.B) { event(b, large.local(100), gone(large.local(100))) }
