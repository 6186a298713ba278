package console

import (
	"strconv"
	"strings"
)

// Step is one part of a path: a name, or an element of a list.
type Step struct {
	name  string
	index int
	list  bool // an element; index -1 is all of them
}

// ParsePath reads .spec.ports[0].name, {.spec.nets[*]} and, where a name has
// dots itself, .metadata.labels.example\.com/role.
func ParsePath(text string) ([]Step, error) {
	rest := strings.TrimSpace(text)
	if in, ok := strings.CutPrefix(rest, "{"); ok {
		if rest, ok = strings.CutSuffix(in, "}"); !ok {
			return nil, Usage("path %q: a { without its }", text)
		}
	}
	var out []Step
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
				return nil, Usage("path %q: want [*] or [0], [1] … for elements of a list", text)
			}
			out, rest = append(out, Step{index: n, list: true}), after
			continue
		}
		name, after := cutName(rest)
		if name == "" {
			return nil, Usage("path %q: want names with dots between them, such as .metadata.name or .spec.nets[0]", text)
		}
		out, rest = append(out, Step{name: name}), after
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

// At returns what is at a path of a document; nothing if there is nothing.
func At(doc any, path []Step) []any {
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
		return At(v, path[1:])
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
		out = append(out, At(v, path[1:])...)
	}
	return out
}
