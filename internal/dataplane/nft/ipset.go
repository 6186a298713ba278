package nft

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// families, in the order in which they are rendered.
var families = [2]intent.Family{intent.IPv4, intent.IPv6}

// slot is the place of an address's family in arrays of two.
func slot(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// ipset is a set as wanted: of addresses, or of named ports.
type ipset struct {
	id      intent.SetID
	kind    intent.SetKind
	comment string
	exact   [2]*kset // hosts, or address . protocol . port
	// Prefixes that are not hosts. A member may come unmasked, so that two are the same prefix.
	ranges [2]*kset
	raw    map[netip.Prefix]struct{}
	covers [2]cover

	counted int // members, when a policy that refers to it was last priced
}

// kinds are the kernel sets that rules must ask for in a family.
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

// count is the number of members of a family.
func (s *ipset) count(slot int) int {
	n := s.exact[slot].elems.Len()
	if s.ranges[slot] != nil {
		n += s.covers[slot].n
	}
	return n
}

func (s *ipset) key() intent.Key { return intent.Key{Kind: intent.KeyIPSet, ID: string(s.id)} }

// newIPSet names the kernel sets; those for hosts and ports exist even without members, so that rules need not change
// when the first one comes.
func (d *Driver) newIPSet(in intent.IPSet) *ipset {
	s := &ipset{id: in.ID, kind: in.Kind, comment: in.Comment}
	for i, f := range families {
		addr := nftables.TypeIPv4Addr
		if f == intent.IPv6 {
			addr = nftables.TypeIPv6Addr
		}
		spec := nftables.Set{Table: d.cfg.Table, Key: addr, Comment: comment(in.Comment)}
		if in.Kind == intent.SetPorts {
			spec.Key = nftables.Concat(addr, nftables.TypeInetProto, nftables.TypeInetService)
			spec.Name = setName("ports", f, in.ID)
			s.exact[i] = d.kset(spec, s.key())
			continue
		}
		spec.Name = setName("hosts", f, in.ID)
		s.exact[i] = d.kset(spec, s.key())
		spec.Name, spec.Interval = setName("nets", f, in.ID), true
		s.ranges[i] = d.kset(spec, s.key())
	}
	if in.Kind == intent.SetAddrs {
		s.raw = map[netip.Prefix]struct{}{}
	}
	return s
}

// add puts a member in.
func (s *ipset) add(m intent.Member) {
	addr, host, ok := s.classify(m)
	switch {
	case !ok:
	case host:
		s.exact[slot(addr)].elems.Desire(s.hostKey(addr, m), "")
	default:
		if _, there := s.raw[m.Prefix]; there {
			return
		}
		s.raw[m.Prefix] = struct{}{}
		s.changed(addr, s.covers[slot(addr)].add)(m.Prefix.Masked())
	}
}

// remove takes a member out.
func (s *ipset) remove(m intent.Member) {
	addr, host, ok := s.classify(m)
	switch {
	case !ok:
	case host:
		s.exact[slot(addr)].elems.Undesire(s.hostKey(addr, m))
	default:
		if _, there := s.raw[m.Prefix]; !there {
			return
		}
		delete(s.raw, m.Prefix)
		s.changed(addr, s.covers[slot(addr)].remove)(m.Prefix.Masked())
	}
}

// classify tells hosts from prefixes. A set of ports has hosts only; what is neither is no member.
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

// changed carries what a cover gains and loses into the kernel set.
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

// release lets the kernel sets be forgotten once they are gone.
func (s *ipset) release() {
	for i := range families {
		for _, k := range []*kset{s.exact[i], s.ranges[i]} {
			if k != nil {
				k.held = false
			}
		}
	}
}

// freeNames gives the names of the kernel sets to who waits for them; its own claims end.
func (d *Driver) freeNames(s *ipset) {
	for i := range families {
		for _, k := range []*kset{s.exact[i], s.ranges[i]} {
			switch {
			case k == nil:
			case k.apart:
				d.waiting.remove(k.spec.Name, s.key())
			default:
				d.free(k.spec.Name)
			}
		}
	}
}

// clear takes all members out.
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
}
