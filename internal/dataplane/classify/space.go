package classify

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// class is an id, and the selections that its addresses are in.
type class struct {
	id     Class
	family int
	of     *vector
	refs   int // number of addresses and prefixes
	fresh  bool
	in     map[*group]struct{} // groups that have an entry for it
}

type classKey struct {
	family int
	of     *vector
}

// place is a host address or a prefix that is a member of a selection.
type place struct {
	own   *vector // its selections; its class is that of these and of those of the prefixes that contain it
	class *class  // as of the last Flush
}

// space is all addresses that are in a selection.
type space struct {
	vectors
	places  bart.Table[place]
	nets    int // number of places that are no host address
	dirty   map[netip.Prefix]struct{}
	classes map[classKey]*class
	with    map[selection]map[*class]struct{}
	ids     [2]numbers           // by family
	content map[selection]uint64 // what stands behind each
	came    []*class             // by this Flush
	gone    []*class
	work    int // steps, see State.Work
}

func newSpace() space {
	return space{
		vectors: newVectors(), dirty: map[netip.Prefix]struct{}{}, classes: map[classKey]*class{},
		with: map[selection]map[*class]struct{}{}, content: map[selection]uint64{},
		ids: [2]numbers{newNumbers(uint32(FirstClass4), uint32(LastClass4)), newNumbers(uint32(FirstClass6), uint32(LastClass6))},
	}
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// put makes a prefix a member of a selection, or no member.
func (x *space) put(p netip.Prefix, s selection, member bool) {
	x.work++
	x.places.Modify(p, func(at place, ok bool) (place, bool) {
		if !ok && !member {
			return at, true
		}
		if !ok {
			at.own = x.hold(x.none)
			if !p.IsSingleIP() {
				x.nets++
			}
		}
		if at.own.has(s) != member {
			to := x.hold(x.toggled(at.own, s))
			x.drop(at.own)
			at.own = to
			x.dirty[p] = struct{}{}
		}
		return at, false
	})
}

// settle computes the class of each changed place, and records those that have another one.
func (x *space) settle(turn map[netip.Prefix]Class) {
	below := map[netip.Prefix]struct{}{}
	for p := range x.dirty {
		if !p.IsSingleIP() {
			for q := range x.places.Subnets(p) {
				below[q] = struct{}{}
			}
		}
	}
	for p := range x.dirty {
		x.place(p, turn)
		delete(below, p)
	}
	for p := range below {
		x.place(p, turn)
	}
	x.dirty = empty(x.dirty)
	x.bury()
	x.sweep()
}

// place computes the class of one place.
func (x *space) place(p netip.Prefix, turn map[netip.Prefix]Class) {
	at, _ := x.places.Get(p)
	was := at.class
	x.work += 1 + len(at.own.of)
	if len(at.own.of) == 0 {
		x.places.Delete(p)
		x.drop(at.own)
		if !p.IsSingleIP() {
			x.nets--
		}
		at.class = nil
	} else {
		of := at.own
		if x.nets > 0 {
			for _, around := range x.places.Supernets(p) {
				of = x.union(of, around.own)
			}
		}
		at.class = x.class(familyOf(p.Addr()), of)
	}
	if at.class == was {
		return
	}
	if at.class != nil {
		at.class.refs++
		x.places.Insert(p, at)
		turn[p] = at.class.id
	} else if turn[p] = 0; was == nil {
		delete(turn, p) // added and removed within one Flush
	}
	if was != nil {
		if was.refs--; was.refs == 0 {
			x.gone = append(x.gone, was)
		}
	}
}

// contentOf stands for the selections of a vector, in whatever order they were numbered.
func (x *space) contentOf(of *vector) (sum uint64) {
	for _, s := range of.of {
		sum ^= x.content[s]
	}
	return sum
}

func (x *space) class(family int, of *vector) *class {
	key := classKey{family, of}
	c := x.classes[key]
	if c == nil {
		c = &class{id: Class(x.ids[family].take(x.contentOf(of))), family: family, of: x.hold(of), fresh: true}
		x.classes[key] = c
		x.came = append(x.came, c)
		for _, s := range of.of {
			if x.with[s] == nil {
				x.with[s] = map[*class]struct{}{}
			}
			x.with[s][c] = struct{}{}
		}
	}
	return c
}

// bury deletes the classes without addresses; one that got an address again stays. A class that was made
// and deleted within one Flush is in no Delta.
func (x *space) bury() {
	gone := x.gone[:0]
	for _, c := range x.gone {
		if c.refs > 0 || x.classes[classKey{c.family, c.of}] != c {
			continue
		}
		delete(x.classes, classKey{c.family, c.of})
		for _, s := range c.of.of {
			if delete(x.with[s], c); len(x.with[s]) == 0 {
				delete(x.with, s)
			}
		}
		x.drop(c.of)
		x.ids[c.family].release(uint32(c.id))
		if !c.fresh {
			gone = append(gone, c)
		}
	}
	x.gone = gone
}
