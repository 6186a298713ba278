package nft

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// plan is one transaction, and the actual state after it.
type plan struct {
	batch  *nftables.Batch
	room   int                           // bytes: write stops when the batch is larger; zero: never
	spans  []span                        // in increasing order of end
	rests  func(k *kset, id string) bool // not nil: elements that are not deleted yet
	purge  bool
	chains []*chain // created, rewritten or deleted
	ksets  []*kset  // created, changed or deleted
	// shallow: kernel sets were made, without their elements.
	shallow bool
	// part: the plan has new objects only.
	part   bool
	only   map[*kset][]string // not nil: only these elements are added
	drop   map[*kset][]string // and only these are deleted
	more   bool               // another transaction follows
	settle bool               // before this one, wait until every packet under way before is done (Conn.Settle)
	// of, not nil: the plan is to be checked only, and has only what concerns these intents. New objects of others are in it, but empty.
	of map[intent.Key]bool
	// atFault, not nil: of the tables, too, only what concerns these intents.
	atFault *atFault
}

// span says which intent the messages up to end are for, from the end of the span before.
type span struct {
	end   int
	bytes int // size of the batch up to end
	owner intent.Key
}

func (p *plan) empty() bool { return p.batch.Len() == 0 }

// mark attributes the messages since the last mark to an owner.
func (p *plan) mark(owner intent.Key) {
	if n := p.batch.Len(); len(p.spans) == 0 || p.spans[len(p.spans)-1].end < n {
		p.spans = append(p.spans, span{end: n, bytes: p.batch.Size(), owner: owner})
	}
}

// owner returns the intent that a message was for; nil: no intent.
func (p *plan) owner(message int) intent.Key {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].end > message })
	if message < 0 || i == len(p.spans) {
		return nil
	}
	return p.spans[i].owner
}

// plan returns the next transaction: all that is pending; new sets of prefixes before that; a step of it, where addresses move between sets; or, where
// it is large, some of the new objects, to which nothing in the kernel leads yet. So the rules in force still change in one transaction. A missing table
// is made in one transaction, since nothing is filtered until then; if that was refused, the skeleton comes first, which closes interfaces with a configured prefix.
func (d *Driver) plan() *plan {
	p := d.whole(!d.state.InSync())
	if q := d.intervals(p); !q.empty() {
		return q
	}
	if q := d.step(p); q != nil {
		d.write(q)
		return q
	}
	if d.state.InSync() && !p.purge && (d.table.exists || d.room < maxRoom) {
		p.room = d.room
	}
	if d.write(p) {
		return p
	}
	var q *plan
	if d.table.exists {
		q = d.part()
	} else {
		q = d.whole(true)
	}
	if d.write(q); q.empty() {
		p.room = 0
		d.write(p)
		return p
	}
	q.more = true
	return q
}

// whole collects what is pending; shallow, only missing parts of the skeleton.
func (d *Driver) whole(shallow bool) *plan {
	p := &plan{batch: &d.batch, shallow: shallow, rests: d.rests}
	if d.table.rebuild && d.state.InSync() {
		p.purge = true
		d.forget()
		d.table.rebuild = true // until a transaction succeeds
	}
	d.collect(p)
	return p
}

// write puts a plan into its batch, in the order that the kernel requires: objects before what refers to them, and deletions when
// nothing refers to the object any more. It stops and returns false when the batch is larger than the plan's room.
func (d *Driver) write(p *plan) bool {
	if p.batch.Reset(); p.least() > p.room && p.room > 0 {
		return false
	}
	p.spans = p.spans[:0]
	if p.purge {
		p.batch.PurgeTable(d.cfg.Table)
	}
	if (len(p.chains) > 0 || len(p.ksets) > 0) && !d.table.exists || p.purge {
		p.batch.AddTable(nftables.Table{Name: d.cfg.Table, Flags: d.flags()})
	}
	p.mark(nil)
	for _, k := range p.ksets {
		if k.wanted && !k.exists {
			p.batch.AddSet(k.spec)
			p.mark(k.owner)
		}
	}
	for _, c := range p.chains {
		if c.wanted && !c.exists {
			p.batch.AddChain(c.spec)
			p.mark(c.owner)
		}
	}
	p.elements(false)
	for _, c := range p.chains {
		if p.full() {
			return false
		}
		d.writeRules(p, c)
	}
	p.elements(true)
	if p.of == nil { // else what is not wanted may still be needed by intents that are not in the plan
		d.writeDeletions(p)
	}
	return !p.full()
}

// writeRules puts the rules of a chain into the batch of a plan.
func (d *Driver) writeRules(p *plan, c *chain) {
	if !p.concerns(c.owner) {
		return
	}
	if c.exists {
		p.batch.FlushChain(d.cfg.Table, c.name)
	}
	for _, r := range p.askedRules(c) {
		p.batch.AddRule(r)
	}
	p.mark(c.owner)
}

// writeDeletions puts deletions into the batch of a plan.
func (d *Driver) writeDeletions(p *plan) {
	for _, k := range p.ksets { // before chains: a map that another process left may lead to them
		if !k.wanted {
			p.batch.DeleteSet(d.cfg.Table, k.spec.Name)
			p.mark(k.owner)
		}
	}
	for _, c := range p.chains {
		if !c.wanted {
			p.batch.DeleteChain(d.cfg.Table, c.name)
			p.mark(c.owner)
		}
	}
}

// full reports whether the batch of a plan is larger than its room.
func (p *plan) full() bool { return p.room > 0 && p.batch.Size() > p.room }

// least returns a lower bound of the size of the batch of a plan with all that is pending.
func (p *plan) least() int {
	n := 0
	for _, k := range p.ksets {
		if updates, _ := k.elems.Pending(); k.wanted {
			n += updates
		}
	}
	return n * leastElement
}

// concerns reports whether the content of an owner's objects is in the plan.
func (p *plan) concerns(owner intent.Key) bool {
	return p.of == nil || p.of[owner] || owner == nil || owner == desired.HostEndpoints || owner == desired.Tables
}

// collect finds the chains and sets that this transaction changes, in a deterministic order.
func (d *Driver) collect(p *plan) {
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		c := d.chains[name]
		if p.shallow && !c.early() || c.isRest() && !d.due(rest{chain: name}) {
			continue
		}
		p.chains = append(p.chains, c)
	}
	for _, k := range d.changedSets() {
		if p.shallow && (k.exists || k.owner != nil) || d.restAll(k) {
			continue
		}
		p.ksets = append(p.ksets, k)
	}
}

// changedSets returns the sets that differ, in the order in which they are to be made: to find one, the kernel compares its name with
// that of each that was made before it. So those that every packet meets come first, and those that many changes concern next.
func (d *Driver) changedSets() []*kset {
	out := make([]*kset, 0, len(d.dirtyKsets))
	for name := range d.dirtyKsets {
		out = append(out, d.ksets[name])
	}
	slices.SortFunc(out, func(a, b *kset) int {
		return cmp.Or(a.rank()-b.rank(), strings.Compare(a.spec.Name, b.spec.Name))
	})
	return out
}

func (k *kset) rank() int {
	switch {
	case k.owner == nil:
		return 0
	case k.owner == desired.Tables && !k.lateSet:
		return 1
	case k.lateSet && k.family == 0:
		return 2
	}
	return 3
}

// elements sends the changed elements of plain sets, or of verdict maps, whose chains must exist. Deletions come first:
// an interval may not overlap an existing one, and a key has one verdict.
func (p *plan) elements(verdicts bool) {
	if p.shallow {
		return
	}
	for _, k := range p.ksets {
		if !k.wanted || (k.spec.Data == nftables.TypeVerdict) != verdicts || !p.concerns(k.owner) {
			continue
		}
		if p.full() {
			return
		}
		p.batch.DeleteEach(k.spec, p.outgoing(k))
		p.batch.AddEach(k.spec, p.incoming(k))
		p.mark(k.owner)
	}
}

// outgoing yields the elements of a set that are deleted, also those that are added again with another value.
func (p *plan) outgoing(k *kset) iter.Seq[nftables.Element] {
	return func(yield func(nftables.Element) bool) {
		var s scratch
		for id := range p.deletes(k) {
			if !yield(k.element(&s, id, "")) {
				return
			}
		}
		if k.spec.Data == nftables.TypeNone {
			return // an element has no value that could change
		}
		for id := range p.updates(k) {
			if is, there := k.elems.Actual(id); there && !yield(k.element(&s, id, is)) {
				return
			}
		}
	}
}

// incoming yields the elements of a set that are added.
func (p *plan) incoming(k *kset) iter.Seq[nftables.Element] {
	return func(yield func(nftables.Element) bool) {
		var s scratch
		for id, value := range p.updates(k) {
			el := k.element(&s, id, value)
			if k.about != nil {
				el.Comment = comment(k.about(id))
			}
			if !yield(el) {
				return
			}
		}
	}
}

// updates returns the elements of a set that a plan adds or changes.
func (p *plan) updates(k *kset) iter.Seq2[string, string] {
	if p.only == nil {
		return p.asked(k, k.elems.PendingUpdates())
	}
	return p.asked(k, func(yield func(string, string) bool) {
		for _, id := range p.only[k] {
			value, _ := k.elems.Desired(id)
			if !yield(id, value) {
				return
			}
		}
	})
}

// deletes returns the elements of a set that a plan deletes.
func (p *plan) deletes(k *kset) iter.Seq[string] {
	if p.only != nil {
		return slices.Values(p.drop[k])
	}
	return func(yield func(string) bool) {
		for id := range k.elems.PendingDeletes() {
			if (p.rests == nil || !p.rests(k, id)) && !yield(id) {
				return
			}
		}
	}
}

// applied updates the actual state after p was committed, and waits where the next step requires it.
func (d *Driver) applied(p *plan) {
	if !d.table.exists {
		d.table.flags = d.flags()
		d.table.owned = d.table.flags&nftables.TableOwner != 0
	}
	d.commits++
	d.table.exists = true
	d.table.rebuild = d.table.rebuild && !p.purge
	for _, c := range p.chains {
		c.exists, c.is, c.have = c.wanted, c.spec, c.sum
		d.checkChain(c)
	}
	for _, k := range p.ksets {
		k.exists, k.is = k.wanted, k.spec
		if p.part {
			d.fresh[k] = struct{}{}
		}
		switch {
		case !k.wanted:
			k.elems.ResetActual()
		case !p.shallow:
			for id := range p.deletes(k) {
				k.elems.MarkDeleted(id)
			}
			for id := range p.updates(k) {
				k.elems.MarkApplied(id)
			}
		}
		d.checkKset(k)
	}
	if p.settle {
		d.conn.Settle()
	}
}
