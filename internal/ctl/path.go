package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// step is one part of a path: a name, or an element of a list.
type step struct {
	name  string
	index int
	list  bool // an element; index -1 is all of them
}

// parsePath reads .spec.ports[0].name, {.spec.nets[*]} and, where a name has
// dots itself, .metadata.labels.example\.com/role.
func parsePath(text string) ([]step, error) {
	rest := strings.TrimSpace(text)
	if in, ok := strings.CutPrefix(rest, "{"); ok {
		if rest, ok = strings.CutSuffix(in, "}"); !ok {
			return nil, usage("path %q: a { without its }", text)
		}
	}
	var out []step
	for rest = strings.TrimPrefix(rest, "."); rest != ""; rest = strings.TrimPrefix(rest, ".") {
		if in, ok := strings.CutPrefix(rest, "["); ok {
			word, after, closed := strings.Cut(in, "]")
			n, err := strconv.Atoi(word)
			if word == "*" {
				n, err = -1, nil
			} else if n < 0 {
				closed = false
			}
			if err != nil || !closed {
				return nil, usage("path %q: want [*] or [0], [1] … for elements of a list", text)
			}
			out, rest = append(out, step{index: n, list: true}), after
			continue
		}
		name, after := cutName(rest)
		if name == "" {
			return nil, usage("path %q: want names with dots between them, such as .metadata.name or .spec.nets[0]", text)
		}
		out, rest = append(out, step{name: name}), after
	}
	return out, nil
}

// cutName takes the name at the beginning; a backslash takes the next character as it is.
func cutName(text string) (name, rest string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '.' || c == '[':
			return b.String(), text[i:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// at returns what is at a path of a document; nothing if there is nothing.
func at(doc any, path []step) []any {
	if len(path) == 0 {
		return []any{doc}
	}
	p := path[0]
	if !p.list {
		m, _ := doc.(map[string]any)
		v, ok := m[p.name]
		if !ok {
			return nil
		}
		return at(v, path[1:])
	}
	l, _ := doc.([]any)
	if p.index >= 0 {
		if p.index >= len(l) {
			return nil
		}
		l = l[p.index : p.index+1]
	}
	var out []any
	for _, v := range l {
		out = append(out, at(v, path[1:])...)
	}
	return out
}

// tree reads JSON; numbers stay as they were written.
func tree(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// cell is a value in one line.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, _ := json.Marshal(v) // it came from JSON
	return string(text)
}

// change is a field that differs between two documents.
type change struct {
	path     string
	was, now any // absent is nil
}

func (c change) String() string {
	return fmt.Sprintf("%s %s → %s", c.path, brief(c.was), brief(c.now))
}

// brief is a value for a message.
func brief(v any) string {
	const most = 60
	text := cell(v)
	if v == nil {
		return "nothing"
	}
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// changes lists the fields in which two documents differ, in the order of their
// paths. A list that differs is one change.
func changes(was, now any, path string) []change {
	a, ok1 := was.(map[string]any)
	b, ok2 := now.(map[string]any)
	if !ok1 || !ok2 {
		if reflect.DeepEqual(was, now) {
			return nil
		}
		return []change{{path, was, now}}
	}
	var names []string
	for k := range a {
		names = append(names, k)
	}
	for k := range b {
		if _, had := a[k]; !had {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	var out []change
	for _, k := range names {
		out = append(out, changes(a[k], b[k], strings.TrimPrefix(path+"."+k, "."))...)
	}
	return out
}

// listChanges is changes in one line.
func listChanges(cs []change) string {
	const most = 5
	var out []string
	for i, c := range cs {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(cs)-most))
			break
		}
		out = append(out, c.String())
	}
	return strings.Join(out, ", ")
}
