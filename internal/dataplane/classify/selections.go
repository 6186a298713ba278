package classify

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// pair is a protocol and port of members of a set of ports.
type pair struct {
	proto uint8
	port  uint16
}

// selectionKey says which addresses are selected: those of a set; of a set of ports those that have one pair; or those in any
// prefix of a list.
type selectionKey struct {
	set  intent.SetID
	pair pair
	nets string
}

type selected struct {
	id   selection
	key  selectionKey
	nets []netip.Prefix
	refs int
	told bool // the members are in the space
}

// selections are all that rules of local groups ask for.
type selections struct {
	members Members
	byKey   map[selectionKey]*selected
	bySet   map[intent.SetID]map[pair]*selected
	changed map[selectionKey]*selected // came or went since the last settle
	ids     ids
}

func newSelections(m Members) selections {
	return selections{
		members: m, byKey: map[selectionKey]*selected{}, bySet: map[intent.SetID]map[pair]*selected{},
		changed: map[selectionKey]*selected{}, ids: ids{next: 1},
	}
}

func netsKey(nets []netip.Prefix) string {
	var b strings.Builder
	for _, n := range nets {
		fmt.Fprint(&b, n, " ")
	}
	return b.String()
}

// ask counts one more who asks, and gives the selection's number.
func (x *selections) ask(key selectionKey, nets []netip.Prefix) selection {
	s := x.byKey[key]
	if s == nil {
		s = &selected{id: selection(x.ids.take()), key: key, nets: nets}
		x.byKey[key] = s
		x.changed[key] = s
		if key.nets == "" {
			if x.bySet[key.set] == nil {
				x.bySet[key.set] = map[pair]*selected{}
			}
			x.bySet[key.set][key.pair] = s
		}
	}
	s.refs++
	return s.id
}

// leave counts one less. A selection that nobody asks for goes at the next settle.
func (x *selections) leave(key selectionKey) {
	s := x.byKey[key]
	if s.refs--; s.refs == 0 {
		x.changed[key] = s
	}
}

// change tells of one member that came or went.
func (x *selections) change(to *space, set intent.SetID, m intent.Member, member bool) {
	if s := x.bySet[set][pair{m.Proto, m.Port}]; s != nil && s.told {
		to.put(m.Prefix.Masked(), s.id, member)
	}
}

// settle brings the members of selections that are new into the space, and takes those of others out.
func (x *selections) settle(to *space) {
	for key, s := range x.changed {
		if wanted := s.refs > 0; wanted != s.told {
			x.each(s, func(p netip.Prefix) { to.put(p, s.id, wanted) })
			s.told = wanted
		}
		if s.refs > 0 {
			continue
		}
		delete(x.byKey, key)
		x.ids.release(uint32(s.id))
		if delete(x.bySet[key.set], key.pair); len(x.bySet[key.set]) == 0 {
			delete(x.bySet, key.set)
		}
	}
	clear(x.changed)
}

func (x *selections) each(s *selected, f func(netip.Prefix)) {
	for _, n := range s.nets {
		f(n.Masked())
	}
	if s.key.nets == "" {
		x.members.Each(s.key.set, func(m intent.Member) {
			if (pair{m.Proto, m.Port}) == s.key.pair {
				f(m.Prefix.Masked())
			}
		})
	}
}
