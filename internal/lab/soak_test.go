package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/seedtest"
)

// soakChanges is what CI has time for; SOAK_CHANGES=24000 is an hour's worth of a busy cluster.
const soakChanges = 4000

// TestSoak changes objects of all kinds, many times, and holds an agent to it
// that it keeps nothing: no memory, no goroutine, nothing in the kernel.
func TestSoak(t *testing.T) {
	changes := soakChanges
	if text := os.Getenv("SOAK_CHANGES"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		changes = n
	}
	g := newGround(t)
	rng := seedtest.Rand(t)
	pid := g.agentPID(g.Spec.Hosts[0])
	began := time.Now()
	soak := func(n int) {
		for range n {
			key, value := soakChange(rng)
			if value == "" {
				_ = g.store.Delete(t.Context(), key, api.Revision{}) // it may not be there
				continue
			}
			must(t, datastore.Put(t.Context(), g.store, api.Update{Key: key, Value: []byte(value)}))
		}
		g.beat(t)
	}
	soak(changes / 4)
	goroutines, heap := g.metric(t, "go_goroutines"), g.liveHeap(t)
	soak(changes - changes/4)
	t.Logf("%d changes in %s: goroutines %d → %d, live heap %d → %d KB, RSS %d MB", changes, time.Since(began).Round(time.Second),
		goroutines, g.metric(t, "go_goroutines"), heap>>10, g.liveHeap(t)>>10, g.metric(t, "process_resident_memory_bytes")>>20)
	await(t, fmt.Sprintf("there are no more than 5 goroutines above the %d of after a quarter of the changes", goroutines), func() bool { return g.metric(t, "go_goroutines") <= goroutines+5 })
	// A kilobyte kept of each change would show.
	// What a collection finds in the midst of a change goes with the next.
	most := heap + 1<<20 + changes*3/4*512
	await(t, fmt.Sprintf("the live heap is below %d bytes; after a quarter of the changes it had %d", most, heap), func() bool { return g.liveHeap(t) <= most })
	if now := g.agentPID(g.Spec.Hosts[0]); now != pid {
		t.Errorf("the agent is %d, was %d", now, pid)
	}
	g.verified(t)
}

// liveHeap is what the last collection of garbage left: the next comes when the heap has grown by goGCThreshold, 40 per cent.
func (g *ground) liveHeap(t *testing.T) int {
	return g.metric(t, "go_memstats_next_gc_bytes") * 100 / 140
}

// soakChange is a random key and its new value; none: it is deleted.
func soakChange(rng *rand.Rand) (key, value string) {
	n := rng.IntN(20)
	kind := rng.IntN(5)
	text := func(kind, meta, spec string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{%s},"spec":%s}`, kind, meta, spec)
	}
	app := fmt.Sprintf("x%d", rng.IntN(10))
	switch kind {
	case 0:
		name := fmt.Sprintf("default.soak%d", n)
		key = api.ResourcesPrefix + "networkpolicies/demo/" + name
		value = text(api.KindNetworkPolicy, fmt.Sprintf(`"name":%q,"namespace":"demo"`, name),
			fmt.Sprintf(`{"tier":"default","order":%d,"selector":"app == 'b'","ingress":[{"action":"Deny","protocol":"TCP","source":{"selector":"app == '%s'"},"destination":{"ports":[%d]}}]}`, 1000+rng.IntN(100), app, 9000+rng.IntN(100)))
	case 1:
		name := fmt.Sprintf("far-k8s-pod%d-eth0", n)
		key = api.ResourcesPrefix + "workloadendpoints/demo/" + name
		value = text(api.KindWorkloadEndpoint, fmt.Sprintf(`"name":%q,"namespace":"demo","labels":{"app":%q}`, name, app),
			fmt.Sprintf(`{"orchestrator":"k8s","node":"far","pod":"pod%d","endpoint":"eth0","interfaceName":"cali%d","ipNetworks":["10.99.%d.%d/32"]}`, n, n, rng.IntN(3), rng.IntN(250)))
	case 2:
		key = api.ResourcesPrefix + fmt.Sprintf("globalnetworksets/soak%d", n)
		value = text(api.KindGlobalNetworkSet, fmt.Sprintf(`"name":"soak%d","labels":{"app":%q}`, n, app), fmt.Sprintf(`{"nets":["198.51.100.0/%d","2001:db8:%d::/48"]}`, 24+rng.IntN(8), rng.IntN(100)))
	case 3:
		key = api.ResourcesPrefix + fmt.Sprintf("tiers/soak%d", n)
		value = text(api.KindTier, fmt.Sprintf(`"name":"soak%d"`, n), fmt.Sprintf(`{"order":%d}`, rng.IntN(1000)))
	default:
		key = api.ResourcesPrefix + fmt.Sprintf("profiles/soak%d", n)
		value = text(api.KindProfile, fmt.Sprintf(`"name":"soak%d"`, n), `{"ingress":[{"action":"Allow"}]}`)
	}
	if rng.IntN(4) == 0 {
		value = ""
	}
	return key, value
}
