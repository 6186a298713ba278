package fib

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Run receives the kernel's route events until the context ends, so that a change of our routes by another process is undone at
// once. Without it, the next Resync finds such changes.
//
// Events of our own changes come too, and change nothing in the Table; a late one at worst leads to an add that
// finds its route, or a delete that finds none.
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
			concern, protocols := events[:0], t.protocols()
			for _, e := range events {
				// Foreign routes matter while one of them blocks ours: it may be about to be deleted.
				if e.Route != nil && e.Route.Table == 0 && (slices.Contains(protocols, e.Route.Protocol) || t.blocked.Load()) {
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

// Drift returns the channel on which Run passes functions to the loop, which calls them.
func (t *Table) Drift() <-chan func() { return t.notes }

func (t *Table) observe(events []rtnl.Event) {
	for _, e := range events {
		if !t.mine(*e.Route) {
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
				t.drifted[key] = intent.ByEvent // unless it is the desired one: see below
			}
			if want, wanted := t.routes.Desired(key); wanted && sameWay(want, *e.Route) && want.Source == e.Route.Source && want.Protocol == e.Route.Protocol {
				delete(t.drifted, key)
			}
		}
	}
}
