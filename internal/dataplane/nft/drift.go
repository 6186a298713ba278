package nft

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// drift is what is known of changes by other processes.
type drift struct {
	notes    chan func()
	notified bool // the kernel notified us of a change in our table
	lapsed   bool // somebody changed our table, or may have, since it last was as desired
	found    []intent.Repair
	repaired []intent.Repair
}

// Run receives notifications from the kernel until the context ends, so that a change of our table by another process is
// undone at once. After nftables.ErrOverrun it goes on, as after a change of our table; any other error of the watcher is returned.
func (d *Driver) Run(ctx context.Context, w nftables.Receiver) error {
	ours := func(table string) bool { return table == d.cfg.Table }
	return nftables.Follow(ctx, w, ours, d.drift.notes, func() { d.drift.notified = true })
}

// Drift returns the channel on which Run passes functions to the loop that owns the driver, which calls them.
func (d *Driver) Drift() <-chan func() { return d.drift.notes }

// Repairs returns what was repaired since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.drift.repaired
	d.drift.repaired = nil
	return out
}

// Lapsed reports whether, since the last call, the table may have been other than desired for a while.
func (d *Driver) Lapsed() bool {
	was := d.drift.lapsed
	d.drift.lapsed = false
	return was
}

// Refresh returns how often the settings want the table read back; false: no settings came yet.
func (d *Driver) Refresh() (time.Duration, bool) { return d.host.Refresh.Policy, d.configured }

// known returns the objects that were pending before a reading; nil if the table was never in force.
func (d *Driver) known() map[string]bool {
	if !d.table.exists {
		return nil
	}
	out := map[string]bool{}
	for name := range d.dirtyChains {
		out["chain "+name] = true
	}
	for name := range d.dirtyKsets {
		out["set "+name] = true
	}
	return out
}

// compare finds what others changed: objects that are pending now and were not before.
func (d *Driver) compare(before map[string]bool) {
	cause := intent.ByReadBack
	if d.drift.notified {
		cause, d.drift.lapsed = intent.ByEvent, true // whoever changed it may have changed it back
	}
	d.drift.notified = false
	defer func() { d.drift.lapsed = d.drift.lapsed || len(d.drift.found) > 0 }()
	if before == nil {
		return
	}
	if !d.table.exists {
		d.drift.found = append(d.drift.found, intent.Repair{What: "table " + d.cfg.Table, Cause: cause})
		return
	}
	if d.table.flags&nftables.TableDormant != 0 {
		d.drift.found = append(d.drift.found, intent.Repair{What: "table " + d.cfg.Table + " was dormant", Cause: cause})
	}
	for _, what := range d.pending() {
		if !before[what] {
			d.drift.found = append(d.drift.found, intent.Repair{What: what, Cause: cause})
		}
	}
}

func (d *Driver) pending() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		out = append(out, "chain "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyKsets)) {
		out = append(out, "set "+name)
	}
	return out
}

// confirmRepairs: all differences that were found have been repaired by a transaction that the kernel accepted.
func (d *Driver) confirmRepairs() {
	d.drift.repaired = append(d.drift.repaired, d.drift.found...)
	d.drift.found = nil
}

// Differences reads the table back and returns one line for each object that differs from the intents. It changes nothing.
func (d *Driver) Differences(ctx context.Context) ([]string, error) {
	if err := d.Resync(ctx); err != nil {
		return nil, err
	}
	d.refresh()
	if !d.table.exists {
		return []string{fmt.Sprintf("table %s is missing", d.cfg.Table)}, nil
	}
	out, err := d.flagDifferences()
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		c := d.chains[name]
		if c.isRest() && !d.due(rest{chain: name}) {
			continue // it goes after a grace period
		}
		out = append(out, fmt.Sprintf("chain %s %s", name, describe(c.wanted, c.exists)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyKsets)) {
		k := d.ksets[name]
		if d.restAll(k) {
			continue
		}
		text := describe(k.wanted, k.exists)
		if k.wanted && k.exists {
			missing, extra := k.elems.Pending()
			text = fmt.Sprintf("differs: %d elements missing or different, %d that nobody wants", missing, extra)
		}
		out = append(out, fmt.Sprintf("set %s %s", name, text))
	}
	return out, nil
}

// Plain says of each endpoint that is asked by chains although the settings want tables why that is.
func (d *Driver) Plain() desired.Plain { return d.state.Plain() }

func describe(wanted, exists bool) string {
	switch {
	case !exists:
		return "is missing"
	case !wanted:
		return "is there, and nobody wants it"
	}
	return "has other rules"
}
