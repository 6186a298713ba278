package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// member is one field of a JSON object; their order is kept.
type member struct {
	name  string
	value json.RawMessage
}

// members reads an object; ok is false for anything else.
func members(raw []byte) (out []member, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for dec.More() {
		t, err := dec.Token()
		name, isText := t.(string)
		if err != nil || !isText {
			return nil, false
		}
		var v json.RawMessage
		if dec.Decode(&v) != nil {
			return nil, false
		}
		out = append(out, member{name, v})
	}
	return out, true
}

func lookup(ms []member, name string) json.RawMessage {
	for _, m := range slices.Backward(ms) { // the last of several counts, as in encoding/json
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// lookupFold is lookup for a name in any case.
func lookupFold(ms []member, name string) json.RawMessage {
	for _, m := range slices.Backward(ms) {
		if strings.EqualFold(m.name, name) {
			return m.value
		}
	}
	return nil
}

func writeObject(ms []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range ms {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name) // text always encodes
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// MergeRaw returns r's stored form together with the fields of old that this
// version does not know, so that nothing another version wrote is lost. Name,
// uid and creation time stay the old ones; so do status, owners and finalizers
// if r has none. In lists, what is unknown stays with an element that is equal
// to a former one, or that stands in its place in a list of the same length.
func MergeRaw(old []byte, r Resource) ([]byte, error) {
	fresh, err := EncodeStored(r)
	if err != nil {
		return nil, err
	}
	if !json.Valid(old) {
		return nil, fmt.Errorf("%s: what is stored is not JSON; delete it and create it again", RefOf(r))
	}
	was, ok := members(old)
	if !ok {
		return fresh, nil
	}
	now, _ := members(fresh)
	switch s := lookup(was, "status"); {
	case s != nil && blank(lookup(now, "status")):
		now = replace(now, "status", s)
	case s == nil && emptyObject(lookup(now, "status")): // Kubernetes keeps none that says nothing
		now = slices.DeleteFunc(now, func(m member) bool { return m.name == "status" })
	}
	keep := []string{"name", "uid", "creationTimestamp", "generation", "deletionTimestamp", "ownerReferences", "finalizers"}
	if oldMeta, ok := members(lookup(was, "metadata")); ok {
		meta, _ := members(lookup(now, "metadata"))
		for i, name := range keep {
			v := lookup(oldMeta, name)
			if v != nil && !isNull(v) && (i < 3 || lookup(meta, name) == nil) {
				meta = replace(meta, name, v)
			}
		}
		now = replace(now, "metadata", writeObject(inOrder(meta, reflect.TypeFor[ObjectMeta]())))
	}
	return mergeValue(old, writeObject(now), reflect.TypeOf(r).Elem()), nil
}

func emptyObject(raw []byte) bool {
	ms, ok := members(raw)
	return raw == nil || ok && len(ms) == 0
}

// blank reports whether a value says nothing: all that is in it is empty, zero or null.
func blank(raw []byte) bool {
	if raw == nil {
		return true
	}
	ms, ok := members(raw)
	for _, m := range ms {
		if !blank(m.value) {
			return false
		}
	}
	return ok || slices.Contains([]string{"null", "0", `""`, "false", "[]"}, string(raw))
}

func replace(ms []member, name string, v json.RawMessage) []member {
	for i := range ms {
		if ms[i].name == name {
			ms[i].value = v
			return ms
		}
	}
	return append(ms, member{name, v})
}

// inOrder puts members into the order of a type's fields, which is that of the stored form.
func inOrder(ms []member, t reflect.Type) []member {
	place := map[string]int{}
	for i, f := range fieldsOf(t) {
		place[f.name] = i
	}
	slices.SortStableFunc(ms, func(a, b member) int { return place[a.name] - place[b.name] })
	return ms
}

// mergeValue returns now with what old has and the type does not know.
func mergeValue(old, now json.RawMessage, t reflect.Type) json.RawMessage {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return now
	}
	switch t.Kind() {
	case reflect.Struct:
		return mergeObject(old, now, t)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return mergeList(old, now, t.Elem())
		}
	}
	return now
}

func mergeObject(old, now json.RawMessage, t reflect.Type) json.RawMessage {
	was, ok1 := members(old)
	is, ok2 := members(now)
	if !ok1 || !ok2 {
		return now
	}
	for _, f := range fieldsOf(t) {
		o, n := lookup(was, f.name), lookup(is, f.name)
		if o == nil {
			continue
		}
		if n != nil {
			is = replace(is, f.name, mergeValue(o, n, f.typ))
			continue
		}
		// A rule whose source has nothing left that we know may have something
		// that we do not.
		if left := mergeValue(o, json.RawMessage("{}"), f.typ); !emptyObject(left) && structLike(f.typ) {
			is = append(is, member{f.name, left})
		}
	}
	for _, m := range was {
		if fieldByName(t, m.name) == nil {
			is = replace(is, m.name, m.value)
		}
	}
	return writeObject(is)
}

func structLike(t reflect.Type) bool { return t.Kind() == reflect.Struct }

func mergeList(old, now json.RawMessage, t reflect.Type) json.RawMessage {
	var was, is []json.RawMessage
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(now, &is) != nil {
		return now
	}
	known := make([]string, len(was))
	for i, o := range was {
		known[i] = knownPart(o, t)
	}
	used := make([]bool, len(was))
	same := make([]int, len(is))
	for i, n := range is {
		text := knownPart(n, t)
		same[i] = -1
		for j := range was {
			if !used[j] && known[j] == text {
				same[i], used[j] = j, true
				break
			}
		}
	}
	for i := range is {
		switch {
		case same[i] >= 0:
			is[i] = mergeValue(was[same[i]], is[i], t)
		case len(was) == len(is) && !used[i]:
			is[i] = mergeValue(was[i], is[i], t)
		}
	}
	out, err := json.Marshal(is)
	if err != nil {
		return now
	}
	return out
}

// knownPart is the canonical text of what this version knows of a value.
func knownPart(raw json.RawMessage, t reflect.Type) string {
	v := reflect.New(t)
	w := walker{}
	w.read(raw, v.Elem(), "")
	text, _ := json.Marshal(v.Interface())
	return string(text)
}

// UserJSON returns a stored document as users see it: whole, with what this
// version does not know, under the name that they gave, and without the
// annotation that holds it.
func UserJSON(u Update) ([]byte, error) {
	s, err := DecodeStored(u)
	if err != nil {
		return nil, err
	}
	doc, ok := members(u.Value)
	if !ok {
		return nil, fmt.Errorf("%s: not an object", u.Key)
	}
	meta, ok := members(lookup(doc, "metadata"))
	if !ok {
		return u.Value, nil
	}
	name, _ := json.Marshal(s.Ref.Name)
	meta = replace(meta, "name", name)
	if k, _ := kindOf(s.Ref.Kind); k.Policy {
		if notes, ok := members(lookup(meta, "annotations")); ok {
			notes = slices.DeleteFunc(notes, func(m member) bool { return m.name == AnnotationMetadata })
			meta = replace(meta, "annotations", writeObject(notes))
			if len(notes) == 0 {
				meta = slices.DeleteFunc(meta, func(m member) bool { return m.name == "annotations" })
			}
		}
	}
	return writeObject(replace(doc, "metadata", writeObject(meta))), nil
}
