package calc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
)

// setIndex is the selections that some active rule uses.
type setIndex struct {
	selections map[intent.SetID]*selection
	dirty      map[*selection]bool // since the last flush: new, gone, or with other members
}

func newSetIndex() setIndex {
	return setIndex{selections: map[intent.SetID]*selection{}, dirty: map[*selection]bool{}}
}

// portName asks for the named ports of what is selected.
type portName struct {
	name  string
	proto uint8
}

// selection is one IP set: what a selector selects now.
type selection struct {
	id      intent.SetID
	sel     *selector.Selector
	port    *portName // nil: addresses
	uses    int       // by active rules; at zero it goes with the next flush
	vectors map[*vector]bool
	members map[intent.Member]int  // how many items contribute each
	was     map[intent.Member]bool // of members touched since the last flush: whether it was there
	sent    bool
	dirty   map[*selection]bool // the index's
}

func (s *selection) touch(m intent.Member) {
	if _, ok := s.was[m]; !ok {
		s.was[m] = s.members[m] > 0
	}
	s.dirty[s] = true
}

func (s *selection) add(it *placed) {
	it.members(s.port, func(m intent.Member) {
		s.touch(m)
		s.members[m]++
	})
}

func (s *selection) drop(it *placed) {
	it.members(s.port, func(m intent.Member) {
		s.touch(m)
		if s.members[m]--; s.members[m] == 0 {
			delete(s.members, m)
		}
	})
}

func setID(sel *selector.Selector, port *portName) intent.SetID {
	if port == nil {
		return intent.SetID(sel.UniqueID())
	}
	return intent.SetID(fmt.Sprintf("p:%d:%s:%s", port.proto, port.name, sel.UniqueID()))
}

// use returns the set of a selector and counts one more user.
func (g *Graph) use(sel *selector.Selector, port *portName) intent.SetID {
	id := setID(sel, port)
	s := g.sets.selections[id]
	if s == nil {
		s = &selection{id: id, sel: sel, port: port, vectors: map[*vector]bool{}, members: map[intent.Member]int{},
			was: map[intent.Member]bool{}, dirty: g.sets.dirty}
		g.sets.selections[id] = s
		g.labels.activate(s)
	}
	s.uses++
	g.sets.dirty[s] = true
	return id
}

func (g *Graph) release(id intent.SetID) {
	s := g.sets.selections[id]
	s.uses--
	g.sets.dirty[s] = true
}

// flushSets tells what is new, changed and gone.
func (g *Graph) flushSets(b *intent.Batch) {
	dirty := slices.SortedFunc(maps.Keys(g.sets.dirty), func(a, b *selection) int { return cmp.Compare(a.id, b.id) })
	for _, s := range dirty {
		switch {
		case s.uses == 0:
			delete(g.sets.selections, s.id)
			g.labels.deactivate(s)
			if s.sent {
				b.Removed = append(b.Removed, intent.Key{Kind: intent.KeyIPSet, ID: string(s.id)})
			}
		case !s.sent:
			s.sent = true
			b.IPSets = append(b.IPSets, s.whole())
		default:
			if d := s.delta(); len(d.Added)+len(d.Removed) > 0 {
				b.Members = append(b.Members, d)
			}
		}
		clear(s.was)
	}
	clear(g.sets.dirty)
}

func (s *selection) whole() intent.IPSet {
	out := intent.IPSet{ID: s.id, Comment: s.sel.String(), Members: slices.SortedFunc(maps.Keys(s.members), compareMembers)}
	if s.port != nil {
		out.Kind = intent.SetPorts
		out.Comment = s.port.name + " of " + out.Comment
	}
	return out
}

func (s *selection) delta() intent.MemberDelta {
	d := intent.MemberDelta{Set: s.id}
	for m, was := range s.was {
		switch is := s.members[m] > 0; {
		case is && !was:
			d.Added = append(d.Added, m)
		case was && !is:
			d.Removed = append(d.Removed, m)
		}
	}
	slices.SortFunc(d.Added, compareMembers)
	slices.SortFunc(d.Removed, compareMembers)
	return d
}

func compareMembers(a, b intent.Member) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}
