package fib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Run listens to the kernel's route events until the context ends, so that what others do to our routes is undone at
// once. Without it, the next Resync finds out.
//
// Our own changes are heard too. They say what the Table knows already; one that is late makes at worst an add that
// finds its route there, or a delete that finds it gone.
func (t *Table) Run(ctx context.Context) error {
	w, err := t.rtnl.Watch(rtnl.WatchRoutes)
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	defer w.Close()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	for {
		events, err := w.Receive()
		var note func()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, rtnl.ErrOverrun):
			note = func() { t.lost = true }
		case err != nil:
			return fmt.Errorf("routes: %w", err)
		default:
			concern := events[:0]
			for _, e := range events {
				// What others do concerns us while one of their routes stands in our way: they may be about to take it away.
				if e.Route != nil && e.Route.Table == 0 && (mine(*e.Route) || t.blocked.Load()) {
					concern = append(concern, e)
				}
			}
			if len(concern) == 0 {
				continue
			}
			note = func() { t.observe(concern) }
		}
		select {
		case t.notes <- note:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Drift is where Run tells the loop what it heard.
func (t *Table) Drift() <-chan func() { return t.notes }

func (t *Table) observe(events []rtnl.Event) {
	for _, e := range events {
		if !mine(*e.Route) {
			t.unblock(func(dst netip.Prefix) bool { return dst == e.Route.Dst })
			continue
		}
		key := routeKey{e.Route.Dst, e.Route.Metric}
		is, known := t.routes.Actual(key)
		switch {
		case e.Gone && known && is.Link == e.Route.Link && is.Kind == e.Route.Kind:
			t.routes.ObservedGone(key)
			if _, wanted := t.routes.Desired(key); wanted {
				t.drifted[key] = intent.ByEvent
			}
		case !e.Gone:
			t.routes.Observed(key, *e.Route)
			if !known || is != *e.Route {
				t.drifted[key] = intent.ByEvent // unless it is what we want: see below
			}
			if want, wanted := t.routes.Desired(key); wanted && want.Kind == e.Route.Kind && want.Link == e.Route.Link && want.Gateway == e.Route.Gateway {
				delete(t.drifted, key)
			}
		}
	}
}
