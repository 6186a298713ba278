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
	"github.com/twillnet/twill/internal/datastore"
)

// other is the same container's other interface, or another network's.
func other(r wire.Request, ifname, network string) wire.Request {
	r.Ifname, r.Network, r.MAC, r.Link = ifname, network, "02:00:00:00:00:09", "calisecond"
	return r
}

func (b *bed) attach(r wire.Request) []netip.Addr {
	b.Helper()
	out, err := b.Attach(b.Context(), r)
	b.must(err)
	return out.Addrs
}

// twice are a container's two interfaces.
type twice struct {
	name          string
	first, second wire.Request
}

func interfaces() []twice {
	return []twice{
		{"of a container", request("c1"), other(request("c1"), "net1", "net")},
		{"of a container, in two networks", request("c1"), other(request("c1"), "net1", "two")},
		{"of a pod", ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "net")},
		{"of a pod, in two networks", ofPod("c1", "web"), other(ofPod("c1", "web"), "net1", "two")},
		{"of a pod, none of which is the first", other(ofPod("c1", "web"), "net2", "net"), other(ofPod("c1", "web"), "net1", "net")},
	}
}

func without(all, part []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(part, s) })
}

func TestInterfacesOfAContainerComeAndGoOnTheirOwn(t *testing.T) {
	for _, tt := range interfaces() {
		for name, detach := range map[string]func(*bed, wire.Request) error{
			"DEL": func(b *bed, r wire.Request) error { return second(b.Detach(t.Context(), r.Ref)) },
			"GC": func(b *bed, r wire.Request) error {
				kept := tt.first.Ref
				if r.Ifname == kept.Ifname {
					kept = tt.second.Ref
				}
				return second(b.Collect(t.Context(), wire.Valid{Network: r.Network, Refs: []wire.Ref{kept}}))
			},
			"a note": func(b *bed, r wire.Request) error {
				b.note(r.NoteName()+".json", r.Ref)
				return b.processNotes(t.Context())
			},
		} {
			t.Run(name+" "+tt.name, func(t *testing.T) {
				b := newBed(t)
				one := b.attach(tt.first)
				first := b.left()
				two := b.attach(tt.second)
				both := b.left()
				if len(first) != 3 || len(both) != 6 {
					t.Fatalf("there is %v, and then %v", first, both)
				}
				b.must(second(b.Check(t.Context(), withAddrs(tt.first, one))))
				b.must(second(b.Check(t.Context(), withAddrs(tt.second, two))))
				for range 2 { // the second time there is nothing to do
					b.must(detach(b, tt.second))
					if left := b.left(); !slices.Equal(left, first) || len(b.kernel.endpoints()) != 1 {
						t.Fatalf("without the second: %v, want %v; calc has %v", left, first, b.kernel.endpoints())
					}
				}
				b.must(second(b.Check(t.Context(), withAddrs(tt.first, one))))
				two = b.attach(tt.second)
				want := without(b.left(), first)
				for range 2 {
					b.must(detach(b, tt.first))
					if left := b.left(); !slices.Equal(left, want) || len(b.kernel.endpoints()) != 1 {
						t.Fatalf("without the first: %v, want %v; calc has %v", left, want, b.kernel.endpoints())
					}
				}
				b.must(second(b.Check(t.Context(), withAddrs(tt.second, two))))
				b.must(detach(b, tt.second))
				if left := b.left(); len(left) > 0 || len(b.kernel.endpoints()) > 0 {
					t.Errorf("in the end: %v", left)
				}
			})
		}
	}
}

// endpoints are those that calc has received.
func (k *kernel) endpoints() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.received {
		if strings.HasPrefix(key, api.KeyPrefix(api.KindWorkloadEndpoint, "")) {
			out = append(out, key)
		}
	}
	return out
}

// At whichever call of the store something fails while the second interface comes or goes, all of it is there or nothing, and the first is as it was.
func TestAFaultAtAnyStepOfTheSecondInterfaceLeavesTheFirst(t *testing.T) {
	for _, tt := range interfaces() {
		for step := 0; ; step++ {
			b := newBed(t)
			b.attach(tt.first)
			first, links := b.left(), len(b.kernel.endpoints())
			b.store.left = step
			err := second(b.Attach(t.Context(), tt.second))
			reached := b.store.left < 0
			b.store.left = -1
			whole := b.left()
			gone := without(first, whole)
			switch {
			case len(gone) > 0:
				t.Errorf("%s, step %d: %v, and of the first is gone %v", tt.name, step, err, gone)
			case err == nil && (len(whole) != 6 || len(b.kernel.endpoints()) != links+1):
				t.Errorf("%s, step %d: attached, and there is %v", tt.name, step, whole)
			case err != nil && (len(whole) != 3 || len(b.kernel.endpoints()) != links):
				t.Errorf("%s, step %d: %v, and there is %v, calc has %v", tt.name, step, err, whole, b.kernel.endpoints())
			}
			if err != nil {
				b.attach(tt.second)
			}
			b.store.left = step
			err = second(b.Detach(t.Context(), tt.second.Ref))
			reached = reached || b.store.left < 0
			b.store.left = -1
			if gone := without(first, b.left()); len(gone) > 0 {
				t.Errorf("%s, DEL, step %d: %v, and of the first is gone %v", tt.name, step, err, gone)
			}
			b.must(second(b.Detach(t.Context(), tt.second.Ref)))
			if left := b.left(); !slices.Equal(left, first) {
				t.Errorf("%s, DEL, step %d, and again: %v, want %v", tt.name, step, left, first)
			}
			if !reached {
				if step < 5 {
					t.Errorf("only %d steps: nothing was injected", step)
				}
				break // out of the steps of this pair
			}
		}
	}
}

// A process that is killed at any call leaves something of that interface alone, which DEL takes away, and so does GC.
func TestWhatACrashLeavesOfOneInterfaceIsFound(t *testing.T) {
	for _, tt := range interfaces() {
		for _, attached := range []bool{false, true} { // whether the crash is while it goes
			for step := 0; step < 20; step++ {
				for name, clean := range map[string]func(*bed) error{
					"DEL": func(b *bed) error { return second(b.Detach(b.Context(), tt.second.Ref)) },
					"GC": func(b *bed) error {
						return second(b.Collect(b.Context(), wire.Valid{Network: tt.second.Network, Refs: []wire.Ref{tt.first.Ref}}))
					},
				} {
					b := newBed(t)
					one := b.attach(tt.first)
					first := b.left()
					if attached {
						b.attach(tt.second)
					}
					b.store.left, b.store.forever = step, true
					if attached {
						_, _ = b.Detach(t.Context(), tt.second.Ref)
					} else {
						_, _ = b.Attach(t.Context(), tt.second)
					}
					b.restart()
					b.must(clean(b))
					if left := b.left(); !slices.Equal(left, first) {
						t.Errorf("%s, going %v, killed at step %d, then %s: left %v, want %v", tt.name, attached, step, name, left, first)
					}
					b.must(second(b.Check(t.Context(), withAddrs(tt.first, one))))
				}
			}
		}
	}
}

func TestInterfacesThatCannotBeKeptApartAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second wire.Request
	}{
		{"the same interface of a container, in another network", request("c1"), other(request("c1"), "eth0", "two")},
		{"the same interface of a pod, in another network", ofPod("c1", "web"), other(ofPod("c1", "web"), "eth0", "two")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.attach(tt.first)
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

func TestASecondInterfaceIsRefusedWhereEndpointsAreMadeOfPods(t *testing.T) {
	b := newBed(t)
	s := b.on(deriving{link: "cali7", has: &datastore.Annotations{}})
	b.must(second(s.Attach(t.Context(), withLink(ofPod("7", "p"), "cali7"))))
	want := b.left()
	var refusal *wire.Refusal
	if _, err := s.Attach(t.Context(), other(ofPod("7", "p"), "net1", "two")); !errors.As(err, &refusal) || refusal.Later || !strings.Contains(refusal.Reason, "a pod has one interface of ours, eth0, and net1 of network two would have no endpoint") {
		t.Errorf("the second: %v", err)
	}
	b.must(second(s.Detach(t.Context(), other(ofPod("7", "p"), "net1", "two").Ref)))
	if left := b.left(); !slices.Equal(left, want) {
		t.Errorf("left: %v, want %v", left, want)
	}
}

func withLink(r wire.Request, link string) wire.Request {
	r.Link = link
	return r
}

// What is known of a pod is written to the endpoints that it has: a later one has it from the beginning.
func TestTheSecondInterfaceOfAPodIsJudgedAsTheFirst(t *testing.T) {
	b := newBed(t)
	b.attach(ofPod("c1", "web"))
	key := api.KeyPrefix(api.KindWorkloadEndpoint, "") + "prod/h1-k8s-web-eth0"
	u, err := b.store.InMemory.Get(t.Context(), key)
	b.must(err)
	st, err := api.DecodeStored(u)
	b.must(err)
	w := st.Resource.(*api.WorkloadEndpoint)
	w.Metadata.Labels["tier"], w.Spec.ServiceAccountName, w.Spec.Profiles = "db", "cook", []string{"kns.prod", "ksa.prod.cook"}
	w.Spec.Ports = []api.WorkloadEndpointPort{{Name: "sql", Protocol: api.Protocol{Name: "TCP"}, Port: 5432}}
	if u.Value, err = api.EncodeStored(w); err != nil {
		t.Fatal(err)
	}
	b.must(second(b.store.InMemory.Update(t.Context(), u)))
	b.attach(other(ofPod("c1", "web"), "net1", "two"))
	u, err = b.store.InMemory.Get(t.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "")+"prod/h1-k8s-web-net1")
	b.must(err)
	for _, want := range []string{`"tier":"db"`, `"serviceAccountName":"cook"`, `"profiles":["kns.prod","ksa.prod.cook"]`, `"sql"`, `"twill.net/cni-network":"two"`, `"endpoint":"net1"`} {
		if !strings.Contains(string(u.Value), want) {
			t.Errorf("the second endpoint has no %s: %s", want, u.Value)
		}
	}
	b.attach(other(ofPod("c2", "web"), "net1", "two")) // another container of the pod: nothing is known of it yet
	u, err = b.store.InMemory.Get(t.Context(), u.Key)
	b.must(err)
	if strings.Contains(string(u.Value), "cook") {
		t.Errorf("the new container's endpoint has what was known of the old one: %s", u.Value)
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
	b.must(b.processNotesOf(t.Context(), request("c1").Ref))
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
	more, err := b.Assign(t.Context(), again)
	b.must(err)
	b.must(second(b.Assigned(t.Context(), withAddrs(again, more.Addrs))))
	for range 2 {
		b.must(second(b.Release(t.Context(), again.Ref)))
		if left := b.left(); !slices.Equal(left, want) {
			t.Errorf("after the second was released: %v, want %v", left, want)
		}
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
	leases, err := b.cfg.Addresses.Leases(t.Context(), pod.Handle())
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
