package migration

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
)

// decided are the fields of metadata that a store decides.
var decided = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"}

// annotationApplied is kubectl's, as large as the object; nothing reads it.
const annotationApplied = "kubectl.kubernetes.io/last-applied-configuration"

// different says in what two stored values differ beyond what the store decides; empty: in nothing. A value that is no JSON is compared byte by byte.
func different(have, want []byte) string {
	a, err1 := resources.Tree(have)
	b, err2 := resources.Tree(want)
	if err1 != nil || err2 != nil {
		if string(have) == string(want) {
			return ""
		}
		return "its bytes differ"
	}
	undecided(a)
	undecided(b)
	return describe(changes(a, b, "", reflect.DeepEqual))
}

// lost says which fields of a value its store would not keep, or keep as another; empty: none. What it adds is no loss, and null says nothing.
func lost(value, kept []byte) string {
	a, err1 := resources.Tree(value)
	b, err2 := resources.Tree(kept)
	if err1 != nil || err2 != nil {
		return different(value, kept)
	}
	undecided(a)
	undecided(b)
	if top, ok := a.(map[string]any); ok {
		delete(top, "status") // which its writers write again
	}
	return describe(changes(a, b, "", func(was, now any) bool { return was == nil || sameNumber(was, now) || reflect.DeepEqual(was, now) }))
}

// sameNumber: 100 and 100.0 are the same.
func sameNumber(a, b any) bool {
	x, ok1 := a.(json.Number)
	y, ok2 := b.(json.Number)
	if !ok1 || !ok2 {
		return false
	}
	if x == y {
		return true
	}
	p, err1 := x.Float64()
	q, err2 := y.Float64()
	return err1 == nil && err2 == nil && p == q && strings.ContainsAny(string(x+y), ".eE")
}

// undecided removes from a document what a store decides.
func undecided(doc any) {
	top, _ := doc.(map[string]any)
	meta, _ := top["metadata"].(map[string]any)
	for _, name := range decided {
		delete(meta, name)
	}
	notes, _ := meta["annotations"].(map[string]any)
	delete(notes, annotationApplied)
	delete(notes, api.AnnotationMetadata) // a policy's name as its user wrote it, which projectcalico.org/v3 does not keep next to its own
	if len(notes) == 0 {
		delete(meta, "annotations")
	}
}

// changes are the fields of a that b lacks or has as another, and, unless equal takes nothing for them, those that only b has.
func changes(a, b any, path string, equal func(was, now any) bool) []resources.Change {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			break
		}
		names := slices.Sorted(maps.Keys(x))
		for name := range y {
			if _, had := x[name]; !had {
				names = append(names, name)
			}
		}
		var out []resources.Change
		for _, name := range names {
			out = append(out, changes(x[name], y[name], strings.TrimPrefix(path+"."+name, "."), equal)...)
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			break
		}
		var out []resources.Change
		for i := range x {
			out = append(out, changes(x[i], y[i], fmt.Sprintf("%s[%d]", path, i), equal)...)
		}
		return out
	}
	if equal(a, b) {
		return nil
	}
	return []resources.Change{{Path: path, Was: a, Now: b}}
}

func describe(cs []resources.Change) string { return resources.ListChanges(cs) }
