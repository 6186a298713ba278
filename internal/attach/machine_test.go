package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// hosting is a store whose pods run virtual machine "vm", as they say, and which has the instance that it has.
type hosting struct {
	deriving
	has  string // the UID of the instance that there is; empty: none
	pods *datastore.Instance
	gone bool   // the pod is not there
	node string // on which the machine runs
}

func (h hosting) Annotations(ctx context.Context, namespace, pod string) (datastore.Annotations, error) {
	if h.gone {
		return datastore.Annotations{}, datastore.ErrNotFound
	}
	out, err := h.deriving.Annotations(ctx, namespace, pod)
	out.Instance = h.pods
	return out, err
}

func (h hosting) Instance(ctx context.Context, namespace, name string) (datastore.Running, error) {
	if _, err := h.Get(ctx, api.ResourcesPrefix+"profiles/kns."+namespace); err != nil && !errors.Is(err, datastore.ErrNotFound) { // a call that may fail
		return datastore.Running{}, err
	}
	if h.has == "" || namespace != "prod" || name != "vm" {
		return datastore.Running{}, datastore.ErrNotFound
	}
	return datastore.Running{UID: h.has, Machine: "machine-uid", Node: h.node}, nil
}

// host is a server of a node on a store whose pods run a machine.
func (b *bed) host(node string, change ...func(*hosting)) *Server {
	h := hosting{deriving: deriving{Store: b.store, has: &datastore.Annotations{}}, has: "uid", pods: &datastore.Instance{Name: "vm", UID: "uid"}}
	for _, c := range change {
		c(&h)
	}
	return New(Config{Node: node, Store: h, Addresses: NewAddresses(h, node), Kernel: b.kernel, Notes: b.TempDir(), Log: b.cfg.Log, Know: b.cfg.Know})
}

func launched(container, pod string) wire.Request { return ofPod(container, "virt-launcher-"+pod) }

// owners are the machine's addresses with who has them.
func (b *bed) owners() (out []string) {
	b.Helper()
	all, err := ipam.New(b.store.InMemory, ipam.Config{}).Leases(b.Context(), "net.vmi.prod.vm")
	b.must(err)
	for _, l := range all {
		o := l.Owner
		out = append(out, fmt.Sprintf("%s: %s/%s %s %s on %q, pod %q", l.Addr, o["namespace"], o["vmi-name"], o["vmi-uid"], o["vm-uid"], o["node"], o["pod"]))
	}
	return out
}

func (b *bed) wantOwners(when string, pod, node string, addrs ...netip.Addr) {
	b.Helper()
	var want []string
	for _, a := range addrs {
		want = append(want, fmt.Sprintf("%s: prod/vm uid machine-uid on %q, pod %q", a, node, pod))
	}
	if got := b.owners(); !slices.Equal(got, want) {
		b.Errorf("%s: %q, want %q", when, got, want)
	}
}

func TestAVirtualMachineKeepsItsAddresses(t *testing.T) {
	b := newBed(t)
	one, two := b.host("h1"), b.host("h2")
	first, err := one.Attach(t.Context(), launched("c1", "a"))
	b.must(err)
	if len(first.Addrs) != 2 {
		t.Fatalf("it has %v", first.Addrs)
	}
	b.wantOwners("attached", "virt-launcher-a", "h1", first.Addrs...)
	// A new sandbox of the same pod, and a late DEL of the one before.
	again, err := one.Attach(t.Context(), launched("c2", "a"))
	b.must(err)
	if !slices.Equal(again.Addrs, first.Addrs) {
		t.Errorf("its next sandbox has %v", again.Addrs)
	}
	b.must(second(one.Detach(t.Context(), launched("c1", "a").Ref)))
	b.wantOwners("the sandbox before is detached", "virt-launcher-a", "h1", first.Addrs...)
	// What a runtime does after an ADD of another interface was refused.
	b.must(second(one.Detach(t.Context(), other(launched("c2", "a"), "net1", "net").Ref)))
	b.wantOwners("another interface is detached", "virt-launcher-a", "h1", first.Addrs...)
	// While its pod has them, no other has.
	var refused *wire.Refusal
	if _, err := two.Attach(t.Context(), launched("c3", "b")); !errors.As(err, &refused) || !refused.Later || !strings.Contains(err.Error(), "is still that of its pod virt-launcher-a on node h1") {
		t.Errorf("two pods at once: %v", err)
	}
	b.wantOwners("another was refused", "virt-launcher-a", "h1", first.Addrs...)
	for range 2 {
		b.must(second(one.Detach(t.Context(), launched("c2", "a").Ref)))
		b.wantOwners("detached", "", "", first.Addrs...)
	}
	// Nothing here frees what is the machine's.
	b.must(second(one.Collect(t.Context(), wire.Valid{Network: "net"})))
	for range 3 {
		if freed, err := one.cfg.Addresses.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil || len(freed) > 0 {
			t.Errorf("freed %v, %v", freed, err)
		}
	}
	moved, err := two.Attach(t.Context(), launched("c3", "b"))
	b.must(err)
	if !slices.Equal(moved.Addrs, first.Addrs) {
		t.Errorf("on another node it has %v, had %v", moved.Addrs, first.Addrs)
	}
	b.wantOwners("on another node", "virt-launcher-b", "h2", first.Addrs...)
	// The pod is gone from Kubernetes when it is detached: the note stays, and the next replaces it.
	gone := b.host("h2", func(h *hosting) { h.gone = true })
	b.must(second(gone.Detach(t.Context(), launched("c3", "b").Ref)))
	b.wantOwners("the pod is unknown", "virt-launcher-b", "h2", first.Addrs...)
	b.must(second(one.Attach(t.Context(), launched("c4", "c"))))
	b.wantOwners("back again", "virt-launcher-c", "h1", first.Addrs...)
	// A pod that runs no machine has an address of its own.
	other := b.host("h1", func(h *hosting) { h.pods = nil })
	plain, err := other.Attach(t.Context(), launched("c5", "d"))
	b.must(err)
	if slices.Contains(first.Addrs, plain.Addrs[0]) || !slices.Contains(b.left(), plain.Addrs[0].String()+" of net.c5") {
		t.Errorf("a pod without a machine has %v: %v", plain.Addrs, b.left())
	}
}

// TestWhatAMachineLacksItGets: a family that it had not; and what it has stays its own if a pod does not want it.
func TestWhatAMachineLacksItGets(t *testing.T) {
	b := newBed(t)
	s := b.host("h1")
	attach := func(pod string, want wire.IPAM) []netip.Addr {
		t.Helper()
		r := launched(pod, pod)
		r.IPAM = want
		out, err := s.Attach(t.Context(), r)
		b.must(err)
		b.must(second(s.Detach(t.Context(), r.Ref)))
		return out.Addrs
	}
	four := attach("a", wire.IPAM{V4: true})
	both := attach("b", wire.IPAM{V4: true, V6: true})
	if len(four) != 1 || len(both) != 2 || both[0] != four[0] {
		t.Errorf("%v, then %v", four, both)
	}
	if six := attach("c", wire.IPAM{V6: true}); !slices.Equal(six, both[1:]) {
		t.Errorf("of IPv6: %v", six)
	}
	b.wantOwners("in the end", "", "", both...)
	if asked := attach("d", wire.IPAM{Addrs: four}); !slices.Equal(asked, four) {
		t.Errorf("what it asks for and has: %v", asked)
	}
	r := launched("e", "e")
	r.IPAM = wire.IPAM{Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.99")}}
	if _, err := s.Attach(t.Context(), r); err == nil || !strings.Contains(err.Error(), "its pod asks for 10.65.0.99: `twill ipam release") {
		t.Errorf("another than it has: %v", err)
	}
	b.wantOwners("after that was refused", "", "", both...)
}

func keepNothing(s datastore.Store) {
	_, _ = s.Create(context.Background(), api.Update{Key: api.IPAMConfigKey, Value: []byte(`{"auto_allocate_blocks":true,"kubeVirtVMAddressPersistence":"Disabled"}`)})
}

func TestWhoIsNoMachinesPodGetsNothingOfIt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*hosting)
		says   string // empty: it gets an address of its own
	}{
		{"there is no such instance", func(h *hosting) { h.has = "" }, "and there is none"},
		{"an instance of that name was made anew", func(h *hosting) { h.has = "another" }, "with uid uid, and that one has uid another"},
		{"it is the target of a migration, and machines keep nothing", func(h *hosting) {
			h.pods.Migration = "m"
			keepNothing(h.Store)
		}, "is the target of a live migration of virtual machine prod/vm, and machines keep no addresses"},
		{"machines keep nothing", func(h *hosting) { keepNothing(h.Store) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			first, err := b.host("h1").Attach(t.Context(), launched("c1", "a"))
			b.must(err)
			b.must(second(b.host("h1").Detach(t.Context(), launched("c1", "a").Ref)))
			out, err := b.host("h2", tt.change).Attach(t.Context(), launched("c2", "b"))
			var refused *wire.Refusal
			switch {
			case tt.says == "" && (err != nil || slices.Contains(first.Addrs, out.Addrs[0])):
				t.Errorf("it has %v, %v", out.Addrs, err)
			case tt.says != "" && (!errors.As(err, &refused) || refused.Later || !strings.Contains(refused.Reason, tt.says)):
				t.Errorf("got %v, want %q", err, tt.says)
			}
			b.wantOwners("of the machine", "", "", first.Addrs...)
		})
	}
}

// At whichever call something fails, a pod of a machine has all or nothing, and the machine what it had.
func TestAFaultAtAnyStepLeavesAMachineWhatItHad(t *testing.T) {
	for _, had := range []int{0, 1, 2} {
		for step := 0; ; step++ {
			b := newBed(t)
			s := b.host("h1")
			var before []netip.Addr
			if had > 0 {
				r := launched("c0", "before")
				r.IPAM.V6 = had == 2
				out, err := s.Attach(t.Context(), r)
				b.must(err)
				b.must(second(s.Detach(t.Context(), r.Ref)))
				before = out.Addrs
			}
			b.store.left = step
			out, err := s.Attach(t.Context(), launched("c1", "a"))
			reached := b.store.left < 0
			b.store.left = -1
			endpoints := slices.DeleteFunc(b.left(), func(l string) bool { return !strings.HasPrefix(l, "workloadendpoints") })
			name := fmt.Sprintf("had %d, step %d: %v", had, step, err)
			if err == nil {
				b.wantOwners(name, "virt-launcher-a", "h1", out.Addrs...)
			} else {
				b.wantOwners(name, "", "", before...)
			}
			if (err == nil) != (len(endpoints) == 1) || err != nil && len(b.kernel.received) > 1 {
				t.Errorf("%s: endpoints %v, calc has %v", name, endpoints, b.kernel.received)
			}
			for i, a := range before {
				if err == nil && out.Addrs[i] != a {
					t.Errorf("%s: it has %v, had %v", name, out.Addrs, before)
				}
			}
			if !reached {
				if step < 5 {
					t.Errorf("only %d steps: nothing was injected", step)
				}
				break
			}
		}
	}
}

// A process that is killed at any call leaves the machine its addresses, and the next pod all of them, and none more.
func TestACrashLeavesAMachineWhatItHad(t *testing.T) {
	for step := range 30 {
		b := newBed(t)
		s := b.host("h1")
		first, err := s.Attach(t.Context(), launched("c0", "before"))
		b.must(err)
		b.must(second(s.Detach(t.Context(), launched("c0", "before").Ref)))
		b.store.left, b.store.forever = step, true
		_, _ = s.Attach(t.Context(), launched("c1", "a"))
		b.restart()
		b.must(second(b.host("h1").Detach(t.Context(), launched("c1", "a").Ref)))
		out, err := b.host("h2").Attach(t.Context(), launched("c2", "b"))
		b.must(err)
		if !slices.Equal(out.Addrs, first.Addrs) {
			t.Errorf("step %d: it has %v, had %v", step, out.Addrs, first.Addrs)
		}
		b.wantOwners(fmt.Sprint("step ", step), "virt-launcher-b", "h2", first.Addrs...)
	}
}

// TestPodsOfAMachineThatComeAtOnceShareNoAddress: one of them gets addresses, or none, and the machine has no two of a family.
func TestPodsOfAMachineThatComeAtOnceShareNoAddress(t *testing.T) {
	b := newBed(t)
	results := make(chan error, 6)
	for i := range cap(results) {
		go func() {
			_, err := b.host(fmt.Sprint("h", i)).Attach(t.Context(), launched(fmt.Sprint("c", i), fmt.Sprint(i)))
			results <- err
		}()
	}
	attached := 0
	for range cap(results) {
		var refused *wire.Refusal
		switch err := <-results; {
		case err == nil:
			attached++
		case !errors.As(err, &refused) || !refused.Later:
			t.Error(err)
		}
	}
	if n := len(b.owners()); attached > 1 || n < 2*attached { // what one leaves that was refused is the machine's
		t.Errorf("%d are attached, and the machine has %v", attached, b.owners())
	}
}
