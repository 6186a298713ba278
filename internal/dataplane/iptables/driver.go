package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// families, in the order in which they are written.
var families = [2]intent.Family{intent.IPv4, intent.IPv6}

// Config is what a Driver must know of the host.
type Config struct {
	Prefixes []string // see desired.Config
	// Names receives what decides in which chain, so that reports of packets can be resolved; nil: packets are not reported.
	Names *attribution.Table
	// Budget is what one policy may cost; zero: desired.DefaultBudget.
	Budget desired.Price
}

// Driver makes the tables of iptables, and the sets of ipset, what is desired of this node. One goroutine may use it. Make it with NewDriver.
//
// It writes whole chains, those alone that differ, in one run of iptables-restore for each family. That changes each table in one step: a packet sees
// the old rules of a table or the new ones, but of two tables one may be new already. Sets are made before the rules that look into them, and
// destroyed after; members that move between sets change in steps.
//
// Until the source is in sync it makes only chains that are missing: what an earlier agent left decides until all is known.
type Driver struct {
	tools Tools
	state *desired.State
	node  Node
	names *attribution.Table
	sets  map[intent.SetID]*memberSet
	ksets map[string]*kernelSet
	moves desired.Mover

	want  [2]map[Table]wanted // by family; nil: it must be rendered again
	sees  map[string]bool     // names of the sets that rules of want look into
	stale bool                // of want: something changed since
	made  Settings            // of want

	read   bool // what follows is what the kernel has
	have   [2]map[Table]table
	before bool // all was in force when it was read last
	drift  drift
	notes  chan func()

	measured bool // sizes are what is known of the kernel
	sizes    atomic.Pointer[Sizes]
}

// table is what is known of a table in the kernel.
type table struct {
	saved
	written map[string]string // by chain: the text that was written, if the kernel still has what came of it
}

// drift is what others changed.
type drift struct {
	notified bool // by the kernel, since the last reading
	lapsed   bool
	found    []intent.Repair
	repaired []intent.Repair
}

// NewDriver returns a driver without intents.
func NewDriver(tools Tools, cfg Config) *Driver {
	d := &Driver{
		tools: tools, sets: map[intent.SetID]*memberSet{}, ksets: map[string]*kernelSet{}, stale: true, notes: make(chan func()),
	}
	d.state = desired.New(desired.Config{Prefixes: cfg.Prefixes, Shared: true, Cost: costs{d}, Budget: cfg.Budget})
	if cfg.Names != nil {
		d.names = cfg.Names
		d.node.Reporter = reporter{d.state, cfg.Names}
	}
	return d
}

// reporter implements [Reporter].
type reporter struct {
	state *desired.State
	names *attribution.Table
}

func (r reporter) Prefix(by intent.Decision, generation uint16) string {
	if !r.state.Reports(by) {
		return ""
	}
	return r.names.Name(by, generation).Prefix()
}

func (r reporter) Logged(by intent.Decision, generation uint16) string {
	return r.names.Name(by, generation).Prefix()
}

// name keeps what decides in each chain, as long as it is wanted.
func (d *Driver) name(c desired.Changes) {
	if d.names == nil {
		return
	}
	for _, x := range c.Chains {
		var names []attribution.Name
		for _, r := range x.Rules {
			if r.By.Reason != "" {
				names = append(names, d.names.Name(r.By, x.Generation))
			}
		}
		for _, g := range x.Guards {
			if g.By.Reason != "" {
				names = append(names, d.names.Name(g.By, 0))
			}
		}
		d.names.Chain(x.Name, names)
	}
	for _, name := range c.Gone {
		d.names.Chain(name, nil)
	}
}

// Merge merges a change into the desired state.
func (d *Driver) Merge(b intent.Batch) {
	d.mergeSets(b)
	d.state.Merge(b)
	d.stale = true
}

// Links takes the addresses of interfaces, by which host endpoints that name no interface are found.
func (d *Driver) Links(changes []ifmon.Change) {
	for _, c := range changes {
		d.state.Links([]desired.Addrs{{Link: c.Name, Addrs: c.Addresses()}})
	}
	d.stale = true
}

// Retry makes the next Apply try again what was refused.
func (d *Driver) Retry() {
	d.state.Retry()
	d.stale = true
}

// Run receives notifications until the context ends, so that a change of a table of iptables-nft by another process is undone at once; of those of
// iptables-legacy the kernel says nothing. What iptables-restore writes for the driver is announced, too, and is read again.
func (d *Driver) Run(ctx context.Context, w nftables.Receiver) error {
	concerns := func(table string) bool { return slices.Contains(tableOrder, Table(table)) }
	return nftables.Follow(ctx, w, concerns, d.notes, func() { d.drift.notified = true })
}

// Drift returns the channel on which Run passes functions to the loop that owns the driver, which calls them.
func (d *Driver) Drift() <-chan func() { return d.notes }

// Repairs returns what was repaired since the last call.
func (d *Driver) Repairs() []intent.Repair {
	out := d.drift.repaired
	d.drift.repaired = nil
	return out
}

// Lapsed reports whether, since the last call, the rules may have been other than desired for a while.
func (d *Driver) Lapsed() bool {
	was := d.drift.lapsed
	d.drift.lapsed = false
	return was
}

// Refresh returns how often the settings want the tables read back; false: no settings came yet.
func (d *Driver) Refresh() (time.Duration, bool) {
	h, ok := d.state.Host()
	return h.Refresh.Policy, ok
}

// attempts bounds how often one Apply leaves out intents or chains that were refused and tries again. A host endpoint of an interface that iptables cannot name takes
// nine: a stage each.
const attempts = 16

// Apply makes the kernel match. An intent that is refused is left out and reported in its outcome, and endpoints that need it are closed. An error
// means that nothing more could be applied, such as tables that cannot be read; call again later.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	again := d.read // what is known may be old
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := d.render()
		if err == nil {
			err = d.carryOut(ctx)
		}
		if err == nil {
			break
		}
		_, refused := errors.AsType[*Error](err)
		if again && refused { // others may have destroyed a set, which nobody announces
			again, d.before = false, false // what differs now is not all by others
			if err := d.Resync(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if attempt < attempts && d.leaveOut(err) {
			continue
		}
		d.read, d.before = false, false // a table may have been changed, and another not
		return nil, err
	}
	d.before = d.state.InSync()
	d.measure()
	d.drift.repaired = append(d.drift.repaired, d.drift.found...)
	d.drift.found = nil
	return d.state.Outcomes(), nil
}

// prepare reads what may be other than it was read last. Changes of sets are announced by nobody, so that an announcement is of the tables.
func (d *Driver) prepare(ctx context.Context) error {
	switch {
	case !d.read:
		return d.Resync(ctx)
	case d.drift.notified:
		changing := d.changing()
		if err := d.readTables(ctx); err != nil {
			return err
		}
		d.compare(changing)
	}
	return nil
}

// Clear removes all chains and calls of ours, and the sets that nothing looks into then.
func (d *Driver) Clear(ctx context.Context) error {
	if err := d.Resync(ctx); err != nil {
		return err
	}
	d.want = [2]map[Table]wanted{{}, {}}
	for i := range families {
		if err := d.write(ctx, i, false); err != nil {
			return err
		}
	}
	return d.destroySets()
}

// ClearSets removes what is left for Clear where somebody else took the chains away, since iptables cannot read the tables.
func (d *Driver) ClearSets(ctx context.Context) error {
	saved, err := d.tools.SaveSets(ctx)
	if err != nil {
		return err
	}
	d.observeSets(saved)
	return d.destroySets()
}

// leaveOut leaves out the intent that an error is about or, if it is about none, the chain. It returns false if there is nothing that can be left out.
func (d *Driver) leaveOut(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	if c, there := d.node.chains[e.Chain]; there && (e.Owner == nil || !d.state.Refusable(e.Owner)) {
		d.node.chains[e.Chain] = d.state.Broken(c, e.Err)
	} else if e.Owner == nil || !d.state.Refuse(e.Owner, e.Err) {
		return false
	}
	d.want[0], d.stale = nil, true
	return true
}

// render renders what is desired, if anything changed.
func (d *Driver) render() error {
	if !d.stale {
		return nil
	}
	c := d.state.Changes()
	d.node.Take(c)
	d.name(c)
	h, _ := d.state.Host()
	s := Settings{d.state.Logs(), h.EndpointToHost, h.IPTables, kernel.Marks(h.MarkMask)}
	if s != d.made || d.want[0] == nil || len(c.Chains)+len(c.Gone)+len(c.Links) > 0 {
		d.made, d.sees = s, map[string]bool{}
		for i, f := range families {
			texts, err := d.node.Render(f, s)
			if err != nil {
				d.want[0] = nil
				return fmt.Errorf("IPv%d: %w", f, err)
			}
			d.want[i] = map[Table]wanted{}
			for _, t := range texts {
				d.want[i][t.Table] = wantedOf(t)
				for _, s := range t.Sets {
					d.sees[s.Name] = true
				}
			}
		}
	}
	d.stale = false
	return nil
}

// carryOut makes sets, members and chains, and then destroys what nothing looks into any more.
func (d *Driver) carryOut(ctx context.Context) error {
	if err := d.makeSets(ctx); err != nil {
		return err
	}
	if err := d.moveMembers(ctx); err != nil {
		return err
	}
	for i := range families {
		if err := d.write(ctx, i, !d.state.InSync()); err != nil {
			return err
		}
	}
	if !d.state.InSync() {
		return nil
	}
	return d.destroySets()
}

// restoreSets carries out lines for ipset; an error has the set of its line for its owner.
func (d *Driver) restoreSets(ctx context.Context, lines []string, of []*kernelSet) error {
	if len(lines) == 0 {
		return nil
	}
	err := d.tools.RestoreSets(ctx, strings.Join(lines, "\n")+"\n")
	if err == nil {
		return nil
	}
	d.read = false // the lines before it are carried out
	if n := lineOf(err); n > 0 && n <= len(of) && of[n-1].ID != "" {
		return &Error{Owner: of[n-1].ID, Err: err}
	}
	return err
}

// makeSets makes the sets that are missing, with all their members. One whose name somebody gave to a set of another type is refused.
func (d *Driver) makeSets(ctx context.Context) error {
	var lines []string
	var of, made []*kernelSet
	for _, name := range slices.Sorted(maps.Keys(d.sees)) {
		k := d.ksets[name]
		switch {
		case k == nil:
			return fmt.Errorf("set %s is asked for, and nobody has it", name)
		case k.other:
			return &Error{Owner: k.ID, Err: fmt.Errorf("somebody made the ipset %s of another type: destroy it", name)}
		case k.exists:
			continue
		}
		made = append(made, k)
		lines, of = append(lines, k.Create()), append(of, k)
		for el := range k.elems.All() {
			lines, of = append(lines, "add "+k.Name+" "+el), append(of, k)
		}
	}
	if err := d.restoreSets(ctx, lines, of); err != nil {
		return err
	}
	for _, k := range made {
		k.exists, d.measured = true, false
		for el := range k.elems.All() {
			k.elems.MarkApplied(el)
		}
	}
	return nil
}

// moveMembers changes the members of sets, those that move between sets in steps.
func (d *Driver) moveMembers(ctx context.Context) error {
	d.moves.Reset()
	for {
		moves, as := d.pending()
		due, more := d.moves.Next(d.state, as)
		now := moves
		if more {
			now = make([]move, len(due))
			for i, at := range due {
				now[i] = moves[at]
			}
		}
		lines, of := make([]string, len(now)), make([]*kernelSet, len(now))
		for i, m := range now {
			lines[i], of[i] = m.line(), m.k
		}
		if err := d.restoreSets(ctx, lines, of); err != nil {
			return err
		}
		for _, m := range now {
			m.done()
		}
		if !more {
			return nil
		}
		d.tools.Settle()
	}
}

// destroySets destroys the sets of ours that no rule looks into. Rules of another backend may: such a set stays until it is tried again.
func (d *Driver) destroySets() error {
	for _, name := range slices.Sorted(maps.Keys(d.ksets)) {
		k := d.ksets[name]
		if d.sees[name] || !k.exists {
			continue
		}
		inUse, err := d.tools.DestroySet(name)
		if err != nil {
			return err
		}
		if !inUse {
			k.gone()
			d.measured = false
		}
	}
	for name, k := range d.ksets {
		if s := d.sets[k.ID]; !k.exists && (s == nil || !slices.Contains(s.kernel, k)) {
			delete(d.ksets, name)
		}
	}
	return nil
}
