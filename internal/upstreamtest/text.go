package upstreamtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Spell writes an object, or a list of them, as people and tools do: with field names in another case now and then, which
// upstream's tools read.
func (a *Author) Spell(v any) any {
	switch v := v.(type) {
	case Object:
		out := Object{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			e := v[name]
			if a.IntN(20) == 0 {
				name = recase(a, name)
			}
			out[name] = a.Spell(e)
		}
		return out
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, a.Spell(e))
		}
		return out
	}
	return v
}

// Render writes a document as JSON or YAML.
func (a *Author) Render(v any) string {
	switch a.IntN(3) {
	case 0:
		text, _ := json.Marshal(v) // it is made of maps, lists and texts
		return string(text)
	case 1:
		return Pretty(v)
	}
	text, _ := yaml.Marshal(v)
	return string(text)
}

// Pretty is a value as JSON for people.
func Pretty(v any) string {
	text, _ := json.MarshalIndent(v, "", "  ")
	return string(text)
}

// serverOwned are the fields of metadata that a file does not decide: they are the server's books, or those of another one.
var serverOwned = []string{
	"uid", "creationTimestamp", "generation", "resourceVersion", "selfLink", "managedFields", "generateName",
	"deletionGracePeriodSeconds", "deletionTimestamp",
}

// Lost names what is in o and not in got, which came from JSON or YAML. What is empty may be left out, but for flags and
// numbers that upstream has pointers to; metadata that is the server's own is not looked at.
func (o Object) Lost(got any) []string {
	want := maps.Clone(o)
	if m, ok := o["metadata"].(Object); ok {
		m = maps.Clone(m)
		m.without(serverOwned...)
		want["metadata"] = m
	}
	return lost(want, got, "")
}

func lost(want, got any, path string) (out []string) {
	switch w := want.(type) {
	case Object:
		return lostIn(w, got, path)
	case dict:
		for name := range w {
			if g, _ := got.(map[string]any); g[name] == nil {
				return []string{fmt.Sprintf("%s[%q]", path, name)}
			}
		}
		return lostIn(w, got, path)
	case []any:
		g, _ := got.([]any)
		if len(w) == 0 {
			return nil // a default may take its place
		}
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: %d of %d elements", path, len(w)-len(g), len(w))}
		}
		for i := range w {
			out = append(out, lost(w[i], g[i], fmt.Sprintf("%s[%d]", path, i))...)
		}
		return out
	case flag, number:
		if got == nil {
			return []string{path}
		}
	}
	if got == nil && (want == nil || reflect.ValueOf(want).IsZero()) {
		return nil
	}
	if want != nil && !same(want, got) {
		return []string{fmt.Sprintf("%s: %v is %v", path, want, got)}
	}
	return nil
}

// same compares values as upstream reads them: numbers and AS numbers may be written in several ways.
func same(want, got any) bool {
	g := fmt.Sprint(got)
	if f, ok := got.(float64); ok {
		g = strconv.FormatFloat(f, 'f', -1, 64)
	}
	w := fmt.Sprint(want)
	if high, low, dotted := strings.Cut(w, "."); dotted && w != g {
		h, err1 := strconv.ParseUint(high, 10, 16)
		l, err2 := strconv.ParseUint(low, 10, 16)
		return err1 == nil && err2 == nil && fmt.Sprint(h<<16|l) == g
	}
	return w == g
}

func lostIn[M ~map[string]any](want M, got any, path string) (out []string) {
	g, _ := got.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, ok := g[name]
		for spelled := range g { // what is kept as it was written keeps its spelling, which upstream reads
			if !ok && strings.EqualFold(spelled, name) {
				value = g[spelled]
			}
		}
		out = append(out, lost(want[name], value, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return out
}

// Fields calls f for each field of an object that has a value and says something, with its name and its path; users' own names
// are none.
func (o Object) Fields(f func(name, path string)) { walk(o, "", f) }

func walk(v any, path string, f func(name, path string)) {
	switch v := v.(type) {
	case Object:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			if isValue(v[name]) && !empty(v[name]) {
				f(name, at)
			}
			walk(v[name], at, f)
		}
	case []any:
		for i, e := range v {
			walk(e, fmt.Sprintf("%s[%d]", path, i), f)
		}
	}
}

// isValue reports whether there are no fields within.
func isValue(v any) bool {
	if l, ok := v.([]any); ok && len(l) > 0 {
		v = l[0]
	}
	_, is := v.(Object)
	return !is
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case Object:
		return len(v) == 0
	case dict:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == ""
}

// Bundle writes several objects in one of the forms in which tools print them: documents of one file, a sequence, the list of a
// kind if all are of one, or a List of Kubernetes.
func (a *Author) Bundle(k Kind, all []Object) string {
	var items []any
	for _, o := range all {
		items = append(items, a.Spell(o))
	}
	switch a.IntN(4) {
	case 0:
		var docs []string
		for _, o := range items {
			docs = append(docs, a.Render(o))
		}
		return strings.Join(docs, "\n---\n")
	case 1:
		return a.Render(items)
	case 2:
		if a.IntN(2) == 0 { // the items of a typed list need not say what they are
			for i, o := range all {
				o := maps.Clone(o)
				o.without("kind", "apiVersion")
				items[i] = o
			}
		}
		return a.Render(Object{"kind": k.Name + "List", "apiVersion": "projectcalico.org/v3", "metadata": Object{"resourceVersion": "17"}, "items": items})
	}
	return a.Render(Object{"kind": "List", "apiVersion": "v1", "metadata": Object{"resourceVersion": "", "selfLink": ""}, "items": items})
}
