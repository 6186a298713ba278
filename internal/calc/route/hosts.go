package route

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// hosts are the addresses of hosts at other ends of tunnels, and networks of others that are as good, of which there is a set while this node has one of these tunnels.
type hosts struct {
	comment string
	count   map[netip.Prefix]int  // how many peers have the address
	changed map[netip.Prefix]bool // since the last flush: whether the set had it
	open    bool                  // the set was sent
}

// newHosts returns those of every set that some kind of tunnel has.
func newHosts() map[intent.SetID]*hosts {
	out := map[intent.SetID]*hosts{}
	for k := range intent.TunnelKinds {
		if id := k.Peers(); id != "" && out[id] == nil {
			out[id] = &hosts{comment: "hosts at the other ends of " + k.String() + " tunnels", count: map[netip.Prefix]int{}, changed: map[netip.Prefix]bool{}}
		}
	}
	return out
}

// add notes that a peer has an address, or with -1 that it has it no more. Without a set nothing is noted.
func (s *hosts) add(a netip.Prefix, by int) {
	if s == nil {
		return
	}
	if _, known := s.changed[a]; !known {
		s.changed[a] = s.count[a] > 0
	}
	if s.count[a] += by; s.count[a] == 0 {
		delete(s.count, a)
	}
}

// flush sends the set: whole if it is new, and what changed of it otherwise. It reports whether it is gone.
func (s *hosts) flush(b *intent.Batch, id intent.SetID, open bool) (gone bool) {
	changed, was := s.changed, s.open
	s.changed, s.open = map[netip.Prefix]bool{}, open
	if !open {
		return was
	}
	if !was {
		b.IPSets = append(b.IPSets, s.set(id))
		return false
	}
	d := intent.MemberDelta{Set: id}
	for _, a := range slices.SortedFunc(maps.Keys(changed), comparePrefixes) {
		switch has := s.count[a] > 0; {
		case has && !changed[a]:
			d.Added = append(d.Added, intent.Member{Prefix: a})
		case !has && changed[a]:
			d.Removed = append(d.Removed, intent.Member{Prefix: a})
		}
	}
	if len(d.Added)+len(d.Removed) > 0 {
		b.Members = append(b.Members, d)
	}
	return false
}

// set returns all of it.
func (s *hosts) set(id intent.SetID) intent.IPSet {
	out := intent.IPSet{ID: id, Comment: s.comment}
	for _, a := range slices.SortedFunc(maps.Keys(s.count), comparePrefixes) {
		out.Members = append(out.Members, intent.Member{Prefix: a})
	}
	return out
}
