package nft

import (
	"maps"
	"slices"
	"sort"

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
}

// span says for whom the messages up to end are, from the end of the span before.
type span struct {
	end   int
	owner intent.Key
}

func (p *plan) empty() bool { return p.batch.Len() == 0 }

// mark says for whom the messages since the last mark are.
func (p *plan) mark(owner intent.Key) {
	if n := p.batch.Len(); len(p.spans) == 0 || p.spans[len(p.spans)-1].end < n {
		p.spans = append(p.spans, span{end: n, owner: owner})
	}
}

// owner says for whom a message was; the zero key stands for nobody.
func (p *plan) owner(message int) intent.Key {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].end > message })
	if message < 0 || i == len(p.spans) {
		return intent.Key{}
	}
	return p.spans[i].owner
}

// plan collects what is pending, in the order in which the kernel takes it: what is referred to first, and deletions
// when nothing refers to it any more. Until the source is in sync it makes only what is missing of the skeleton.
func (d *Driver) plan() *plan {
	p := &plan{batch: nftables.NewBatch(), shallow: !d.inSync}
	if d.table.rebuild && d.inSync {
		p.purge = true
		p.batch.PurgeTable(d.cfg.Table)
		d.forget()
		d.table.rebuild = true // until it is done
	}
	d.collect(p)
	if (len(p.chains) > 0 || len(p.ksets) > 0) && !d.table.exists || p.purge {
		p.batch.AddTable(nftables.Table{Name: d.cfg.Table})
	}
	p.mark(intent.Key{})
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
	d.elements(p, false)
	for _, c := range p.chains {
		if c.exists {
			p.batch.FlushChain(d.cfg.Table, c.name)
		}
		for _, r := range c.rules {
			p.batch.AddRule(r)
		}
		p.mark(c.owner)
	}
	d.elements(p, true)
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
	return p
}

// collect finds the chains and sets that this transaction is about, in an order that is always the same.
func (d *Driver) collect(p *plan) {
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		c := d.chains[name]
		if !d.inSync && (!c.wanted || c.owner != (intent.Key{}) || c.pinned && c.exists) {
			continue
		}
		p.chains = append(p.chains, c)
	}
	for _, name := range slices.Sorted(maps.Keys(d.dirtyKsets)) {
		k := d.ksets[name]
		if !d.inSync && (k.exists || k.owner != (intent.Key{})) {
			continue
		}
		p.ksets = append(p.ksets, k)
	}
	// The kernel finds a set by walking a list: those that every packet's way is made of come first.
	slices.SortStableFunc(p.ksets, func(a, b *kset) int { return rank(a) - rank(b) })
}

func rank(k *kset) int {
	if k.owner == (intent.Key{}) {
		return 0
	}
	return 1
}

// elements sends what changes in plain sets, or in maps of verdicts, whose chains must exist. Deletions come first:
// an interval may not overlap one that is still there, and a key has one verdict.
func (d *Driver) elements(p *plan, verdicts bool) {
	if p.shallow {
		return
	}
	for _, k := range p.ksets {
		if !k.wanted || (k.spec.Data == nftables.TypeVerdict) != verdicts {
			continue
		}
		var del, add []nftables.Element
		for id := range k.elems.PendingDeletes() {
			del = append(del, k.element(id, ""))
		}
		for id, value := range k.elems.PendingUpdates() {
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

// applied takes note that the kernel now is what p made of it.
func (d *Driver) applied(p *plan) {
	d.table.exists = true
	d.table.rebuild = d.table.rebuild && !p.purge
	for _, c := range p.chains {
		c.exists, c.is, c.have = c.wanted, c.spec, c.sum
		d.checkChain(c)
	}
	for _, k := range p.ksets {
		k.exists, k.is = k.wanted, k.spec
		switch {
		case !k.wanted:
			k.elems.ResetActual()
		case !p.shallow:
			for id := range k.elems.PendingDeletes() {
				k.elems.MarkDeleted(id)
			}
			for id := range k.elems.PendingUpdates() {
				k.elems.MarkApplied(id)
			}
		}
		d.checkKset(k)
	}
}
