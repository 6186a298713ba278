package kubecontrollers

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/ipam"
)

// TestALeakIsFreedAfterTheGracePeriod, and what somebody has, or may have, never is.
func TestALeakIsFreedAfterTheGracePeriod(t *testing.T) {
	run(t, false, func(b *bench) {
		b.endpoint("n1", "used", b.assign("n1", "used", ipam.NoteContainer))
		b.assign("n1", "leaked", ipam.NoteContainer) // .1: nobody has it
		b.assign("n1", "gone", "")                   // .2: of another plugin; Kubernetes has no such pod
		b.assign("n1", "there", "")                  // .3: of another plugin; Kubernetes has it
		b.set(func() { b.pods["prod/there"] = true })
		all := []string{"10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"}
		b.after(14 * time.Minute)
		b.wantInUse("within the grace period", all...)
		const candidates = `
# HELP ipam_allocations_gc_candidates Addresses that nobody seems to have, until the grace period is over.
# TYPE ipam_allocations_gc_candidates gauge
ipam_allocations_gc_candidates{ippool="p",node="n1"} 2
ipam_allocations_gc_candidates{ippool="p",node="n2"} 0
`
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(candidates), "ipam_allocations_gc_candidates"); err != nil {
			b.Error(err)
		}
		b.after(7 * time.Minute)
		b.wantInUse("after it", "10.0.0.0", "10.0.0.3")
		b.after(24 * time.Hour)
		b.wantInUse("a day later", "10.0.0.0", "10.0.0.3")
		const counts = `
# HELP ipam_allocations_gc_reclamations Leaked addresses that were freed.
# TYPE ipam_allocations_gc_reclamations counter
ipam_allocations_gc_reclamations{ippool="p",node="n1"} 2
# HELP ipam_allocations_in_use Addresses in use, by the pool and the node for which they were allocated.
# TYPE ipam_allocations_in_use gauge
ipam_allocations_in_use{ippool="p",node="n1"} 2
ipam_allocations_in_use{ippool="p",node="n2"} 0
# HELP ipam_ippool_size Addresses of a pool.
# TYPE ipam_ippool_size gauge
ipam_ippool_size{ippool="p"} 256
`
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(counts), "ipam_allocations_gc_reclamations", "ipam_allocations_in_use", "ipam_ippool_size"); err != nil {
			b.Error(err)
		}
		if !strings.Contains(b.log.String(), "which Kubernetes does not have") {
			b.Error("the log does not say why")
		}
	})
}

// TestALeakOfUnknownAgeIsFreed: tunnels' addresses have no time of their assignment, nor has what old plugins assigned. How long they are nobody's the
// controller sees for itself.
func TestALeakOfUnknownAgeIsFreed(t *testing.T) {
	run(t, false, func(b *bench) {
		old := attributes("n1", "gone")
		delete(old, api.AttributeTimestamp)
		b.assignTo("n1", "h-gone", old)
		tunnel := map[string]string{api.AttributeNode: "n1", api.AttributeType: "vxlanTunnelAddress"} // which it has no more
		b.assignTo("n1", "vxlan-tunnel-addr-n1", tunnel)
		b.after(14 * time.Minute)
		b.wantInUse("within the grace period", "10.0.0.0", "10.0.0.1")
		b.after(7 * time.Minute)
		b.wantInUse("after it")
	})
}

// TestACandidateMustStayOne: who has the address again, at one look, begins its grace period again; and so does another allocation of it.
func TestACandidateMustStayOne(t *testing.T) {
	run(t, false, func(b *bench) {
		addr := b.assign("n1", "web", ipam.NoteContainer)
		for range 5 {
			b.after(12 * time.Minute)
			b.endpoint("n1", "web", addr)
			b.after(6 * time.Minute) // a look
			b.wantInUse("it is an endpoint's", addr)
			b.remove(b.store, "workloadendpoints/prod/n1-k8s-web-eth0")
		}
		b.after(12 * time.Minute)
		b.wantInUse("it was an endpoint's", addr)
		b.after(10 * time.Minute)
		b.wantInUse("it is nobody's for long")
	})
}

func TestABusyBlockKeepsNoLeak(t *testing.T) {
	run(t, false, func(b *bench) {
		b.assign("n1", "leaked", ipam.NoteContainer)
		for i := range 30 { // others come and go in its block all the time
			pod := fmt.Sprint("pod", i)
			addr := b.assign("n1", pod, ipam.NoteContainer)
			b.endpoint("n1", pod, addr)
			b.after(time.Minute)
			b.remove(b.store, "workloadendpoints/prod/n1-k8s-"+pod+"-eth0")
			if _, err := b.addresses.ReleaseByHandle(b.Context(), "h-"+pod); err != nil {
				b.Fatal(err)
			}
		}
		b.wantInUse("after the grace period")
	})
}

func TestNothingIsFreedWhile(t *testing.T) {
	for name, off := range map[string]func(*bench){
		"Kubernetes does not answer": func(b *bench) { b.podErr = errAway },
		"the grace period is zero":   func(b *bench) { b.settings.Node.Grace = 0 },
		"the controller is off":      func(b *bench) { b.settings.Node = nil },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, false, func(b *bench) {
				on := b.settings
				node := *on.Node
				on.Node = &node
				b.set(func() { off(b) })
				addr := b.assign("n1", "gone", "")
				b.after(24 * time.Hour)
				b.wantInUse("so far", addr)
				b.set(func() { b.settings, b.podErr = on, nil })
				b.collector.again()
				b.after(14 * time.Minute)
				b.wantInUse("within the grace period", addr)
				b.after(7 * time.Minute)
				b.wantInUse("after it")
			})
		})
	}
}

// TestASpareBlockIsGivenUp: of three empty blocks two go after the grace period, and the last stays; one that is used meanwhile begins again.
func TestASpareBlockIsGivenUp(t *testing.T) {
	run(t, false, func(b *bench) {
		for i := range 9 { // blocks have four
			b.assign("n1", fmt.Sprint("pod", i), ipam.NoteContainer)
		}
		for i := range 9 {
			if _, err := b.addresses.ReleaseByHandle(b.Context(), fmt.Sprint("h-pod", i)); err != nil {
				b.Fatal(err)
			}
		}
		blocks := func() int {
			v, err := b.addresses.ReadSurvey(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			return len(v.BlocksOfNode("n1"))
		}
		b.after(14 * time.Minute)
		if n := blocks(); n != 3 {
			b.Errorf("within the grace period there are %d blocks, want 3", n)
		}
		b.after(7 * time.Minute)
		if n := blocks(); n != 1 {
			b.Errorf("after it there are %d blocks, want 1", n)
		}
		b.after(24 * time.Hour)
		if n := blocks(); n != 1 {
			b.Errorf("a day later there are %d blocks, want 1", n)
		}
	})
}

// TestWhatHasNoPoolOrNodeIsCountedUnderUpstreamsNames, which queries and dashboards ask for.
func TestWhatHasNoPoolOrNodeIsCountedUnderUpstreamsNames(t *testing.T) {
	run(t, true, func(b *bench) {
		b.assign("n1", "web", "")
		if _, err := b.addresses.AssignIP(b.Context(), ipam.IPArgs{Addr: netip.MustParseAddr("10.0.0.200"), Node: "n2", Handle: "h"}); err != nil {
			b.Fatal(err)
		}
		if err := b.addresses.ReleaseHostAffinities(b.Context(), "n2", false); err != nil {
			b.Fatal(err)
		}
		b.putIn(b.kube, api.ResourcesPrefix+"nodes/kube1", `{}`)
		b.remove(b.store, "ippools/p")
		b.collector.again()
		b.after(time.Second)
		const want = `
# HELP ipam_allocations_in_use Addresses in use, by the pool and the node for which they were allocated.
# TYPE ipam_allocations_in_use gauge
ipam_allocations_in_use{ippool="no_ippool",node="n1"} 1
ipam_allocations_in_use{ippool="no_ippool",node="unknown_node"} 1
# HELP ipam_blocks Blocks of a pool, by the node that has them.
# TYPE ipam_blocks gauge
ipam_blocks{ippool="no_ippool",node="n1"} 1
ipam_blocks{ippool="no_ippool",node="no_affinity"} 1
# HELP ipam_blocks_per_node Blocks.
# TYPE ipam_blocks_per_node gauge
ipam_blocks_per_node{node="n1"} 1
ipam_blocks_per_node{node="no_affinity"} 1
`
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(want), "ipam_allocations_in_use", "ipam_blocks", "ipam_blocks_per_node"); err != nil {
			b.Error(err)
		}
	})
}

// TestTheOtherFamilysAddressOfAPodStays: Kubernetes has the pod, and its status shows one family alone. Once the pod is gone it is freed.
func TestTheOtherFamilysAddressOfAPodStays(t *testing.T) {
	run(t, false, func(b *bench) {
		b.put("ippools/p6", `{"spec":{"cidr":"fd65::/120","blockSize":122}}`)
		b.set(func() { b.pods["prod/web"] = true })
		attrs := attributes("n1", "web")
		attrs[api.AttributeNote] = ipam.NoteContainer
		got, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: "n1", Handle: "h-web", Num4: 1, Num6: 1, Attributes: attrs})
		if err != nil || len(got) != 2 {
			b.Fatal(got, err)
		}
		four, six := got[0].Addr.String(), got[1].Addr.String()
		b.endpoint("n1", "web", four)
		b.after(time.Hour)
		b.wantInUse("the pod is there", four, six)
		b.set(func() { delete(b.pods, "prod/web") })
		b.remove(b.store, "workloadendpoints/prod/n1-k8s-web-eth0")
		b.after(time.Hour)
		b.wantInUse("the pod is gone")
	})
}

// TestAnAddressOfAContainerThatWasReplacedIsFreed: a pod has another container than the one for which upstream's plugin allocated the
// address. Another address of the container that it has, as of a second interface, stays.
func TestAnAddressOfAContainerThatWasReplacedIsFreed(t *testing.T) {
	run(t, false, func(b *bench) {
		before, now := strings.Repeat("a", 64), strings.Repeat("b", 64)
		b.set(func() { b.pods["prod/web"], b.pods["prod/api"] = true, true })
		b.assignTo("n1", "k8s-pod-network."+before, attributes("n1", "web"))
		addr := b.assignTo("n1", "k8s-pod-network."+now, attributes("n1", "web"))
		second := b.assignTo("n1", "net2."+now, attributes("n1", "web"))
		unknown := b.assignTo("n1", "k8s-pod-network.c", attributes("n1", "web"))
		of := attributes("n1", "web") // of the second interface, as ours records it
		of["network"], of["interface"] = "net2", "net1"
		b.assignTo("n1", "net2."+before+".net1", of)
		ours := b.assignTo("n1", "net2."+now+".net1", of)
		b.put("workloadendpoints/prod/n1-k8s-web-eth0", `{"spec":{"orchestrator":"k8s","node":"n1","pod":"web","endpoint":"eth0","interfaceName":"cali1","containerID":"`+now+`","ipNetworks":["`+addr+`/32"]}}`)
		b.after(time.Hour)
		b.wantInUse("after the grace period", addr, second, unknown, ours)
	})
}

// TestAnAddressThatItsPodHasNotIsFreed: the pod was made anew under its name, in its host's network or with another address. That of a pod whose status
// does not say yet what it has stays, and so does what is of the same sandbox as an address that it has: of the other family, or of a second interface.
func TestAnAddressThatItsPodHasNotIsFreed(t *testing.T) {
	run(t, false, func(b *bench) {
		b.assign("n1", "host", "")
		b.assign("n1", "anew", "")
		young := b.assign("n1", "young", "")
		has := b.assign("n1", "has", "")
		both := []string{b.assign("n1", "both", ""), b.assign("n1", "both", "")}
		sandbox := strings.Repeat("a", 64)
		first, second := b.assignTo("n1", "k8s-pod-network."+sandbox, attributes("n1", "two")), b.assignTo("n1", "net2."+sandbox, attributes("n1", "two"))
		b.set(func() {
			for _, pod := range []string{"host", "anew", "young", "has", "both", "two"} {
				b.pods["prod/"+pod] = true
			}
			b.says["prod/host"] = apiserver.Pod{HostNetwork: true}
			b.says["prod/anew"] = apiserver.Pod{Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}
			b.says["prod/has"] = apiserver.Pod{Addrs: []netip.Addr{netip.MustParseAddr(has)}}
			b.says["prod/both"] = apiserver.Pod{Addrs: []netip.Addr{netip.MustParseAddr(both[0])}}
		})
		b.set(func() { b.says["prod/two"] = apiserver.Pod{Addrs: []netip.Addr{netip.MustParseAddr(first)}} })
		b.after(time.Hour)
		b.wantInUse("after the grace period", young, has, both[0], both[1], first, second)
		for _, why := range []string{"prod/host, which is in its host's network", "prod/anew, which has [10.9.0.1]"} {
			if !strings.Contains(b.log.String(), why) {
				b.Errorf("the log does not say %q", why)
			}
		}
	})
}
