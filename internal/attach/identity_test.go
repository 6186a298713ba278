package attach

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
)

// What cannot be kept apart: the same container's other interface, and another network's.
func other(r wire.Request, ifname, network string) wire.Request {
	r.Ifname, r.Network, r.MAC = ifname, network, "02:00:00:00:00:09"
	return r
}

func TestARefusedSecondInterfaceLeavesTheFirst(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second wire.Request
	}{
		{"another interface of a container", request("c1"), other(request("c1"), "net1", "net")},
		{"another interface of a container, in another network", request("c1"), other(request("c1"), "net1", "two")},
		{"the same interface of a container, in another network", request("c1"), other(request("c1"), "eth0", "two")},
		{"another interface of a pod", ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "net")},
		{"another interface of a pod, in another network", ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "two")},
		{"the same interface of a pod, in another network", ofPod("c1", "web"), other(ofPod("c1", "web"), "eth0", "two")},
		{"another interface, whose addresses another plugin assigned", request("c1"), func() wire.Request {
			r := other(request("c1"), "net1", "net")
			r.Addrs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
			return r
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.must(second(b.Attach(t.Context(), tt.first)))
			want := b.left()
			received := len(b.kernel.received)
			same := func(when string) {
				t.Helper()
				if left := b.left(); !slices.Equal(left, want) || len(b.kernel.received) != received {
					t.Errorf("%s: %v, want %v; calc has %d keys, want %d", when, left, want, len(b.kernel.received), received)
				}
			}
			_, err := b.Attach(t.Context(), tt.second)
			var refusal *wire.Refusal
			if !errors.As(err, &refusal) || refusal.Later || !strings.Contains(refusal.Reason, "has the interface eth0 of network net already") {
				t.Errorf("the second: %v", err)
			}
			same("after the second was refused")
			b.must(second(b.Detach(t.Context(), tt.second.Ref))) // as runtimes do after an ADD that failed
			same("after the second was detached")
			b.must(second(b.Detach(t.Context(), tt.first.Ref)))
			if left := b.left(); len(left) > 0 {
				t.Errorf("after the first was detached: %v", left)
			}
		})
	}
}

// A fault at any step of a second, refused ADD, and of the DEL after it, harms the first no more than success does.
func TestAFaultWhileASecondInterfaceIsRefusedLeavesTheFirst(t *testing.T) {
	for step := range 12 {
		b := newBed(t)
		b.must(second(b.Attach(t.Context(), request("c1"))))
		want := b.left()
		for _, do := range []func(){
			func() { _, _ = b.Attach(t.Context(), other(request("c1"), "net1", "net")) },
			func() { _, _ = b.Detach(t.Context(), other(request("c1"), "net1", "net").Ref) },
		} {
			b.store.left = step
			do()
			b.store.left = -1
			if left := b.left(); !slices.Equal(left, want) {
				t.Errorf("step %d: left %v, want %v", step, left, want)
			}
		}
	}
}

func (b *bed) note(name string, r wire.Ref) {
	b.Helper()
	text, err := json.Marshal(r)
	b.must(err)
	b.must(os.WriteFile(filepath.Join(b.cfg.Notes, name), text, 0o600))
}

func TestANoteOfAnEarlierAttachmentDoesNotDetachALaterOne(t *testing.T) {
	for name, r := range map[string]wire.Request{"a container": request("c1"), "a pod": ofPod("c1", "web")} {
		b := newBed(t)
		b.must(second(b.Attach(t.Context(), r)))
		b.note("c1.eth0.json", r.Ref) // DEL, while no agent ran
		b.note("c2.eth0.json", request("c2").Ref)
		b.must(second(b.Attach(t.Context(), r)))
		want := b.left()
		if len(want) != 3 {
			t.Errorf("%s: the addresses of the earlier attachment stay: %v", name, want)
		}
		b.must(b.processNotes(t.Context()))
		if left := b.left(); !slices.Equal(left, want) {
			t.Errorf("%s: left %v, want %v", name, left, want)
		}
		if names, _ := filepath.Glob(filepath.Join(b.cfg.Notes, "*")); len(names) > 0 {
			t.Errorf("%s: notes stay: %v", name, names)
		}
	}
}

func TestANoteThatIsBeingWorkedOffWhileAContainerIsAttachedIsReadOnce(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("c1"))))
	b.note("c1.eth0.json", request("c1").Ref)
	done, err := b.lock(t.Context(), request("c1").Ref) // Attach has the container
	b.must(err)
	worked := make(chan error)
	go func() { worked <- b.processNotes(t.Context()) }()
	b.must(b.processNoteOf(t.Context(), request("c1").Ref))
	done()
	b.must(second(b.Attach(t.Context(), request("c1"))))
	want := b.left()
	b.must(<-worked)
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

func TestAddressesWithoutEndpointsAreKeptApartByInterface(t *testing.T) {
	b := newBed(t)
	first, again := request("c1"), other(request("c1"), "net1", "net")
	out, err := b.Assign(t.Context(), first)
	b.must(err)
	want := b.left()
	var refusal *wire.Refusal
	if _, err := b.Assign(t.Context(), again); !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "has addresses of network net for its interface eth0 already") {
		t.Errorf("a second interface: %v", err)
	}
	b.must(second(b.Release(t.Context(), again.Ref)))
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("after the second was released: %v, want %v", left, want)
	}
	for _, tt := range []struct {
		name    string
		request wire.Request
		addrs   []netip.Addr
		want    string // of the error; empty: none
	}{
		{"as they are", first, out.Addrs, ""},
		{"one of them", first, out.Addrs[:1], ""},
		{"one that is not its", first, []netip.Addr{netip.MustParseAddr("10.65.0.200")}, "10.65.0.200 is not assigned to the interface eth0 of container c1 in network net"},
		{"the other interface's", again, out.Addrs, "is not assigned to the interface net1"},
		{"another container's", request("c2"), out.Addrs, "is not assigned to the interface eth0 of container c2"},
		{"none", first, nil, "no address was given"},
	} {
		r := tt.request
		r.Addrs = tt.addrs
		if _, err := b.Assigned(t.Context(), r); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("CHECK of %s: %v, want %q", tt.name, err, tt.want)
		}
	}
	b.must(second(b.Release(t.Context(), first.Ref)))
	if left := b.left(); len(left) > 0 {
		t.Errorf("after the first was released: %v", left)
	}
}

// Older versions did not keep with an address for which interface it is.
func TestAddressesOfOlderVersionsAreReleased(t *testing.T) {
	b := newBed(t)
	b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{Handle: "net.c1", Want: wire.IPAM{V4: true}, About: map[string]string{"node": "h1"}})))
	b.must(second(b.Release(t.Context(), request("c1").Ref)))
	if left := b.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAddressesOfOlderVersionsStayWithTheirEndpoint(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("c1"))))
	b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{Handle: "net.c1", Want: wire.IPAM{V4: true}, About: map[string]string{"node": "h1"}})))
	want := b.left()
	b.must(second(b.Detach(t.Context(), other(request("c1"), "net1", "net").Ref)))
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("detaching another interface of the container took its addresses: %v, want %v", left, want)
	}
}

func TestAnAttachmentThatFailsTakesBackOnlyWhatItMade(t *testing.T) {
	b := newBed(t)
	b.must(second(b.cfg.Addresses.Assign(t.Context(), AddressRequest{Handle: "net.c1", Want: wire.IPAM{V4: true}, About: map[string]string{"node": "h1", "interface": "eth0"}})))
	want := b.left()
	b.kernel.inForce = errFault
	if _, err := b.Attach(t.Context(), request("c1")); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

func TestAnAddressNamesItsOwner(t *testing.T) {
	b := newBed(t)
	pod := ofPod("c1", "web")
	b.must(second(b.Attach(t.Context(), pod)))
	leases, err := b.cfg.Addresses.Leases(t.Context(), handle(pod.Ref))
	if err != nil || len(leases) != 2 {
		t.Fatalf("%+v, %v", leases, err)
	}
	for _, l := range leases {
		if _, err := time.Parse(time.RFC3339, l.Owner[api.AttributeTimestamp]); err != nil {
			t.Errorf("since when: %v", err)
		}
		for name, want := range map[string]string{api.AttributeNode: "h1", api.AttributeNamespace: "prod", api.AttributePod: "web"} {
			if got := l.Owner[name]; got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}
