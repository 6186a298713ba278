package attach

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestNothingIsGivenBackWhileTheDatastoreIsFrozen, to which nothing may be written then; afterwards what was asked for is done, though nobody asks again.
func TestNothingIsGivenBackWhileTheDatastoreIsFrozen(t *testing.T) {
	for name, ask := range map[string]func(*bed) error{
		"DEL":             func(b *bed) error { return second(b.Detach(b.Context(), request("c1").Ref)) },
		"DEL of IPAM":     func(b *bed) error { return second(b.Release(b.Context(), request("c1").Ref)) },
		"GC":              func(b *bed) error { return second(b.Collect(b.Context(), wire.Valid{Network: request("c1").Network})) },
		"GC of Docker's":  func(b *bed) error { return second(b.Collect(b.Context(), wire.Valid{Docker: true})) },
		"an address back": func(b *bed) error { return second(b.Free(b.Context(), wire.Addresses{Network: "ask1"})) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.must(second(b.Attach(t.Context(), request("c1"))))
			was := b.left()
			ready := api.Locked
			b.cfg.Frozen = func(context.Context) (api.Readiness, error) { return ready, nil }
			b.store.InMemory.Fail(func(op memstore.Op) error {
				if ready.Frozen() && !slices.Contains([]string{"get", "list", "watch"}, op.Verb) {
					t.Errorf("%s %s", op.Verb, op.Key)
				}
				return nil
			})
			var refused *wire.Refusal
			if err := ask(b); !errors.As(err, &refused) || !refused.Later {
				t.Errorf("while it is frozen: %v", err)
			}
			if left := b.left(); !slices.Equal(left, was) {
				t.Errorf("left is %v of %v", left, was)
			}
			ready = api.Ready
			b.must(b.processNotes(t.Context()))
			b.must(ask(b)) // a runtime may ask again, too
			if left := b.left(); len(left) > 0 && (name == "DEL" || name == "DEL of IPAM" || name == "GC") {
				t.Errorf("afterwards left is %v", left)
			}
		})
	}
}

func TestADatastoreThatDoesNotSayWhetherItIsFrozenIsNotWritten(t *testing.T) {
	b := newBed(t)
	b.must(second(b.Attach(t.Context(), request("c1"))))
	was := b.left()
	b.cfg.Frozen = func(context.Context) (api.Readiness, error) { return api.Blank, errFault }
	if err := second(b.Detach(t.Context(), request("c1").Ref)); !errors.Is(err, errFault) || !slices.Equal(b.left(), was) {
		t.Errorf("DEL: %v, left is %v", err, b.left())
	}
}

// TestWhatWasNeverAttachedIsDetachedWhileTheDatastoreIsLocked: an ADD that was refused has left nothing there, and its sandbox need not wait. One that was
// lost, or is not whole yet, may only not have it any more.
func TestWhatWasNeverAttachedIsDetachedWhileTheDatastoreIsLocked(t *testing.T) {
	for ready, refused := range map[api.Readiness]bool{api.Locked: false, api.Gone: true, api.Unsaid: true} {
		for name, ask := range map[string]func(*bed, wire.Ref) error{
			"DEL":         func(b *bed, r wire.Ref) error { return second(b.Detach(b.Context(), r)) },
			"DEL of IPAM": func(b *bed, r wire.Ref) error { return second(b.Release(b.Context(), r)) },
		} {
			for of, r := range map[string]wire.Ref{
				"a container":                request("c2").Ref,
				"another interface of one":   {Network: "net", ContainerID: "c1", Ifname: "net1"},
				"a later sandbox of a pod":   ofPod("c2", "web").Ref,
				"an endpoint of Docker's":    {Network: "net", ContainerID: dockersID, Ifname: wire.FirstInterface, Docker: true},
				"a pod of a virtual machine": ofPod("c2", launcher+"vm-abcde").Ref,
			} {
				b := newBed(t)
				b.must(second(b.Attach(t.Context(), request("c1"))))
				b.must(second(b.Attach(t.Context(), ofPod("c3", "web"))))
				was := b.left()
				b.cfg.Frozen = func(context.Context) (api.Readiness, error) { return ready, nil }
				err := ask(b, r)
				if (err != nil) != refused {
					t.Errorf("readiness %d, %s of %s: %v", ready, name, of, err)
				}
				if notes, err := b.notes(); err != nil || len(notes) > 0 != refused {
					t.Errorf("readiness %d, %s of %s left the notes %v, %v", ready, name, of, notes, err)
				}
				if left := b.left(); !slices.Equal(left, was) {
					t.Errorf("readiness %d, %s of %s: left is %v of %v", ready, name, of, left, was)
				}
			}
		}
	}
}

// TestPartOfAnAttachmentIsNotDetachedWhileTheDatastoreIsLocked: an endpoint without addresses of its own, and addresses without an endpoint.
func TestPartOfAnAttachmentIsNotDetachedWhileTheDatastoreIsLocked(t *testing.T) {
	for name, begin := range map[string]func(*bed) error{
		"an endpoint alone": func(b *bed) error {
			return second(b.Attach(b.Context(), withAddrs(request("c1"), []netip.Addr{netip.MustParseAddr("192.0.2.7")})))
		},
		"addresses alone": func(b *bed) error { return second(b.Assign(b.Context(), request("c1"))) },
	} {
		b := newBed(t)
		b.must(begin(b))
		b.cfg.Frozen = func(context.Context) (api.Readiness, error) { return api.Locked, nil }
		var refused *wire.Refusal
		if err := second(b.Detach(t.Context(), request("c1").Ref)); !errors.As(err, &refused) || !refused.Later {
			t.Errorf("%s: %v", name, err)
		}
		b.store.left = 0
		if err := second(b.Detach(t.Context(), request("c1").Ref)); err == nil {
			t.Errorf("%s: DEL succeeds though the store does not answer", name)
		}
		if notes, err := b.notes(); err != nil || len(notes) != 1 {
			t.Errorf("%s: left are the notes %v, %v", name, notes, err)
		}
	}
}

// TestAMachinesAddressesAreNotGivenBackWhileTheDatastoreIsLocked, of which a pod still says that they are its own.
func TestAMachinesAddressesAreNotGivenBackWhileTheDatastoreIsLocked(t *testing.T) {
	b := newBed(t)
	s := b.host("h1")
	b.must(second(s.Attach(t.Context(), launched("c1", "a"))))
	key := api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-virt--launcher--a-eth0"
	u, err := b.store.InMemory.Get(t.Context(), key)
	b.must(err)
	b.must(b.store.InMemory.Delete(t.Context(), key, u.Revision))
	s.cfg.Frozen = func(context.Context) (api.Readiness, error) { return api.Locked, nil }
	var refused *wire.Refusal
	if err := second(s.Detach(t.Context(), launched("c1", "a").Ref)); !errors.As(err, &refused) || !refused.Later {
		t.Errorf("its pod: %v", err)
	}
	b.must(second(s.Detach(t.Context(), launched("c2", "a").Ref))) // of which an ADD was refused
}
