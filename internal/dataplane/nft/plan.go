package nft

import (
	"iter"
	"maps"
	"slices"
	"sort"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// plan is one transaction, and what will be true after it.
type plan struct {
	batch  *nftables.Batch
	spans  []span // by rising end
	purge  bool
	chains []*chain // created, rewritten or deleted
	ksets  []*kset  // created, changed or deleted
	// shallow: kernel sets were made but their elements not sent.
	shallow bool
	// part: objects that are new, and nothing else.
	part   bool
	only   map[*kset][]string // not nil: the elements that are added, and of others none is
	drop   map[*kset][]string // and those that are deleted
	more   bool               // another transaction is to follow
	settle bool               // when no packet is on its way from before this one
	// of, not nil: a question about what concerns these intents, and nobody. New objects of others are there, but empty.
	of map[intent.Key]bool
}

// span says for whom the messages up to end are, from the end of the span before.
type span struct {
	end   int
	bytes int // up to end
	owner intent.Key
}

func (p *plan) empty() bool { return p.batch.Len() == 0 }

// mark says for whom the messages since the last mark are.
func (p *plan) mark(owner intent.Key) {
	if n := p.batch.Len(); len(p.spans) == 0 || p.spans[len(p.spans)-1].end < n {
		p.spans = append(p.spans, span{end: n, bytes: p.batch.Size(), owner: owner})
	}
}

// owner says for whom a message was; nil stands for nobody.
func (p *plan) owner(message int) intent.Key {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].end > message })
	if message < 0 || i == len(p.spans) {
		return nil
	}
	return p.spans[i].owner
}

// plan is the next transaction: all that is pending or, where addresses move between sets, a step of that; or, where it is much,
// some of what is new, to which nothing in the kernel leads yet. So what is in force changes in one transaction all the same. A table that is not there is made whole, since all is
// open until then; if that was refused, the skeleton comes first, which closes what has a configured prefix.
func (d *Driver) plan() *plan {
	p := d.whole(!d.state.InSync())
	if q := d.step(p); q != p {
		return q
	}
	if !d.state.InSync() || p.purge || p.batch.Size() <= d.room {
		return p
	}
	q := p
	switch {
	case d.table.exists:
		q = d.part()
	case d.room < maxRoom:
		q = d.whole(true)
	}
	if q == p || q.empty() {
		return p
	}
	q.more = true
	return q
}

// whole collects what is pending; shallow, only what is missing of the skeleton.
func (d *Driver) whole(shallow bool) *plan {
	p := &plan{batch: nftables.NewBatch(), shallow: shallow}
	if d.table.rebuild && d.state.InSync() {
		p.purge = true
		d.forget()
		d.table.rebuild = true // until it is done
	}
	d.collect(p)
	d.write(p)
	return p
}

// write puts a plan into its batch, in the order in which the kernel takes it: what is referred to first, and deletions when
// nothing refers to it any more.
func (d *Driver) write(p *plan) {
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
		if !p.concerns(c.owner) {
			continue
		}
		if c.exists {
			p.batch.FlushChain(d.cfg.Table, c.name)
		}
		for _, r := range c.rules {
			p.batch.AddRule(r)
		}
		p.mark(c.owner)
	}
	p.elements(true)
	if p.of != nil {
		return // what is not wanted may still be needed by what the question leaves out
	}
	for _, k := range p.ksets { // before chains: a map that someone else left may lead to them
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

// concerns reports whether what is in an owner's objects is in the plan.
func (p *plan) concerns(owner intent.Key) bool {
	return p.of == nil || p.of[owner] || owner == nil || owner == desired.HostEndpoints
}

// collect finds the chains and sets that this transaction is about, in an order that is always the same.
func (d *Driver) collect(p *plan) {
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		c := d.chains[name]
		if p.shallow && !c.early() {
			continue
		}
		p.chains = append(p.chains, c)
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyKsets)) {
		k := d.ksets[name]
		if p.shallow && (k.exists || k.owner != nil) {
			continue
		}
		p.ksets = append(p.ksets, k)
	}
	// The kernel finds a set by walking a list: those that every packet's way is made of come first.
	slices.SortStableFunc(p.ksets, func(a, b *kset) int { return rank(a) - rank(b) })
}

func rank(k *kset) int {
	if k.owner == nil {
		return 0
	}
	return 1
}

// elements sends what changes in plain sets, or in maps of verdicts, whose chains must exist. Deletions come first:
// an interval may not overlap one that is still there, and a key has one verdict.
func (p *plan) elements(verdicts bool) {
	if p.shallow {
		return
	}
	for _, k := range p.ksets {
		if !k.wanted || (k.spec.Data == nftables.TypeVerdict) != verdicts || !p.concerns(k.owner) {
			continue
		}
		var del, add []nftables.Element
		for id := range p.deletes(k) {
			del = append(del, k.element(id, ""))
		}
		for id, value := range p.updates(k) {
			if is, there := k.elems.Actual(id); there {
				del = append(del, k.element(id, is))
			}
			add = append(add, k.element(id, value))
		}
		if len(del) > 0 {
			p.batch.DeleteElements(k.spec, del...)
		}
		if len(add) > 0 {
			p.batch.AddElements(k.spec, add...)
		}
		p.mark(k.owner)
	}
}

// updates are the elements of a set that a plan adds or changes.
func (p *plan) updates(k *kset) iter.Seq2[string, string] {
	if p.only == nil {
		return k.elems.PendingUpdates()
	}
	return func(yield func(string, string) bool) {
		for _, id := range p.only[k] {
			value, _ := k.elems.Desired(id)
			if !yield(id, value) {
				return
			}
		}
	}
}

// deletes are the elements of a set that a plan takes out.
func (p *plan) deletes(k *kset) iter.Seq[string] {
	if p.only == nil {
		return k.elems.PendingDeletes()
	}
	return slices.Values(p.drop[k])
}

// applied takes note that the kernel now is what p made of it, and waits where the next step must.
func (d *Driver) applied(p *plan) {
	if !d.table.exists {
		d.table.flags = d.flags()
		d.table.mine = d.table.flags&nftables.TableOwner != 0
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
