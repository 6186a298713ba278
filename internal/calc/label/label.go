// Package label knows which selectors select which items.
//
// In: items under labels, profiles whose labels items inherit, and selectors.
// Out: a call before each change in what a selector selects; and at any time
// which selectors select an item, and which items a selector selects.
//
// Items with the same own labels and the same parents share a vector. A selector
// is asked once for each vector, and only for those that have a label which it
// demands; likewise only those selectors are asked about a new vector that
// demand a label which it has.
package label

import (
	"maps"
	"slices"

	"github.com/twillnet/twill/api/selector"
)

// ID names a selector that was added. It is an alias so that users need not import this package.
type ID = uint32

// Index holds items that carry a T. Use New.
type Index[T any] struct {
	changing      func(ID, *Item[T])
	items         map[string]*Item[T]
	vectors       map[uint64]*vector[T] // by hash; see vector.chain
	slots         []*vector[T]          // what postings refer to; nil: free
	free          []uint32
	symbols       symbols
	byLabel       map[uint32]*values // vectors by their own labels
	parents       map[string]*parent[T]
	parentLists   map[string]*parentList[T]
	byParent      map[string]map[string]map[*parent[T]]struct{} // parents by label and value
	selectorIndex selectorIndex
	view          view[T] // scratch, so that asking a selector allocates nothing
	scratch       []pair
}

// Item is something under labels.
type Item[T any] struct {
	Value      T
	vec        *vector[T]
	prev, next *Item[T] // in vec
}

// New returns an empty index. It calls changing before an item enters or leaves
// a selection; when the item is replaced by another of the same key, for both.
func New[T any](changing func(ID, *Item[T])) *Index[T] {
	x := &Index[T]{
		changing: changing, items: map[string]*Item[T]{}, vectors: map[uint64]*vector[T]{}, symbols: newSymbols(),
		byLabel: map[uint32]*values{}, parents: map[string]*parent[T]{}, parentLists: map[string]*parentList[T]{}, byParent: map[string]map[string]map[*parent[T]]struct{}{}, selectorIndex: newSelectorIndex(),
	}
	x.view.x = x
	return x
}

// Get returns the item of a key, or nil.
func (x *Index[T]) Get(key string) *Item[T] { return x.items[key] }

// Each calls yield for each item, in no order.
func (x *Index[T]) Each(yield func(key string, it *Item[T])) {
	for key, it := range x.items {
		yield(key, it)
	}
}

// Put sets the item of a key. Of parents the earlier beats the later; own labels beat both.
func (x *Index[T]) Put(key string, labels map[string]string, parents []string, value T) *Item[T] {
	it := &Item[T]{Value: value, vec: x.vector(labels, parents)}
	old := x.items[key]
	if old != nil {
		x.announce(old)
	}
	x.announce(it)
	x.items[key] = it
	it.link()
	if old != nil {
		x.unlink(old)
	}
	return it
}

// Remove forgets the item of a key, and returns it, or nil.
func (x *Index[T]) Remove(key string) *Item[T] {
	it := x.items[key]
	if it == nil {
		return nil
	}
	x.announce(it)
	delete(x.items, key)
	x.unlink(it)
	return it
}

func (x *Index[T]) announce(it *Item[T]) {
	for _, id := range it.vec.in {
		x.changing(id, it)
	}
}

func (it *Item[T]) link() {
	it.next = it.vec.first
	if it.next != nil {
		it.next.prev = it
	}
	it.vec.first = it
}

// unlink takes an item out of its vector, and forgets a vector without items.
func (x *Index[T]) unlink(it *Item[T]) {
	if it.next != nil {
		it.next.prev = it.prev
	}
	if it.prev != nil {
		it.prev.next = it.next
		return
	}
	if it.vec.first = it.next; it.vec.first == nil {
		x.remove(it.vec)
	}
}

// SetParent changes what a parent gives its items; nil when it is gone.
func (x *Index[T]) SetParent(name string, labels map[string]string) {
	p := x.parents[name]
	if p == nil {
		if len(labels) == 0 {
			return
		}
		p = x.parent(name)
	}
	if maps.Equal(p.labels, labels) {
		return
	}
	x.indexParent(p, false)
	p.labels = maps.Clone(labels)
	x.indexParent(p, true)
	for _, slot := range p.vectors.unique(nil) {
		if v := x.slots[slot]; v != nil && slices.Contains(v.parents, p) {
			x.reevaluate(v)
		}
	}
	x.dropParent(p)
}

// reevaluate asks all selectors that may have changed their mind about a vector.
func (x *Index[T]) reevaluate(v *vector[T]) {
	now := x.matching(v)
	for _, id := range v.in {
		if _, stays := slices.BinarySearch(now, id); !stays {
			x.announceAll(id, v)
		}
	}
	for _, id := range now {
		if !v.has(id) {
			x.announceAll(id, v)
		}
	}
	v.in = now
}

func (x *Index[T]) announceAll(id ID, v *vector[T]) {
	for it := v.first; it != nil; it = it.next {
		x.changing(id, it)
	}
}

// Add takes in a selector.
func (x *Index[T]) Add(sel *selector.Selector) ID {
	id := x.selectorIndex.add(sel)
	x.eachCandidate(x.selectorIndex.byID[id].requirements, func(v *vector[T]) {
		if x.matches(sel, v) {
			x.announceAll(id, v)
			at, _ := slices.BinarySearch(v.in, id)
			v.in = slices.Insert(v.in, at, id)
		}
	})
	return id
}

// Drop lets a selector go. Its ID may be given to another.
func (x *Index[T]) Drop(id ID) {
	x.eachCandidate(x.selectorIndex.byID[id].requirements, func(v *vector[T]) {
		if at, ok := slices.BinarySearch(v.in, id); ok {
			x.announceAll(id, v)
			v.in = slices.Delete(v.in, at, at+1)
		}
	})
	x.selectorIndex.drop(id)
}

// Selectors returns those that select an item, in the order of their IDs. The
// slice is the index's own and holds until the next change.
func (x *Index[T]) Selectors(it *Item[T]) []ID { return it.vec.in }

// Selects reports whether a selector selects an item.
func (x *Index[T]) Selects(id ID, it *Item[T]) bool { return it.vec.has(id) }

// Selected calls yield for each item that a selector selects.
func (x *Index[T]) Selected(id ID, yield func(*Item[T])) {
	x.eachCandidate(x.selectorIndex.byID[id].requirements, func(v *vector[T]) {
		if !v.has(id) {
			return
		}
		for it := v.first; it != nil; it = it.next {
			yield(it)
		}
	})
}

// view shows a selector a vector's labels, its own and those inherited.
type view[T any] struct {
	x    *Index[T]
	v    *vector[T]
	name string // asked last, and its symbol, since one selector asks the same of many vectors
	sym  uint32
	ok   bool
}

// reset forgets the symbol, which may be given to another text.
func (w *view[T]) reset() { w.name, w.ok = "", false }

// Get is that of selector.Labels.
func (w *view[T]) Get(name string) (string, bool) {
	if name != w.name {
		w.name = name
		w.sym, w.ok = w.x.symbols.find(name)
	}
	if w.ok {
		for _, p := range w.v.pairs {
			if p.name == w.sym {
				return w.x.symbols.text[p.value], true
			}
		}
	}
	for _, p := range w.v.parents {
		if s, ok := p.labels[name]; ok {
			return s, true
		}
	}
	return "", false
}

func (x *Index[T]) matches(sel *selector.Selector, v *vector[T]) bool {
	x.view.v = v
	return sel.MatchLabels(&x.view)
}

// Value returns what an item carries.
func (x *Index[T]) Value(it *Item[T]) *T { return &it.Value }

// Len counts what the index holds: nothing, once all has been taken away.
func (x *Index[T]) Len() int {
	return len(x.items) + len(x.vectors) + len(x.slots) - len(x.free) + len(x.byLabel) + len(x.parents) + len(x.parentLists) + len(x.byParent) +
		len(x.symbols.ids) + len(x.selectorIndex.byID) + len(x.selectorIndex.byValue) + len(x.selectorIndex.byName) + len(x.selectorIndex.always)
}
