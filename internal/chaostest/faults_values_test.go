package chaostest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// nonsense are values that no resource has.
var nonsense = []string{
	"", "{", "[]", "null", "17", `"a string"`, "\xff\xfe", `{"kind":"Pod"}`, `{"spec":[]}`,
	`{"metadata":{"name":7},"spec":{"selector":"all("}}`,
}

// valueFaults write what nobody should, past the command line, and put back what was there.
func valueFaults() []fault {
	spoil := func(plural, name string, loses bool) fault {
		return fault{kind: "garbage-" + strings.TrimSuffix(plural, "/"), loses: loses, do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			return w.spoil(ctx, rng, plural, name)
		}}
	}
	remove := func(plural, name string, loses bool) fault {
		peering := plural == "bgppeers/" || plural == "nodes/"
		return fault{kind: "deleted-" + strings.TrimSuffix(plural, "/"), loses: loses, peering: peering, do: func(ctx context.Context, w *world, rng *rand.Rand) error {
			return w.remove(ctx, rng, plural, name)
		}}
	}
	return []fault{
		spoil("networkpolicies/default/", "", true), // whatever it says then, strangers stay out
		spoil("globalnetworkpolicies/", "", false),  // nor may these let go
		spoil("tiers/", "security", true),
		spoil("ippools/", "", true),
		spoil("nodes/", "", true),
		spoil("bgppeers/", "", true),
		spoil("bgpconfigurations/", "default", true),
		spoil("workloadendpoints/default/", "", true),
		remove("globalnetworkpolicies/", "toggle", false),
		remove("ippools/", "", true),
		remove("nodes/", "", true),
		remove("bgppeers/", "", true),
		remove("workloadendpoints/default/", "", true),
	}
}

// victim is a stored resource: one of a name, or any.
func (w *world) victim(ctx context.Context, rng *rand.Rand, plural, name string) (api.Update, error) {
	if name != "" {
		return w.find(ctx, plural, name)
	}
	all, err := w.store.List(ctx, api.ResourcesPrefix+plural)
	if err == nil && len(all.Items) == 0 {
		err = fmt.Errorf("no %s are stored", plural)
	}
	if err != nil {
		return api.Update{}, err
	}
	return all.Items[rng.IntN(len(all.Items))], nil
}

// restore puts a value back.
func (w *world) restore(ctx context.Context, was api.Update) error {
	return datastore.Put(context.WithoutCancel(ctx), w.store, api.Update{Key: was.Key, Value: was.Value})
}

// spoil writes some nonsense in place of a value, one after the other.
func (w *world) spoil(ctx context.Context, rng *rand.Rand, plural, name string) (err error) {
	was, err := w.victim(ctx, rng, plural, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.restore(ctx, was)) }()
	w.unknown()
	for range 1 + rng.IntN(3) {
		text := nonsense[rng.IntN(len(nonsense))]
		w.logf("  %s is %q", was.Key, text)
		if err := datastore.Put(ctx, w.store, api.Update{Key: was.Key, Value: []byte(text)}); err != nil {
			return err
		}
		now, err := w.store.Get(ctx, was.Key)
		if err != nil || string(now.Value) != text || now.Revision == was.Revision {
			return fmt.Errorf("%s has %q: %w", was.Key, now.Value, err)
		}
		wait(ctx, span(rng, 0, time.Second))
		if was.Key == w.toggle.Key {
			continue
		}
		if err := w.hold(ctx, rng, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a value, and puts it back.
func (w *world) remove(ctx context.Context, rng *rand.Rand, plural, name string) (err error) {
	was, err := w.victim(ctx, rng, plural, name)
	if err != nil {
		return err
	}
	w.unknown()
	if err := w.store.Delete(ctx, was.Key, api.Revision{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.restore(ctx, was)) }()
	w.logf("  %s is deleted", was.Key)
	if _, err := w.store.Get(ctx, was.Key); !errors.Is(err, datastore.ErrNotFound) {
		return fmt.Errorf("%s: %w", was.Key, errStill)
	}
	wait(ctx, span(rng, 0, 2*time.Second))
	return nil
}
