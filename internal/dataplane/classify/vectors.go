package classify

import (
	"encoding/binary"
	"slices"
)

// selection is the id of a set of addresses that rules ask for.
type selection uint32

// vector is a set of selections, stored once for each content.
type vector struct {
	of   []selection // sorted
	key  string
	refs int
	next map[selection]*vector // with one more or less: a cache of recent results
}

// vectors stores them.
type vectors struct {
	byKey map[string]*vector
	none  *vector
	loose []*vector // those that may have no users, or have cached neighbours
}

func newVectors() vectors {
	none := &vector{refs: 1}
	return vectors{byKey: map[string]*vector{"": none}, none: none}
}

func vectorKey(of []selection) string {
	b := make([]byte, 0, 4*len(of))
	for _, s := range of {
		b = binary.BigEndian.AppendUint32(b, uint32(s))
	}
	return string(b)
}

// intern returns the vector of a sorted list, which it keeps.
func (x *vectors) intern(of []selection) *vector {
	key := vectorKey(of)
	v := x.byKey[key]
	if v == nil {
		v = &vector{of: of, key: key}
		x.byKey[key] = v
		x.loose = append(x.loose, v)
	}
	return v
}

// toggled returns v with s added if it lacks it, and removed else.
func (x *vectors) toggled(v *vector, s selection) *vector {
	if to := v.next[s]; to != nil && x.byKey[to.key] == to {
		return to
	}
	i, had := slices.BinarySearch(v.of, s)
	of := make([]selection, 0, len(v.of)+1)
	of = append(of, v.of[:i]...)
	if had {
		of = append(of, v.of[i+1:]...)
	} else {
		of = append(append(of, s), v.of[i:]...)
	}
	to := x.intern(of)
	if v.next == nil {
		v.next = map[selection]*vector{}
		x.loose = append(x.loose, v)
	}
	v.next[s] = to
	return to
}

// union returns the vector of what is in either.
func (x *vectors) union(a, b *vector) *vector {
	switch {
	case a == b || len(b.of) == 0:
		return a
	case len(a.of) == 0:
		return b
	}
	of := slices.Concat(a.of, b.of)
	slices.Sort(of)
	return x.intern(slices.Compact(of))
}

func (v *vector) has(s selection) bool {
	_, ok := slices.BinarySearch(v.of, s)
	return ok
}

func (x *vectors) hold(v *vector) *vector {
	v.refs++
	return v
}

func (x *vectors) drop(v *vector) {
	if v.refs--; v.refs == 0 {
		x.loose = append(x.loose, v)
	}
}

// sweep deletes the vectors without users, and the caches.
func (x *vectors) sweep() {
	for _, v := range x.loose {
		if v.next = nil; v.refs == 0 {
			delete(x.byKey, v.key)
		}
	}
	x.loose = x.loose[:0]
}
