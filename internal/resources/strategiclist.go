package resources

import (
	"cmp"
	"slices"
	"strings"
)

// list merges a list of a patch, or replaces the document's.
func (at place) list(was, to []any) ([]any, error) {
	key, merged := mergedLists[string(at)]
	if !merged {
		return to, nil
	}
	if len(was)+len(to) == 0 {
		return was, nil
	}
	if key == "" {
		all := slices.Concat(was, to)
		for _, e := range all {
			if _, err := at.id(e, ""); err != nil {
				return nil, err
			}
		}
		return at.arrange(once(all), to, was, "")
	}
	was, to, err := at.special(was, to, key)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(was)
	for _, e := range to {
		i, err := at.find(all, e, key)
		switch {
		case err != nil:
			return nil, err
		case i < 0:
			all = append(all, e)
			continue
		}
		if all[i], err = at.object(all[i].(map[string]any), e.(map[string]any)); err != nil { // find has seen that they are objects
			return nil, err
		}
	}
	return at.arrange(all, to, was, key)
}

// special does what elements of a patch say that have a directive: delete one of the document's, or have the patch's replace all of them.
func (at place) special(was, to []any, key string) (left, plain []any, err error) {
	left, replace := slices.Clone(was), false
	for _, e := range to {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, nil, at.errorf("an element is %s: want an object with %s", Brief(e), key)
		}
		switch how, ok := m[patchDirective]; {
		case !ok:
			plain = append(plain, e)
		case how == "replace":
			replace = true
		case how == "delete":
			for {
				i, err := at.find(left, e, key)
				if err != nil {
					return nil, nil, err
				}
				if i < 0 {
					break
				}
				left = slices.Delete(left, i, i+1)
			}
		default:
			return nil, nil, at.in(patchDirective).errorf("it is %s: want delete or replace", Brief(how))
		}
	}
	if replace {
		return plain, nil, nil
	}
	return left, plain, nil
}

// find returns the index of the element that is told from others as e is; -1: there is none.
func (at place) find(list []any, e any, key string) (int, error) {
	want, err := at.id(e, key)
	if err != nil {
		return 0, err
	}
	for i, other := range list {
		id, err := at.id(other, key)
		if err != nil {
			return 0, err
		}
		if id == want {
			return i, nil
		}
	}
	return -1, nil
}

// once leaves the first of equal scalars.
func once(list []any) (out []any) {
	for _, e := range list {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// inOrder does what $setElementOrder says, and returns the fields that it has done.
func (at place) inOrder(out, patch map[string]any) (done map[string]bool, err error) {
	done = map[string]bool{}
	for k, v := range patch {
		k, ok := strings.CutPrefix(k, orderDirective)
		if !ok {
			continue
		}
		in := at.in(k)
		order, ok := v.([]any)
		if !ok {
			return nil, at.in(orderDirective+k).errorf("it is %s: want a list of elements in their order", Brief(v))
		}
		was, had, err := in.listOf(out, k)
		if err != nil {
			return nil, err
		}
		to, changes, err := in.listOf(patch, k)
		if err != nil {
			return nil, err
		}
		key := mergedLists[string(in)]
		if err := in.agree(to, order, key); err != nil {
			return nil, err
		}
		all := was
		switch {
		case had && changes:
			all, err = in.list(was, to)
		case changes:
			v, _ := fresh(to)
			all, _ = v.([]any)
		}
		if err != nil {
			return nil, err
		}
		if had || changes {
			if out[k], err = in.arrange(all, order, was, key); err != nil {
				return nil, err
			}
			done[k] = true
		}
	}
	return done, nil
}

// listOf is a field that is a list, if it is there.
func (at place) listOf(of map[string]any, k string) (list []any, there bool, err error) {
	v, there := of[k]
	list, ok := v.([]any)
	if there && !ok {
		return nil, true, at.errorf("%s is no list, and has no order", Brief(v))
	}
	return list, there, nil
}

// agree wants what a patch sets to be in the order that it wants, and all of it.
func (at place) agree(to, order []any, key string) error {
	from := 0
	if len(to) == 0 || len(order) == 0 {
		return nil
	}
	for _, e := range to {
		if m, ok := e.(map[string]any); ok && m[patchDirective] != nil {
			continue
		}
		i, err := at.find(order[from:], e, key)
		if err != nil {
			return err
		}
		if i < 0 {
			return at.errorf("%s is not in $setElementOrder, or at another place", Cell(e))
		}
		from += i + 1
	}
	return nil
}

// arrange puts elements into order: those that a patch names as it names them, the others as the document has them, and between
// the two the document's order as far as it goes.
func (at place) arrange(all, named, live []any, key string) ([]any, error) {
	var ours, others []any
	rank := map[any][2]int{}
	for _, e := range all {
		id, err := at.id(e, key)
		if err != nil {
			return nil, err
		}
		i, err := at.find(named, e, key)
		if err != nil {
			return nil, err
		}
		j, err := at.find(live, e, key)
		if err != nil {
			return nil, err
		}
		rank[id] = [2]int{i, j}
		if i >= 0 {
			ours = append(ours, e)
		} else {
			others = append(others, e)
		}
	}
	of := func(e any) [2]int { id, _ := at.id(e, key); return rank[id] } // every one has one
	slices.SortStableFunc(ours, func(a, b any) int { return cmp.Compare(of(a)[0], of(b)[0]) })
	slices.SortStableFunc(others, func(a, b any) int { return cmp.Compare(of(a)[1], of(b)[1]) })
	out := make([]any, 0, len(all))
	for len(ours) > 0 && len(others) > 0 {
		if a, b := of(others[0])[1], of(ours[0])[1]; a >= 0 && b >= 0 && a < b {
			out, others = append(out, others[0]), others[1:]
		} else {
			out, ours = append(out, ours[0]), ours[1:]
		}
	}
	return append(append(out, ours...), others...), nil
}
