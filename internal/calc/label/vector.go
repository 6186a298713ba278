package label

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// vector is all items with the same own labels and the same parents.
type vector[T any] struct {
	pairs []pair // own labels, sorted
	*parentList[T]
	in    []ID // the selectors that select it, sorted
	first *Item[T]
	chain *vector[T] // another of the same hash
	slot  uint32
}

func (v *vector[T]) has(id ID) bool {
	_, ok := slices.BinarySearch(v.in, id)
	return ok
}

// pair is a label by symbols.
type pair struct{ name, value uint32 }

func comparePairs(a, b pair) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
}

// parent is what items can inherit labels from. It is known while it has labels or vectors.
type parent[T any] struct {
	name    string
	labels  map[string]string
	vectors posting
	serial  uint64 // for hashes
}

// parentList is the parents of many vectors, in order.
type parentList[T any] struct {
	parents []*parent[T]
	users   int
}

func (x *Index[T]) parentList(parents []string) *parentList[T] {
	key := parentListKey(parents)
	l := x.parentLists[key]
	if l == nil {
		l = &parentList[T]{}
		for _, name := range parents {
			l.parents = append(l.parents, x.parent(name))
		}
		x.parentLists[key] = l
	}
	return l
}

// parentListKey is the names with their lengths, so that no two lists have one key.
func parentListKey(parents []string) string {
	var b strings.Builder
	for _, p := range parents {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

func names[T any](ps []*parent[T]) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.name
	}
	return out
}

// vector returns the one for these labels and parents; a new one has been judged.
func (x *Index[T]) vector(labels map[string]string, parents []string) *vector[T] {
	hash, known := x.find(labels, parents)
	if known {
		for v := x.vectors[hash]; v != nil; v = v.chain {
			if slices.Equal(v.pairs, x.scratch) && sameParents(v.parents, parents) {
				return v
			}
		}
	}
	v := &vector[T]{pairs: make([]pair, 0, len(labels)), parentList: x.parentList(parents)}
	for name, value := range labels {
		v.pairs = append(v.pairs, pair{x.symbols.hold(name), x.symbols.hold(value)})
	}
	slices.SortFunc(v.pairs, comparePairs)
	x.insert(v, hashOf(v.pairs, v.parents))
	v.in = x.matching(v)
	return v
}

// find puts the labels into scratch; known means that all symbols and parents
// exist, so that there may be such a vector.
func (x *Index[T]) find(labels map[string]string, parents []string) (hash uint64, known bool) {
	x.scratch = x.scratch[:0]
	for name, value := range labels {
		n, ok1 := x.symbols.find(name)
		v, ok2 := x.symbols.find(value)
		if !ok1 || !ok2 {
			return 0, false
		}
		x.scratch = append(x.scratch, pair{n, v})
	}
	slices.SortFunc(x.scratch, comparePairs)
	hash = hashOf[T](x.scratch, nil)
	for _, name := range parents {
		p := x.parents[name]
		if p == nil {
			return 0, false
		}
		hash = mix(hash, p.serial)
	}
	return hash, true
}

func hashOf[T any](pairs []pair, parents []*parent[T]) uint64 {
	h := uint64(len(pairs))
	for _, p := range pairs {
		h = mix(h, uint64(p.name)<<32|uint64(p.value))
	}
	for _, p := range parents {
		h = mix(h, p.serial)
	}
	return h
}

// mix is one step of a multiplicative hash (the constant is 2⁶⁴ over the golden ratio).
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func sameParents[T any](a []*parent[T], names []string) bool {
	return slices.EqualFunc(a, names, func(p *parent[T], name string) bool { return p.name == name })
}

// insert gives a vector its slot and puts it into all indexes.
func (x *Index[T]) insert(v *vector[T], hash uint64) {
	if n := len(x.free); n > 0 {
		v.slot = x.free[n-1]
		x.free = x.free[:n-1]
		x.slots[v.slot] = v
	} else {
		v.slot = uint32(len(x.slots))
		x.slots = append(x.slots, v)
	}
	v.chain = x.vectors[hash]
	x.vectors[hash] = v
	v.users++
	for _, p := range v.pairs {
		of := x.byLabel[p.name]
		if of == nil {
			of = &values{by: map[uint32]*posting{}}
			x.byLabel[p.name] = of
		}
		of.add(p.value, v.slot)
	}
	for i, p := range v.parents {
		if slices.Index(v.parents, p) == i {
			p.vectors.add(v.slot)
		}
	}
	x.view.reset()
}

// remove is the opposite of enter.
func (x *Index[T]) remove(v *vector[T]) {
	x.slots[v.slot] = nil
	x.free = append(x.free, v.slot)
	hash := hashOf(v.pairs, v.parents)
	if x.vectors[hash] == v {
		if v.chain == nil {
			delete(x.vectors, hash)
		} else {
			x.vectors[hash] = v.chain
		}
	} else {
		before := x.vectors[hash]
		for before.chain != v {
			before = before.chain
		}
		before.chain = v.chain
	}
	for _, p := range v.pairs {
		of := x.byLabel[p.name]
		if of.remove(p.value, func(slot uint32) bool { return x.slots[slot] != nil && slices.Contains(x.slots[slot].pairs, p) }); of.live == 0 {
			delete(x.byLabel, p.name)
		}
	}
	for _, p := range v.pairs {
		x.symbols.release(p.name)
		x.symbols.release(p.value)
	}
	for i, p := range v.parents {
		if slices.Index(v.parents, p) == i {
			p.vectors.remove(func(slot uint32) bool { return x.slots[slot] != nil && slices.Contains(x.slots[slot].parents, p) })
			x.dropParent(p)
		}
	}
	if v.users--; v.users == 0 {
		delete(x.parentLists, parentListKey(names(v.parents)))
	}
	x.view.reset()
}

func (x *Index[T]) parent(name string) *parent[T] {
	p := x.parents[name]
	if p == nil {
		x.symbols.serial++
		p = &parent[T]{name: name, serial: x.symbols.serial}
		x.parents[name] = p
	}
	return p
}

func (x *Index[T]) dropParent(p *parent[T]) {
	if len(p.labels) == 0 && p.vectors.live() == 0 && x.parents[p.name] == p {
		delete(x.parents, p.name)
	}
}

// indexParent notes or forgets by which labels a parent can be found.
func (x *Index[T]) indexParent(p *parent[T], there bool) {
	for name, value := range p.labels {
		if there {
			if x.byParent[name] == nil {
				x.byParent[name] = map[string]map[*parent[T]]struct{}{}
			}
			if x.byParent[name][value] == nil {
				x.byParent[name][value] = map[*parent[T]]struct{}{}
			}
			x.byParent[name][value][p] = struct{}{}
			continue
		}
		if delete(x.byParent[name][value], p); len(x.byParent[name][value]) == 0 {
			delete(x.byParent[name], value)
		}
		if len(x.byParent[name]) == 0 {
			delete(x.byParent, name)
		}
	}
}

// eachCandidate calls yield once for each vector that has what is needed of one
// label: the one that fewest vectors have.
func (x *Index[T]) eachCandidate(needs []requirement, yield func(*vector[T])) {
	best, cost := -1, 0
	for i := range needs {
		n := 0
		x.eachPosting(&needs[i], func(p *posting) { n += len(p.slots) })
		if best < 0 || n < cost {
			best, cost = i, n
		}
	}
	if best < 0 {
		for _, v := range x.slots {
			if v != nil {
				yield(v)
			}
		}
		return
	}
	var slots []uint32
	x.eachPosting(&needs[best], func(p *posting) { slots = append(slots, p.slots...) })
	slices.Sort(slots)
	for _, slot := range slices.Compact(slots) {
		if v := x.slots[slot]; v != nil {
			yield(v)
		}
	}
}

// eachPosting calls yield for all postings that hold vectors with a label, by themselves or by a parent.
func (x *Index[T]) eachPosting(n *requirement, yield func(*posting)) {
	if sym, ok := x.symbols.find(n.label); ok && x.byLabel[sym] != nil {
		if n.values == nil {
			for _, p := range x.byLabel[sym].by {
				yield(p)
			}
		}
		for _, value := range n.values {
			if v, ok := x.symbols.find(value); ok && x.byLabel[sym].by[v] != nil {
				yield(x.byLabel[sym].by[v])
			}
		}
	}
	of := x.byParent[n.label]
	if n.values == nil {
		for value := range maps.Keys(of) {
			yieldParents(of[value], yield)
		}
	}
	for _, value := range n.values {
		yieldParents(of[value], yield)
	}
}

func yieldParents[T any](ps map[*parent[T]]struct{}, yield func(*posting)) {
	for p := range ps {
		yield(&p.vectors)
	}
}

// matching asks all selectors that may select a vector; the answer is sorted.
func (x *Index[T]) matching(v *vector[T]) []ID {
	if len(x.selectorIndex.byID) == 0 {
		return nil
	}
	var out []ID
	x.selectorIndex.each(func(yield func(name, value string)) {
		for _, p := range v.pairs {
			yield(x.symbols.text[p.name], x.symbols.text[p.value])
		}
		for _, p := range v.parents {
			for name, value := range p.labels {
				yield(name, value)
			}
		}
	}, func(id ID, w *selectorEntry) {
		if x.matches(w.sel, v) {
			out = append(out, id)
		}
	})
	slices.Sort(out)
	return slices.Clip(slices.Compact(out))
}
