package resources

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Directives of a strategic merge patch: keys of the patch that are no fields.
const (
	patchDirective  = "$patch"      // of an object: delete, or replace
	retainDirective = "$retainKeys" // of an object: the fields that are not here go
	deleteDirective = "$deleteFromPrimitiveList/"
	orderDirective  = "$setElementOrder/"
)

// mergedLists are the lists that a strategic merge patch merges, by their place, each with the field in which two elements differ; empty: its elements are scalars. They
// are those that metav1.ObjectMeta marks; upstream's resources mark none of their own.
var mergedLists = map[string]string{"metadata/finalizers": "", "metadata/ownerReferences": "uid"}

// StrategicPatch is Kubernetes' strategic merge patch (k8s.io/apimachinery, pkg/util/strategicpatch, which is what calicoctl calls): RFC 7386 with
// lists that are merged, and directives. It changes neither argument. A directive that it cannot follow is an error, never a field.
func StrategicPatch(doc, patch any) (any, error) {
	p, ok := patch.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the patch is %s: want an object", Brief(patch))
	}
	d, _ := doc.(map[string]any)
	out, err := place("").object(d, p)
	if err != nil {
		return nil, err
	}
	return out, place("").undirected(out)
}

// place is a path in a document, with slashes between its fields.
type place string

func (at place) in(field string) place {
	if at == "" {
		return place(field)
	}
	return at + "/" + place(field)
}

// errorf is an error that begins with the field that it is about.
func (at place) errorf(format string, args ...any) error {
	return fmt.Errorf("the patch: %s: "+format, append([]any{strings.ReplaceAll(string(at), "/", ".")}, args...)...)
}

func (at place) object(doc, patch map[string]any) (map[string]any, error) {
	if how, ok := patch[patchDirective]; ok {
		return at.directed(how, patch)
	}
	out := maps.Clone(doc)
	if out == nil {
		out = map[string]any{}
	}
	if err := at.retain(out, patch); err != nil {
		return nil, err
	}
	done, err := at.inOrder(out, patch)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(patch)) {
		if done[k] || isDirective(k) {
			continue
		}
		if err := at.in(k).field(out, k, patch[k]); err != nil {
			return nil, err
		}
	}
	return out, at.without(out, patch)
}

// directed is the object of a patch that says what becomes of the whole.
func (at place) directed(how any, patch map[string]any) (map[string]any, error) {
	switch how {
	case "delete":
		return map[string]any{}, nil
	case "replace":
		out := maps.Clone(patch)
		delete(out, patchDirective)
		return out, nil
	}
	return nil, at.in(patchDirective).errorf("it is %s: want delete or replace", Brief(how))
}

// retain takes away what $retainKeys does not name. It has to name what the patch sets.
func (at place) retain(out, patch map[string]any) error {
	v, ok := patch[retainDirective]
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return at.in(retainDirective).errorf("it is %s: want a list of fields", Brief(v))
	}
	for k, v := range patch {
		if v != nil && !isDirective(k) && !slices.Contains(list, any(k)) {
			return at.in(retainDirective).errorf("%s is not in it, and the patch sets it", k)
		}
	}
	maps.DeleteFunc(out, func(k string, _ any) bool { return !slices.Contains(list, any(k)) })
	return nil
}

// field sets, merges or removes one field.
func (at place) field(out map[string]any, k string, to any) error {
	if to == nil {
		delete(out, k)
		return nil
	}
	var err error
	switch was := out[k].(type) {
	case map[string]any:
		if to, ok := to.(map[string]any); ok {
			out[k], err = at.object(was, to)
			return err
		}
	case []any:
		if to, ok := to.([]any); ok {
			out[k], err = at.list(was, to)
			return err
		}
	}
	if v, ok := fresh(to); ok {
		out[k] = v
	} else {
		delete(out, k)
	}
	return nil
}

// fresh is a value of a patch where the document has none to merge it with: without nulls, and without what is to be deleted or replaced.
func fresh(v any) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v[patchDirective]; ok {
			return nil, false
		}
		out := map[string]any{}
		for k, e := range v {
			if e, ok := fresh(e); ok && e != nil {
				out[k] = e
			}
		}
		return out, true
	case []any:
		out := []any{}
		for _, e := range v {
			if e, ok := fresh(e); ok {
				out = append(out, e)
			}
		}
		return out, true
	}
	return v, true
}

// without takes out of lists what $deleteFromPrimitiveList names, of any list.
func (at place) without(out, patch map[string]any) error {
	for k, v := range patch {
		k, ok := strings.CutPrefix(k, deleteDirective)
		if !ok {
			continue
		}
		gone, ok := v.([]any)
		if !ok {
			return at.in(deleteDirective+k).errorf("it is %s: want a list of elements", Brief(v))
		}
		list, ok := out[k].([]any)
		if !ok {
			continue // no list, nothing of it
		}
		for _, e := range slices.Concat(list, gone) {
			if _, err := at.in(deleteDirective+k).id(e, ""); err != nil {
				return err
			}
		}
		out[k] = slices.DeleteFunc(slices.Clone(list), func(e any) bool { return slices.Contains(gone, e) })
	}
	return nil
}

func isDirective(k string) bool {
	return k == patchDirective || k == retainDirective || strings.HasPrefix(k, deleteDirective) || strings.HasPrefix(k, orderDirective)
}

// undirected refuses a directive that is left: at something that is replaced, or not there.
func (at place) undirected(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if isDirective(k) {
				return at.in(k).errorf("there is nothing here that it could be done to")
			}
			if err := at.in(k).undirected(e); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := at.undirected(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// id is what tells an element of a list apart: itself, or its field of that name.
func (at place) id(e any, key string) (any, error) {
	if key != "" {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, at.errorf("an element is %s: want an object with %s", Brief(e), key)
		}
		if e, ok = m[key]; !ok {
			return nil, at.errorf("an element has no %s, by which elements are told apart", key)
		}
	}
	switch e.(type) {
	case string, bool, json.Number:
		return e, nil
	}
	return nil, at.errorf("%s is no scalar, by which elements are told apart", Brief(e))
}
