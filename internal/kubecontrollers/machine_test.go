package kubecontrollers

import (
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/ipam"
)

// TestAVirtualMachineHasItsAddressesForAsLongAsItIsThere: not its pod, nor its node, and not while Kubernetes does not say that it has gone.
func TestAVirtualMachineHasItsAddressesForAsLongAsItIsThere(t *testing.T) {
	run(t, false, func(b *bench) {
		of := func(node, name string) string {
			attrs := attributes(node, "virt-launcher-"+name)
			attrs[api.AttributeInstance] = name
			return b.assignTo("n1", ipam.Machine{Namespace: "prod", Name: name}.Handle("net"), attrs)
		}
		b.set(func() {
			b.machines["prod/stopped"], b.machines["prod/elsewhere"], b.machines["prod/going"] = true, true, true
		})
		stopped, elsewhere, going := of("n1", "stopped"), of("n9", "elsewhere"), of("n1", "going") // Kubernetes has no node n9
		gone, goneElsewhere := of("n1", "gone"), of("n9", "gone-elsewhere")
		b.endpoint("n2", "virt-launcher-runs", of("n2", "runs")) // an endpoint is enough
		runs := b.inUse()[5]
		unnamed := b.assignTo("n1", "net.vmi._Zm9v", nil) // as upstream's plugin leaves one of a long name
		b.set(func() { b.podErr = errAway })
		b.after(24 * time.Hour)
		b.wantInUse("Kubernetes does not answer", stopped, elsewhere, going, gone, goneElsewhere, runs, unnamed)
		b.set(func() { b.podErr = nil })
		b.after(20 * time.Minute)
		b.wantInUse("within the grace period", stopped, elsewhere, going, gone, goneElsewhere, runs, unnamed)
		b.after(20 * time.Minute)
		b.wantInUse("after it", stopped, elsewhere, going, runs, unnamed)
		b.set(func() { delete(b.machines, "prod/going") })
		b.after(10 * time.Minute)
		b.set(func() { b.machines["prod/going"] = true }) // made again
		b.after(10 * time.Minute)
		b.set(func() { delete(b.machines, "prod/going") })
		b.after(14 * time.Minute)
		b.wantInUse("it was there meanwhile", stopped, elsewhere, going, runs, unnamed)
		b.after(20 * time.Minute)
		b.wantInUse("it has gone", stopped, elsewhere, runs, unnamed)
	})
}

// TestAStoppedMachineInANetworkOfAnOddName has its address, of which its handle alone says whose it is, as long as any machine that may be meant is there.
func TestAStoppedMachineInANetworkOfAnOddName(t *testing.T) {
	run(t, false, func(b *bench) {
		of := func(network, name string) string {
			return b.assignTo("n1", ipam.Machine{Namespace: "prod", Name: name}.Handle(network), nil)
		}
		b.set(func() { b.machines["prod/stopped"], b.machines["prod/a.vmi.odd.name"] = true, true })
		stopped, odd := of("net.vmi.b", "stopped"), of("net", "a.vmi.odd.name")
		of("net.vmi.b", "gone")
		b.after(24 * time.Hour)
		b.wantInUse("a day later", stopped, odd)
	})
}

// TestANodeGoesWithoutTheAddressesOfVirtualMachinesThatItHad.
func TestANodeGoesWithoutTheAddressesOfVirtualMachinesThatItHad(t *testing.T) {
	run(t, false, func(b *bench) {
		attrs := attributes("n1", "virt-launcher-vm")
		attrs[api.AttributeInstance] = "vm"
		b.set(func() { b.machines["prod/vm"] = true })
		addr := b.assignTo("n1", "net.vmi.prod.vm", attrs)
		b.assign("n1", "web", ipam.NoteContainer)
		b.remove(b.store, "nodes/n1")
		b.after(24 * time.Hour)
		b.wantInUse("a day after its node has gone", addr)
		v, err := b.addresses.ReadSurvey(b.Context())
		if err != nil || len(v.BlocksOfNode("n1")) > 0 {
			t.Errorf("n1 has the blocks %v still; error %v", v.BlocksOfNode("n1"), err)
		}
	})
}
