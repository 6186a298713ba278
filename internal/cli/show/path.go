package show

import (
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/cli/console"
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
			return nil, console.Usage("path %q: a { without its }", text)
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
				return nil, console.Usage("path %q: want [*] or [0], [1] … for elements of a list", text)
			}
			out, rest = append(out, step{index: n, list: true}), after
			continue
		}
		name, after := cutName(rest)
		if name == "" {
			return nil, console.Usage("path %q: want names with dots between them, such as .metadata.name or .spec.nets[0]", text)
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
