package nft

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// families, in the order in which they are rendered.
var families = [2]intent.Family{intent.IPv4, intent.IPv6}

// slot is the index of an address's family in arrays of two.
func slot(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// ipset is a desired set, of addresses or of named ports.
type ipset struct {
	id      intent.SetID
	kind    intent.SetKind
	comment string
	exact   [2]*kset // hosts, or address . protocol . port
	// Prefixes that are not hosts. A member may come unmasked, so that two members are the same prefix.
	ranges [2]*kset
	raw    map[netip.Prefix]struct{}
	masked map[netip.Prefix]int // how many of raw are each
	covers [2]cover

	wanted bool // see desired.Set
}

// mergeSets merges changes of sets and of their members.
func (d *Driver) mergeSets(b intent.Batch) {
	for _, in := range b.IPSets {
		s := d.sets[in.ID]
		if s != nil && s.kind != in.Kind {
			d.removeSet(s)
			s = nil
		}
		if s == nil {
			s = d.newIPSet(in)
			d.sets[in.ID] = s
		}
		d.change(s, func() {
			d.note(d.replace(s, in.Members))
		})
	}
	for _, m := range b.Members {
		if s := d.sets[m.Set]; s != nil {
			d.change(s, func() {
				moved := intent.MemberDelta{Set: m.Set}
				for _, x := range m.Removed {
					if s.remove(x) {
						moved.Removed = append(moved.Removed, x)
					}
				}
				for _, x := range m.Added {
					if s.add(x) {
						moved.Added = append(moved.Added, x)
					}
				}
				d.note(moved)
			})
		}
	}
	for _, key := range b.Removed {
		if id, ok := key.(intent.SetID); ok && d.sets[id] != nil {
			d.removeSet(d.sets[id])
		}
	}
}

// replace gives a set other members, and returns which came and went.
func (d *Driver) replace(s *ipset, members []intent.Member) intent.MemberDelta {
	moved := intent.MemberDelta{Set: s.id}
	if !d.state.Compiled() {
		s.clear()
		for _, m := range members {
			s.add(m)
		}
		return moved
	}
	gone := map[intent.Member]struct{}{}
	s.each(func(m intent.Member) { gone[m] = struct{}{} })
	s.clear()
	for _, m := range members {
		if !s.add(m) {
			continue
		}
		m.Prefix = m.Prefix.Masked()
		if _, had := gone[m]; had {
			delete(gone, m)
		} else {
			moved.Added = append(moved.Added, m)
		}
	}
	moved.Removed = slices.Collect(maps.Keys(gone))
	return moved
}

// note keeps which members a set has won and lost, if policy is tables.
func (d *Driver) note(moved intent.MemberDelta) {
	if d.state.Compiled() && len(moved.Added)+len(moved.Removed) > 0 {
		d.moved = append(d.moved, moved)
	}
}

// change applies f, which changes the members of a set, and marks what depends on them.
func (d *Driver) change(s *ipset, f func()) {
	before := [2]bool{s.covers[0].n > 0, s.covers[1].n > 0}
	f()
	for i := range families {
		if s.count(i) > 0 {
			d.use(i)
		}
	}
	if before != [2]bool{s.covers[0].n > 0, s.covers[1].n > 0} {
		d.state.Reshaped(s.id) // the rules that ask for it change with the kinds of its kernel sets
	}
	d.settleSet(s)
}

// use marks a family as used from now on; then all sets, and all rules that ask for them, change.
func (d *Driver) use(slot int) {
	if d.used[slot] {
		return
	}
	d.used[slot] = true
	for _, s := range d.sets {
		d.state.Reshaped(s.id)
		d.settleSet(s)
	}
}

func (d *Driver) removeSet(s *ipset) {
	d.note(d.replace(s, nil))
	s.wanted = false
	for i := range families {
		for _, k := range []*kset{s.exact[i], s.ranges[i]} {
			if k != nil {
				k.held = false // its record is deleted once it is gone
			}
		}
	}
	d.settleSet(s)
	delete(d.sets, s.id)
}

// useSet takes the desired state of a set. Once the set has its names, its kernel sets are among those of the table.
func (d *Driver) useSet(u desired.Set) {
	s := d.sets[u.ID]
	if s == nil {
		return
	}
	if u.Named {
		d.nameSet(s)
	}
	s.wanted = u.Wanted
	d.settleSet(s)
}

// nameSet registers the kernel sets of a set that are not registered yet.
func (d *Driver) nameSet(s *ipset) {
	for i := range families {
		for _, at := range []**kset{&s.exact[i], &s.ranges[i]} {
			if k := *at; k != nil && k.unnamed {
				*at = d.name(k)
			}
		}
	}
}

// name registers a kernel set under its name. The actual state that was read under that name is its own from then on.
func (d *Driver) name(k *kset) *kset {
	is := d.ksets[k.spec.Name]
	if is == nil {
		is = k
		d.ksets[k.spec.Name] = k
	} else {
		for id, value := range k.elems.All() {
			is.elems.Desire(id, value)
		}
	}
	is.spec, is.owner, is.held, is.unnamed = k.spec, k.owner, true, false
	return is
}

// settleSet decides which kernel sets a set should have.
func (d *Driver) settleSet(s *ipset) {
	for i := range families {
		d.want(s.exact[i], s.wanted && d.used[i])
		if s.ranges[i] != nil {
			d.want(s.ranges[i], s.wanted && s.covers[i].n > 0)
		}
	}
}

// kinds returns the names of the kernel sets that rules must ask in a family.
func (d *Driver) kinds(s *ipset, slot int) []string {
	var names []string
	if d.used[slot] {
		names = append(names, s.exact[slot].spec.Name)
	}
	if s.covers[slot].n > 0 {
		names = append(names, s.ranges[slot].spec.Name)
	}
	return names
}

// count returns the number of members of a family.
func (s *ipset) count(slot int) int {
	n := s.exact[slot].elems.Len()
	if s.ranges[slot] != nil {
		n += s.covers[slot].n
	}
	return n
}

// newIPSet makes the records of a set and its kernel sets; those for hosts and ports exist even without members, so that rules
// need not change when the first one comes.
func (d *Driver) newIPSet(in intent.IPSet) *ipset {
	s := &ipset{id: in.ID, kind: in.Kind, comment: in.Comment}
	tail, about := desired.SetName(in.ID), comment(in.Comment)
	owner := intent.Key(in.ID)
	unnamed := func(spec nftables.Set) *kset {
		k := newKset(spec)
		k.owner, k.unnamed, k.held = owner, true, true
		return k
	}
	for i, f := range families {
		addr := nftables.TypeIPv4Addr
		if f == intent.IPv6 {
			addr = nftables.TypeIPv6Addr
		}
		spec := nftables.Set{Table: d.cfg.Table, Key: addr, Comment: about}
		if in.Kind == intent.SetPorts {
			spec.Key = nftables.Concat(addr, nftables.TypeInetProto, nftables.TypeInetService)
			spec.Name = nameFor("ports", f, tail)
			s.exact[i] = unnamed(spec)
			continue
		}
		spec.Name = nameFor("hosts", f, tail)
		s.exact[i] = unnamed(spec)
		spec.Name, spec.Interval = nameFor("nets", f, tail), true
		s.ranges[i] = unnamed(spec)
	}
	if in.Kind == intent.SetAddrs {
		s.raw, s.masked = map[netip.Prefix]struct{}{}, map[netip.Prefix]int{}
	}
	return s
}

// add adds a member. It is false if that was there, or is none.
func (s *ipset) add(m intent.Member) bool {
	addr, host, ok := s.classify(m)
	switch {
	case !ok:
		return false
	case host:
		elems, key := s.exact[slot(addr)].elems, s.hostKey(addr, m)
		_, there := elems.Desired(key)
		elems.Desire(key, "")
		return !there
	default:
		if _, there := s.raw[m.Prefix]; there {
			return false
		}
		s.raw[m.Prefix] = struct{}{}
		s.changed(addr, s.covers[slot(addr)].add)(m.Prefix.Masked())
		s.masked[m.Prefix.Masked()]++
		return s.masked[m.Prefix.Masked()] == 1
	}
}

// remove removes a member. It is false if that was not there.
func (s *ipset) remove(m intent.Member) bool {
	addr, host, ok := s.classify(m)
	switch {
	case !ok:
		return false
	case host:
		elems, key := s.exact[slot(addr)].elems, s.hostKey(addr, m)
		_, there := elems.Desired(key)
		elems.Undesire(key)
		return there
	default:
		if _, there := s.raw[m.Prefix]; !there {
			return false
		}
		delete(s.raw, m.Prefix)
		p := m.Prefix.Masked()
		s.changed(addr, s.covers[slot(addr)].remove)(p)
		if s.masked[p]--; s.masked[p] > 0 {
			return false
		}
		delete(s.masked, p)
		return true
	}
}

// classify distinguishes hosts from prefixes. A set of ports has hosts only; anything else is no member.
func (s *ipset) classify(m intent.Member) (addr netip.Addr, host, ok bool) {
	if !m.Prefix.IsValid() || m.Prefix.Addr().Is4In6() {
		return addr, false, false
	}
	host = m.Prefix.IsSingleIP()
	return m.Prefix.Addr(), host, host || s.kind == intent.SetAddrs
}

func (s *ipset) hostKey(a netip.Addr, m intent.Member) string {
	if s.kind == intent.SetPorts {
		return string(nftables.KeyConcat(a.AsSlice(), nftables.KeyProto(m.Proto), nftables.KeyPort(m.Port)))
	}
	return string(a.AsSlice())
}

// changed returns a function that changes a cover by a prefix, and applies the difference to the kernel set.
func (s *ipset) changed(a netip.Addr, change func(netip.Prefix) (gain, lose []netip.Prefix)) func(netip.Prefix) {
	return func(p netip.Prefix) {
		gain, lose := change(p)
		k := s.ranges[slot(a)]
		for _, q := range lose {
			k.elems.Undesire(elementID(nftables.PrefixElement(q)))
		}
		for _, q := range gain {
			k.elems.Desire(elementID(nftables.PrefixElement(q)), "")
		}
	}
}

// clear removes all members.
func (s *ipset) clear() {
	for i := range families {
		for _, k := range []*kset{s.exact[i], s.ranges[i]} {
			if k != nil {
				k.undesireAll()
			}
		}
		s.covers[i] = cover{}
	}
	clear(s.raw)
	clear(s.masked)
}
