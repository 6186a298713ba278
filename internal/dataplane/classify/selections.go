package classify

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// pair is the protocol and port of members of a set of ports.
type pair struct {
	proto uint8
	port  uint16
}

// selectionKey identifies addresses: the members of a set; the members of a set of ports that have one pair; or those in any
// prefix of a list.
type selectionKey struct {
	set  intent.SetID
	pair pair
	nets string
}

// content stands for what is selected, by whatever number.
func (k selectionKey) content() uint64 {
	return contentOf(fmt.Sprintf("%q %d %d %q", string(k.set), k.pair.proto, k.pair.port, k.nets))
}

type selected struct {
	id     selection
	key    selectionKey
	nets   []netip.Prefix
	refs   int
	loaded bool // the members are in the space
}

// selections are all that rules of local groups ask for.
type selections struct {
	members Members
	byKey   map[selectionKey]*selected
	bySet   map[intent.SetID]map[pair]*selected
	byID    map[selection]*selected
	changed map[selectionKey]*selected // acquired first or released last since the last settle
	ids     ids
}

func newSelections(m Members) selections {
	return selections{
		members: m, byKey: map[selectionKey]*selected{}, bySet: map[intent.SetID]map[pair]*selected{},
		byID: map[selection]*selected{}, changed: map[selectionKey]*selected{}, ids: ids{next: 1},
	}
}

func netsKey(nets []netip.Prefix) string {
	var b strings.Builder
	for _, n := range nets {
		fmt.Fprint(&b, n, " ")
	}
	return b.String()
}

// ask increments the users of a selection, and returns its id.
func (x *selections) ask(key selectionKey, nets []netip.Prefix) selection {
	s := x.byKey[key]
	if s == nil {
		s = &selected{id: selection(x.ids.take()), key: key, nets: nets}
		x.byKey[key] = s
		x.byID[s.id] = s
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

// leave decrements the users of a selection. The next settle deletes it if there are none.
func (x *selections) leave(key selectionKey) {
	s := x.byKey[key]
	if s.refs--; s.refs == 0 {
		x.changed[key] = s
	}
}

// change adds or removes one member.
func (x *selections) change(to *space, set intent.SetID, m intent.Member, member bool) {
	if s := x.bySet[set][pair{m.Proto, m.Port}]; s != nil && s.loaded {
		to.put(m.Prefix.Masked(), s.id, member)
	}
}

// settle adds the members of new selections to the space, and removes those of unused ones. It visits each set once, whatever the number
// of its ports that are selections.
func (x *selections) settle(to *space) {
	sets := map[intent.SetID]map[pair]*selected{}
	for key, s := range x.changed {
		if wanted := s.refs > 0; wanted == s.loaded {
			continue
		}
		for _, n := range s.nets {
			to.put(n.Masked(), s.id, !s.loaded)
		}
		if key.nets == "" {
			if sets[key.set] == nil {
				sets[key.set] = map[pair]*selected{}
			}
			sets[key.set][key.pair] = s
		}
	}
	for set, of := range sets {
		x.members.Each(set, func(m intent.Member) {
			if s := of[pair{m.Proto, m.Port}]; s != nil {
				to.put(m.Prefix.Masked(), s.id, !s.loaded)
			}
		})
	}
	for key, s := range x.changed {
		if s.loaded = s.refs > 0; s.loaded {
			continue
		}
		delete(x.byKey, key)
		delete(x.byID, s.id)
		delete(to.content, s.id)
		x.ids.release(uint32(s.id))
		if delete(x.bySet[key.set], key.pair); len(x.bySet[key.set]) == 0 {
			delete(x.bySet, key.set)
		}
	}
	x.changed = empty(x.changed)
}

// someOf is how many selections of a class are named.
const someOf = 8

// about names some selections of a vector, which follow from what they are.
func (s *State) about(of *vector) About {
	some := make([]selection, 0, someOf+1)
	for _, x := range of.of {
		at, _ := slices.BinarySearchFunc(some, x, func(a, b selection) int { return cmp.Compare(s.space.content[a], s.space.content[b]) })
		if some = slices.Insert(some, at, x); len(some) > someOf {
			some = some[:someOf]
		}
	}
	out := About{More: len(of.of) - len(some)}
	for _, x := range some {
		key := s.selections.byID[x].key
		out.Some = append(out.Some, Selection{key.set, key.pair.proto, key.pair.port, key.nets})
	}
	return out
}
