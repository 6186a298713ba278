package fib

import (
	"context"
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
	return t.rtnl.Follow(ctx, rtnl.WatchRoutes, t.notes, func(events []rtnl.Event) func() {
		if len(events) == 0 {
			return func() { t.lost = true }
		}
		concern, protocols := events[:0], t.protocols()
		for _, e := range events {
			// Foreign routes matter while one of them blocks ours: it may be about to be deleted.
			if e.Route != nil && e.Route.Table == 0 && (slices.Contains(protocols, e.Route.Protocol) || t.blocked.Load()) {
				concern = append(concern, e)
			}
		}
		if len(concern) == 0 {
			return nil
		}
		return func() { t.observe(concern) }
	})
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
			if want, wanted := t.routes.Desired(key); wanted && same(want, *e.Route) {
				delete(t.drifted, key)
			}
		}
	}
}
