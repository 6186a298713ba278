package label

import (
	"cmp"
	"slices"

	"github.com/twillnet/twill/api/selector"
)

// requirement is one label without which a selector selects nothing; values nil: any value.
type requirement struct {
	label  string
	values []string
}

// selectorEntry is a selector and what it needs.
type selectorEntry struct {
	sel          *selector.Selector
	requirements []requirement // empty: nothing is known
	at           int           // the need by which it is found; -1: it is asked about all
}

// selectorIndex knows selectors by a label that they need.
type selectorIndex struct {
	byID    map[ID]*selectorEntry
	next    ID
	free    []ID
	byValue map[[2]string][]ID
	byName  map[string][]ID
	always  []ID
}

func newSelectorIndex() selectorIndex {
	return selectorIndex{byID: map[ID]*selectorEntry{}, byValue: map[[2]string][]ID{}, byName: map[string][]ID{}}
}

// requirementsOf reads a selector's restrictions, those with fewest values first.
func requirementsOf(sel *selector.Selector) []requirement {
	var out []requirement
	for label, r := range sel.Restrictions() {
		if r.MustBePresent {
			values := r.MustHaveOneOfValues
			if !r.Possible() {
				values = []string{} // no vector is a candidate
			}
			out = append(out, requirement{label, values})
		}
	}
	slices.SortFunc(out, func(a, b requirement) int {
		if (a.values == nil) != (b.values == nil) {
			if a.values == nil {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(len(a.values), len(b.values)), cmp.Compare(a.label, b.label))
	})
	return out
}

// add finds for a selector the least crowded of its needs.
func (w *selectorIndex) add(sel *selector.Selector) ID {
	id := w.next
	if n := len(w.free); n > 0 {
		id = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		w.next++
	}
	s := &selectorEntry{sel: sel, requirements: requirementsOf(sel), at: -1}
	crowd := 0
	for i, n := range s.requirements {
		c := 0
		for _, v := range n.values {
			c += 1 + len(w.byValue[[2]string{n.label, v}])
		}
		if n.values == nil {
			if s.at >= 0 {
				break // a value says more than presence
			}
			c = 1 + len(w.byName[n.label])
		}
		if s.at < 0 || c < crowd {
			s.at, crowd = i, c
		}
	}
	w.byID[id] = s
	w.lists(s, func(list []ID) []ID { return append(list, id) })
	return id
}

func (w *selectorIndex) drop(id ID) {
	w.lists(w.byID[id], func(list []ID) []ID {
		i := slices.Index(list, id)
		list[i] = list[len(list)-1]
		return list[:len(list)-1]
	})
	delete(w.byID, id)
	w.free = append(w.free, id)
}

// lists changes all lists in which a selector is found.
func (w *selectorIndex) lists(s *selectorEntry, change func([]ID) []ID) {
	if s.at < 0 {
		w.always = change(w.always)
		return
	}
	n := s.requirements[s.at]
	if n.values == nil {
		if w.byName[n.label] = change(w.byName[n.label]); len(w.byName[n.label]) == 0 {
			delete(w.byName, n.label)
		}
		return
	}
	for _, v := range n.values {
		k := [2]string{n.label, v}
		if w.byValue[k] = change(w.byValue[k]); len(w.byValue[k]) == 0 {
			delete(w.byValue, k)
		}
	}
}

// each calls yield for each selector that may select something with these
// labels; for some more than once, if a label is given more than once.
func (w *selectorIndex) each(labels func(yield func(name, value string)), yield func(ID, *selectorEntry)) {
	give := func(ids []ID) {
		for _, id := range ids {
			yield(id, w.byID[id])
		}
	}
	give(w.always)
	labels(func(name, value string) {
		give(w.byName[name])
		give(w.byValue[[2]string{name, value}])
	})
}
