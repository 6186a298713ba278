package resources

import (
	"context"
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Wait returns when until says so of what is stored of a resource: it gets the stored value, one without a value if there is none,
// at once and after each change. A watch that ends is begun anew. It fails with ctx, or where the store cannot be read.
func Wait(ctx context.Context, s datastore.Store, ref api.Ref, until func(api.Update) bool) error {
	prefix := api.KeyPrefix(ref.Kind, ref.Namespace)
	for {
		snap, err := s.List(ctx, prefix) // before the look, so that no change falls between
		if err != nil {
			return fmt.Errorf("wait for %s: %w", Short(ref), err)
		}
		switch done, err := look(ctx, s, ref, until); {
		case err != nil:
			return fmt.Errorf("wait for %s: %w", Short(ref), err)
		case done:
			return nil
		}
		// Whatever ended the watch, the list says whether the store is still there.
		done := watch(ctx, s, prefix, snap.Position, func() (bool, error) { return look(ctx, s, ref, until) })
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for %s: %w", Short(ref), ctx.Err())
		case done:
			return nil
		}
	}
}

// look asks until of what is stored now, under whichever key.
func look(ctx context.Context, s datastore.Store, ref api.Ref, until func(api.Update) bool) (bool, error) {
	u, err := FindStored(ctx, s, ref)
	if errors.Is(err, datastore.ErrNotFound) {
		u, err = api.Update{}, nil
	}
	return err == nil && until(u), err
}

// watch looks again after each change, until it is done, or the watch ends.
func watch(ctx context.Context, s datastore.Store, prefix string, after datastore.Position, again func() (bool, error)) bool {
	w, err := s.Watch(ctx, prefix, after)
	if err != nil {
		return false
	}
	defer w.Close()
	for {
		got, err := w.Next(ctx)
		if err != nil {
			return false
		}
		if len(got.Updates) == 0 {
			continue
		}
		if done, err := again(); done || err != nil {
			return done
		}
	}
}
