package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// finding is a part of a document that could not be read.
type finding struct {
	path    string
	reason  string
	unknown bool         // the type has no such field
	in      reflect.Type // the struct that lacks it
	field   string       // as it is written in the document
}

// walker reads a document into a Go value field by field, and notes what it
// cannot read instead of giving up.
type walker struct {
	strict bool // for users: a field that is there in two spellings is an error
	found  []finding
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (w *walker) note(path, reason string) {
	w.found = append(w.found, finding{path: path, reason: clip(reason)})
}

// read fills v from raw. What is not readable stays zero; elements of a list
// keep their places.
func (w *walker) read(raw []byte, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		if isNull(raw) {
			return
		}
		p, before := reflect.New(v.Type().Elem()), len(w.found)
		w.read(raw, p.Elem(), path)
		if p.Elem().Kind() == reflect.Slice && p.Elem().IsNil() && len(w.found) == before {
			p.Elem().Set(reflect.MakeSlice(p.Elem().Type(), 0, 0)) // an empty list is not the same as none here
		}
		// What is not there has a default; what could not be read must not be zero instead.
		if p.Elem().Kind() == reflect.Struct || len(w.found) == before {
			v.Set(p)
		}
		return
	}
	if v.Addr().Type().Implements(unmarshaler) {
		w.leaf(raw, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		w.object(raw, v, path)
	case reflect.Slice:
		w.list(raw, v, path)
	case reflect.Map:
		w.strings(raw, v, path)
	default:
		w.leaf(raw, v, path)
	}
}

func (w *walker) object(raw []byte, v reflect.Value, path string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		w.note(path, want("an object", raw))
		return
	}
	had := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		p := join(path, name)
		i := fieldByName(v.Type(), name)
		if other, twice := had[strings.ToLower(name)]; twice && w.strict && i != nil {
			w.note(p, "is there already, as "+other)
			continue
		}
		had[strings.ToLower(name)] = name
		if i == nil && v.Type() == reflect.TypeFor[ObjectMeta]() && serverOwned[strings.ToLower(name)] {
			continue
		}
		if i == nil {
			w.found = append(w.found, finding{path: p, reason: "unknown field", unknown: true, in: v.Type(), field: name})
			continue
		}
		w.read(members[name], v.FieldByIndex(i), p)
	}
}

func (w *walker) list(raw []byte, v reflect.Value, path string) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		w.note(path, want("a list", raw))
		return
	}
	if len(items) == 0 {
		return // an empty list is as none, so that what holds nothing else is nothing, too
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		if isNull(item) {
			w.note(p, "is null")
			continue
		}
		w.read(item, out.Index(i), p)
	}
	v.Set(out)
}

// strings reads a map of strings, the only kind of map in the API.
func (w *walker) strings(raw []byte, v reflect.Value, path string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		w.note(path, want("a map of strings", raw))
		return
	}
	if members == nil {
		return
	}
	out := make(map[string]string, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var s *string
		if json.Unmarshal(members[name], &s) != nil || s == nil {
			w.note(join(path, name), want("a string", members[name]))
			continue
		}
		out[name] = *s
	}
	v.Set(reflect.ValueOf(out))
}

func (w *walker) leaf(raw []byte, v reflect.Value, path string) {
	p := reflect.New(v.Type())
	if err := json.Unmarshal(raw, p.Interface()); err != nil {
		if p.Type().Implements(unmarshaler) {
			w.note(path, err.Error())
			return
		}
		w.note(path, want(wanted[v.Kind()], raw))
		return
	}
	v.Set(p.Elem())
}

var wanted = map[reflect.Kind]string{
	reflect.String: "a string", reflect.Bool: "true or false", reflect.Float64: "a number",
	reflect.Int: "an integer", reflect.Int64: "an integer",
	reflect.Uint16: "an integer from 0 to 65535", reflect.Uint32: "an integer from 0 to 4294967295",
}

// want says what should stand where raw does. YAML 1.1 turns some bare words
// and digits into other things than text: whoever meant text must be told.
func want(what string, raw []byte) string {
	got := string(bytes.TrimSpace(raw))
	if len(got) > 40 {
		got = strings.ToValidUTF8(got[:40], "") + "…"
	}
	s := fmt.Sprintf("want %s, got %s", what, got)
	if what != "a string" || got == "" {
		return s
	}
	switch {
	case got == "true" || got == "false":
		return s + " (YAML reads bare y, yes, on, n, no, off, true and false as that): put it in quotes"
	case got[0] == '-' || got[0] >= '0' && got[0] <= '9':
		return s + " (YAML reads bare digits as a number, octal after a 0): put it in quotes"
	}
	return s
}

// saysNothing reports whether a value is empty. False and 0 are not: they may differ from a default.
func saysNothing(raw []byte) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func isNull(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }

func join(path, name string) string {
	if strings.ContainsAny(name, "./[] ") {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// serverOwned are the fields of Kubernetes' metadata that its server writes about its own work. Nobody reads them here, and
// upstream's tools leave them out of what they store; so they may be in a file, in lower case here.
var serverOwned = wordSet("managedfields selflink deletiongraceperiodseconds clustername")

// fieldByName finds a field by its JSON name, looking into embedded structs.
// As encoding/json, and so upstream's tools, it takes names in any case.
func fieldByName(t reflect.Type, name string) []int {
	var loose []int
	for _, f := range fieldsOf(t) {
		if f.name == name {
			return f.index
		}
		if loose == nil && strings.EqualFold(f.name, name) {
			loose = f.index
		}
	}
	return loose
}

type jsonField struct {
	name  string
	index []int
	typ   reflect.Type
}

// fieldsOf lists a struct's fields by JSON name, embedded ones in their place.
func fieldsOf(t reflect.Type) []jsonField {
	var out []jsonField
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			for _, in := range fieldsOf(f.Type) {
				in.index = append(slices.Clone(f.Index), in.index...)
				out = append(out, in)
			}
		default:
			out = append(out, jsonField{name: name, index: f.Index, typ: f.Type})
		}
	}
	return out
}
