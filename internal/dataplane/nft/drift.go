package nft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// drift is what is known of changes by others.
type drift struct {
	notes  chan func()
	heard  bool // the kernel told of a change in our table
	lapsed bool // somebody changed our table, or may have, since it was last as it should be
	found  []intent.Repair
	mended []intent.Repair
}

// Watcher is all that Run needs of the kernel; *nftables.Watcher has it.
type Watcher interface {
	Receive() ([]string, error)
	Close() error
}

// Run listens to the kernel until the context ends, so that what others do to our table is undone at once.
func (d *Driver) Run(ctx context.Context, w Watcher) error {
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()
	for {
		tables, err := w.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, nftables.ErrOverrun):
			return err
		case err == nil && !slices.Contains(tables, d.cfg.Table):
			continue
		}
		select {
		case d.drift.notes <- func() { d.drift.heard = true }:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Drift is where Run tells the loop what it heard.
func (d *Driver) Drift() <-chan func() { return d.drift.notes }

// Repairs are what was put right since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.drift.mended
	d.drift.mended = nil
	return out
}

// Lapsed reports whether the table may not have been as it should be for a while since the last call.
func (d *Driver) Lapsed() bool {
	was := d.drift.lapsed
	d.drift.lapsed = false
	return was
}

// Refresh is how often the settings want the table read back.
func (d *Driver) Refresh() (time.Duration, bool) { return d.host.Refresh.Policy, d.configured }

// known remembers what was thought to be pending; nil if the table was never brought into force.
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

// compare finds what others changed: what is pending now and was not before.
func (d *Driver) compare(before map[string]bool) {
	cause := intent.ByReadBack
	if d.drift.heard {
		cause, d.drift.lapsed = intent.ByEvent, true // whoever changed it may have put it right again
	}
	d.drift.heard = false
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

// mend takes it that all that was found is as it should be again.
func (d *Driver) mend() {
	d.drift.mended = append(d.drift.mended, d.drift.found...)
	d.drift.found = nil
}

// Differences reads the table back and says where it is not what the intents want. It changes nothing.
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
		out = append(out, fmt.Sprintf("chain %s %s", name, fate(c.wanted, c.exists)))
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyKsets)) {
		k := d.ksets[name]
		text := fate(k.wanted, k.exists)
		if k.wanted && k.exists {
			missing, extra := k.elems.Pending()
			text = fmt.Sprintf("differs: %d elements missing or different, %d that nobody wants", missing, extra)
		}
		out = append(out, fmt.Sprintf("set %s %s", name, text))
	}
	return out, nil
}

func fate(wanted, exists bool) string {
	switch {
	case !exists:
		return "is missing"
	case !wanted:
		return "is there, and nobody wants it"
	}
	return "has other rules"
}
