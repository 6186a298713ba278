package nft

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Bounds of the size of a transaction that can be split. The kernel answers no other socket's requests while it works on
// one; and a socket, or a machine with little memory, may not take a large one.
const (
	maxRoom = 1 << 20 // bytes
	minRoom = 64 << 10

	keptBatch = 64 << 10 // bytes of memory that are kept for the next transaction
)

// elementSize is the approximate size in bytes of an element in a message, with both its ends if it is an interval.
func elementSize(id string) int { return 16 + 2*len(id) }

const (
	setSize      = 256 // bytes of the message that creates a set, approximately
	leastElement = 16  // bytes of the shortest element
)

// part returns a transaction of at most about d.room bytes with new objects only: first sets with their elements, then chains of
// policies, which look into sets, then those of endpoints, which call policies. An empty plan: nothing is new.
func (d *Driver) part() *plan {
	p := &plan{batch: &d.batch, part: true, only: map[*kset][]string{}}
	d.newSets(p, d.changedSets(), func(k *kset) bool { return k.owner != nil && k.spec.Data != nftables.TypeVerdict })
	if len(p.ksets) == 0 {
		d.newChains(p)
	}
	return p
}

// intervals returns a transaction with those sets of prefixes that are new in p. In a set of intervals that is new the kernel finds nothing until the end of
// its transaction, when the rules of the same one are in force already (see nftables.MatchAddrs), so they go before. A table that is made anew has no rules
// before, and takes all at once.
func (d *Driver) intervals(p *plan) *plan {
	q := &plan{batch: &d.batch, part: true, more: true, only: map[*kset][]string{}}
	d.batch.Reset()
	if p.shallow || p.purge || !d.table.exists {
		return q
	}
	d.newSets(q, p.ksets, func(k *kset) bool { return k.spec.Interval })
	d.write(q)
	return q
}

// newSets adds to a part those of some sets that are new and of a kind, with as many elements as there is room for.
func (d *Driver) newSets(p *plan, all []*kset, of func(*kset) bool) {
	left := d.room
	for _, k := range all {
		if !k.wanted || k.exists && !d.isFresh(k) || !of(k) || left <= 0 {
			continue
		}
		for id := range k.elems.PendingUpdates() {
			if left -= elementSize(id); left <= 0 {
				break
			}
			p.only[k] = append(p.only[k], id)
		}
		if !k.exists || len(p.only[k]) > 0 {
			p.ksets = append(p.ksets, k)
			left -= setSize
		}
	}
}

// isFresh reports whether a set was made by a part, and no chain in force looks into it yet.
func (d *Driver) isFresh(k *kset) bool {
	_, fresh := d.fresh[k]
	return fresh
}

// newChains adds as many new chains to a part as there is room for.
func (d *Driver) newChains(p *plan) {
	var all []*chain
	for _, name := range slices.Sorted(maps.Keys(d.dirtyChains)) {
		c := d.chains[name]
		if kind := intent.KindOf(c.owner); c.wanted && !c.exists && c.spec.Base == nil && (kind == intent.KeyPolicy || kind == intent.KeyEndpoint) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b *chain) int { return cmp.Compare(intent.KindOf(a.owner), intent.KindOf(b.owner)) })
	size, with := nftables.NewBatch(), map[string]bool{}
	for _, c := range all {
		if !d.ready(c, with) {
			continue
		}
		for _, r := range c.rules {
			size.AddRule(r)
		}
		if len(p.chains) > 0 && size.Size() > d.room {
			return
		}
		p.chains = append(p.chains, c)
		with[c.name] = true
	}
}

// ready reports whether all that the rules of a chain refer to is in the kernel, or is a chain that is made with it. What else is new, such as
// the look-ups of tables, comes with the transaction that changes the rules in force.
func (d *Driver) ready(c *chain, with map[string]bool) bool {
	set := func(name string) bool { return d.ksets[name] != nil && d.ksets[name].exists }
	for _, r := range c.rules {
		for _, x := range r.Exprs {
			there := true
			switch x := x.(type) {
			case nftables.Verdict:
				there = x.Chain == "" || with[x.Chain] || d.chains[x.Chain] != nil && d.chains[x.Chain].exists
			case nftables.Lookup:
				there = set(x.Set)
			case nftables.LookupVerdict:
				there = set(x.Map)
			case nftables.LookupData:
				there = set(x.Map)
			}
			if !there {
				return false
			}
		}
	}
	return true
}

// smaller halves the room and reports whether a transaction that the kernel refused as a whole may be tried again in smaller parts.
func (d *Driver) smaller(p *plan, err error) bool {
	size := p.batch.Size()
	room := size / 2
	if !asAWhole(err) || !d.state.InSync() || p.purge || room < minRoom || room >= d.room {
		return false
	}
	was := d.room
	d.room = room
	if q := d.plan(); !q.more || q.batch.Size() >= size {
		d.room = was
		return false
	}
	return true
}

// single finds the one intent because of which the kernel refuses a transaction as a whole, and leaves it out from now on.
// It bisects with Conn.Check, so of n intents it asks some 2 log n times, and changes nothing. If no half is refused alone, the
// sum is too large: then the largest intent is left out, until the others are in force. It returns false if no intent is the cause.
func (d *Driver) single(p *plan, err error) bool {
	fault := d.atFault(p)
	refused := func(keys []intent.Key) bool {
		d.trying = d.ask(p, keys, fault)
		defer func() { d.trying = nil }()
		return d.conn.Check(d.trying.batch) != nil
	}
	if !d.state.InSync() || !asAWhole(err) || refused(nil) {
		return false
	}
	sizes := d.sizes(p)
	fault.sizes(p, sizes)
	// A part of the tables may be for several policies: that one is found whose failure concerns the fewest workloads.
	all := slices.SortedFunc(maps.Keys(sizes), func(a, b intent.Key) int {
		return cmp.Or(cmp.Compare(d.state.Users(a), d.state.Users(b)), intent.CompareKeys(a, b))
	})
	if len(all) == 0 {
		return false
	}
	if !refused(all) {
		return true // the refusal was temporary
	}
	keys := all
	for len(keys) > 1 {
		a, b := keys[:len(keys)/2], keys[len(keys)/2:]
		switch {
		case refused(a):
			keys = a
		case refused(b):
			keys = b
		default:
			keys = []intent.Key{slices.MaxFunc(keys, func(a, b intent.Key) int { return sizes[a] - sizes[b] })}
		}
	}
	return d.state.Refuse(keys[0], fmt.Errorf("the kernel refuses the whole transaction because of this: %w", err))
}

// ask returns a plan, to be checked only, of the changes in p that are for some intents.
func (d *Driver) ask(p *plan, keys []intent.Key, b *atFault) *plan {
	q := &plan{atFault: b, batch: nftables.NewBatch(), purge: p.purge, chains: p.chains, ksets: p.ksets, shallow: p.shallow, rests: p.rests, part: p.part, only: p.only, drop: p.drop, of: map[intent.Key]bool{}}
	for _, k := range keys {
		q.of[k] = true
	}
	d.write(q)
	return q
}

// sizes returns how many bytes of a plan are for each intent that can be left out.
func (d *Driver) sizes(p *plan) map[intent.Key]int {
	out := map[intent.Key]int{}
	before := 0
	for _, s := range p.spans {
		if d.state.Refusable(s.owner) {
			out[s.owner] += s.bytes - before
		}
		before = s.bytes
	}
	return out
}

// asAWhole reports whether an error is about the content of a transaction, and not about its sender or a cached state that is wrong.
func asAWhole(err error) bool {
	for _, e := range []error{syscall.EPERM, syscall.EACCES, syscall.EBADF, syscall.ENODEV, syscall.EINTR, syscall.EAGAIN, syscall.ERESTART} {
		if errors.Is(err, e) {
			return false
		}
	}
	return !otherState(err)
}
