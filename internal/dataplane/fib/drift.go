package fib

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// pending returns the routes that differ from the desired ones.
func (t *Table) pending() map[routeKey]bool {
	out := map[routeKey]bool{}
	for key := range t.routes.PendingUpdates() {
		out[key] = true
	}
	for key := range t.routes.PendingDeletes() {
		out[key] = true
	}
	return out
}

// confirm notes that a route is as desired.
func (t *Table) confirm(key routeKey) {
	if cause, ok := t.drifted[key]; ok {
		delete(t.drifted, key)
		t.repairs = append(t.repairs, intent.Repair{What: "route " + key.dst.String(), Cause: cause})
	}
}

// Repairs returns what was repaired since the last call.
func (t *Table) Repairs() []intent.Repair {
	out := t.repairs
	t.repairs = nil
	return out
}

// Refresh returns how often the settings want the routes read back; false: no settings came yet.
func (t *Table) Refresh() (time.Duration, bool) { return t.refresh, t.settled }

// difference says in what a route is not as it is wanted.
func difference(want, is rtnl.Route) string {
	scope := map[bool]string{true: "global", false: "link"}
	switch {
	case want.Link != is.Link:
		return fmt.Sprintf("through interface %d, want %d", is.Link, want.Link)
	case want.Global != is.Global:
		return fmt.Sprintf("of scope %s, want %s", scope[is.Global], scope[want.Global])
	case want.Source != is.Source:
		return fmt.Sprintf("from %s, want %s", address(is.Source), address(want.Source))
	case want.Protocol != is.Protocol:
		return fmt.Sprintf("of protocol %d, want %d", is.Protocol, want.Protocol)
	}
	return fmt.Sprintf("by %s, want %s", address(is.Gateway), address(want.Gateway))
}

func address(a netip.Addr) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}

// Differences reads our routes and neighbours back and returns one line for each that differs from the intents. It changes nothing.
func (t *Table) Differences(ctx context.Context) ([]string, error) {
	if err := t.Resync(ctx); err != nil {
		return nil, err
	}
	t.advance()
	if t.settings.Off {
		return nil, nil
	}
	var out []string
	byDst := func(a, b routeKey) int {
		return cmp.Or(a.dst.Addr().Compare(b.dst.Addr()), cmp.Compare(a.dst.Bits(), b.dst.Bits()), cmp.Compare(a.metric, b.metric))
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.pending()), byDst) {
		want, wanted := t.routes.Desired(key)
		is, exists := t.routes.Actual(key)
		switch {
		case !exists:
			out = append(out, fmt.Sprintf("route %s is missing", key.dst))
		case !wanted:
			out = append(out, fmt.Sprintf("route %s is there, and nobody wants it", key.dst))
		default:
			out = append(out, fmt.Sprintf("route %s differs: %s", key.dst, difference(want, is)))
		}
	}
	for key, mac := range t.neighbours.PendingUpdates() {
		out = append(out, fmt.Sprintf("neighbour %s is missing or not at %s", key.addr, mac))
	}
	for key := range t.neighbours.PendingDeletes() {
		out = append(out, fmt.Sprintf("neighbour %s is there, and nobody wants it", key.addr))
	}
	return out, nil
}
