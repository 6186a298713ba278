package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
)

// errChanged: what is read right after it was written is something else.
var errChanged = errors.New("another program changes our chains while they are written")

// tableOrder is the order in which tables are written.
var tableOrder = []Table{Raw, Mangle, NAT, Filter}

// edit is the change of one table.
type edit struct {
	lines []string
	of    []string // the chain that each line is about
}

func (e *edit) add(chain, line string) {
	e.lines, e.of = append(e.lines, line), append(e.of, chain)
}

// write brings the chains of a family into the kernel, and reads them. Early: what is there stays.
func (d *Driver) write(ctx context.Context, slot int, early bool) error {
	var all edit
	for _, name := range tableOrder {
		all.table(name, d.have[slot][name], d.want[slot][name], early)
	}
	if len(all.lines) == 0 {
		return nil
	}
	f := families[slot]
	if err := d.tools.Restore(ctx, f, strings.Join(all.lines, "\n")+"\n"); err != nil {
		if n := lineOf(err); n > 0 && n <= len(all.of) {
			c := d.node.named(all.of[n-1])
			return &Error{c.Owner, err, c.Name}
		}
		return err
	}
	text, err := d.tools.Save(ctx, f)
	if err != nil {
		return err
	}
	return d.written(slot, parseSaved(text), early)
}

// written takes what the kernel has after a change.
func (d *Driver) written(slot int, is map[Table]saved, early bool) error {
	for _, name := range tableOrder {
		had := d.have[slot][name]
		now := table{is[name], map[string]string{}}
		for chain, text := range d.want[slot][name].chains {
			_, there := had.chains[chain]
			if early && there { // an earlier agent's
				continue
			}
			rules, made := now.chains[chain]
			same := alike(rules, text) // as far as it can be known of a chain that is new
			if was, wrote := had.written[chain]; there && wrote && was == text {
				same = slices.Equal(rules, had.chains[chain])
			}
			if !made || !same {
				return fmt.Errorf("IPv%d, table %s, chain %s: %w", families[slot], name, chain, errChanged)
			}
			now.written[chain] = text
		}
		d.have[slot][name] = now
	}
	d.measured = false
	return nil
}

// table adds the change of a table from what it has to what it should be. Early: only what is missing.
func (e *edit) table(name Table, has table, want wanted, early bool) {
	var t edit
	var changed []string
	for _, chain := range want.order {
		_, there := has.chains[chain]
		text, ours := has.written[chain]
		if !there || !early && (!ours || text != want.chains[chain]) {
			changed = append(changed, chain)
			t.add(chain, ":"+chain+" - [0:0]")
		}
	}
	var gone []string
	for _, chain := range slices.Sorted(maps.Keys(has.chains)) {
		if _, wanted := want.chains[chain]; !wanted && !early {
			gone = append(gone, chain)
			t.add(chain, ":"+chain+" - [0:0]") // without rules, so that nothing refers to another that goes
		}
	}
	for _, chain := range changed {
		for line := range strings.Lines(want.chains[chain]) {
			t.add(chain, strings.TrimSuffix(line, "\n"))
		}
	}
	for _, at := range points {
		call, wanted := want.call(at.Hook)
		c := has.calls[at.Hook]
		if wanted && c.right(call) || early && c.n > 0 || !wanted && c.n == 0 { // where it belongs follows from settings, which are not known early
			continue
		}
		for range c.n {
			t.add(at.Chain, fmt.Sprintf("-D %s -j %s", at.Hook, at.Chain))
		}
		switch {
		case wanted && call.Last:
			t.add(at.Chain, fmt.Sprintf("-A %s -j %s", at.Hook, at.Chain))
		case wanted:
			t.add(at.Chain, fmt.Sprintf("-I %s 1 -j %s", at.Hook, at.Chain))
		}
	}
	for _, chain := range gone {
		t.add(chain, "-X "+chain)
	}
	if len(t.lines) == 0 {
		return
	}
	e.add("", "*"+string(name))
	e.lines, e.of = append(e.lines, t.lines...), append(e.of, t.of...)
	e.add("", "COMMIT")
}

// Differences reads the tables and the sets back, and returns one line for each object that differs from the intents. It changes nothing. Of rules
// that another driver wrote it compares what alike does: in what form the kernel has the rest is known only of those that this one wrote.
func (d *Driver) Differences(ctx context.Context) ([]string, error) {
	if err := d.Resync(ctx); err != nil {
		return nil, err
	}
	if err := d.render(); err != nil {
		return nil, err
	}
	for i := range families {
		for name, want := range d.want[i] {
			has := d.have[i][name]
			for chain, text := range want.chains {
				if rules, there := has.chains[chain]; there && alike(rules, text) {
					has.written[chain] = text
				}
			}
		}
	}
	out := d.differences()
	for i, f := range families {
		for _, name := range tableOrder {
			for _, chain := range slices.Sorted(maps.Keys(d.have[i][name].chains)) {
				if _, wanted := d.want[i][name].chains[chain]; !wanted {
					out = append(out, fmt.Sprintf("chain %s of IPv%d table %s is there, and nobody wants it", chain, f, name))
				}
			}
		}
	}
	return out, nil
}

// Resync reads the tables and the sets, so that the next Apply undoes what others changed.
func (d *Driver) Resync(ctx context.Context) error {
	if err := d.readTables(ctx); err != nil {
		return err
	}
	sets, err := d.tools.SaveSets(ctx)
	if err != nil {
		return err
	}
	changing := d.changing()
	d.observeSets(sets)
	d.read = true
	d.compare(changing)
	return nil
}

// readTables reads the tables of both families.
func (d *Driver) readTables(ctx context.Context) error {
	var have [2]map[Table]table
	for i, f := range families {
		text, err := d.tools.Save(ctx, f)
		if err != nil {
			return err
		}
		have[i] = map[Table]table{}
		for name, is := range parseSaved(text) {
			have[i][name] = table{is, d.still(i, name, is)}
		}
	}
	d.have, d.measured = have, false
	return nil
}

// still returns the texts of those chains that are as they were read after they were written.
func (d *Driver) still(slot int, name Table, is saved) map[string]string {
	out := map[string]string{}
	had := d.have[slot][name]
	for chain, text := range had.written {
		if rules, there := is.chains[chain]; there && slices.Equal(rules, had.chains[chain]) {
			out[chain] = text
		}
	}
	return out
}

// changing are the sets that are to be changed, whatever others did.
func (d *Driver) changing() map[string]bool {
	out := map[string]bool{}
	for name, k := range d.ksets {
		out["set "+name] = !k.exists || !k.elems.InSync()
	}
	return out
}

// compare finds what others changed since all was in force.
func (d *Driver) compare(changing map[string]bool) {
	cause := intent.ByReadBack
	if d.drift.notified {
		cause = intent.ByEvent
	}
	d.drift.notified = false
	if !d.before {
		return
	}
	d.before = false
	for _, what := range d.differences() {
		if !changing[what] {
			d.drift.found = append(d.drift.found, intent.Repair{What: what, Cause: cause})
		}
	}
	d.drift.lapsed = d.drift.lapsed || len(d.drift.found) > 0
}

// differences are the objects that are other than what was rendered last.
func (d *Driver) differences() (out []string) {
	for i, f := range families {
		for _, name := range tableOrder {
			has, want := d.have[i][name], d.want[i][name]
			what := func(kind, of string) string { return fmt.Sprintf("%s %s of IPv%d table %s", kind, of, f, name) }
			for _, chain := range want.order {
				if text, ours := has.written[chain]; !ours || text != want.chains[chain] {
					out = append(out, what("chain", chain))
				}
			}
			for _, c := range want.calls {
				if !has.calls[c.Hook].right(c) {
					out = append(out, what("call of", c.Chain))
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.sees)) {
		if k := d.ksets[name]; k == nil || !k.exists || k.other || !k.elems.InSync() {
			out = append(out, "set "+name)
		}
	}
	return out
}

var lineNumber = regexp.MustCompile(`line:? (\d+)`)

// lineOf is the number of the line that a program complains about; zero: it names none.
func lineOf(err error) int {
	m := lineNumber.FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// named finds a chain by its name in iptables; the zero value: it is of no intent and no stage.
func (n *Node) named(chain string) desired.Chain {
	for name, c := range n.chains {
		if ChainName(name) == chain {
			return c
		}
	}
	return desired.Chain{}
}
