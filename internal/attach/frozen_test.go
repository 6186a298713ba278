package attach

import (
	"context"
	"errors"
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
			frozen := api.Locked.Why()
			b.cfg.Frozen = func(context.Context) (string, error) { return frozen, nil }
			b.store.InMemory.Fail(func(op memstore.Op) error {
				if frozen != "" && !slices.Contains([]string{"get", "list", "watch"}, op.Verb) {
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
			frozen = ""
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
	b.cfg.Frozen = func(context.Context) (string, error) { return "", errFault }
	if err := second(b.Detach(t.Context(), request("c1").Ref)); !errors.Is(err, errFault) || !slices.Equal(b.left(), was) {
		t.Errorf("DEL: %v, left is %v", err, b.left())
	}
}
