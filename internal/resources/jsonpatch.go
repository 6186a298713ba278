package resources

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// op is one operation of a JSON patch (RFC 6902).
type op struct {
	Op    string          `json:"op"`
	Path  *string         `json:"path"`
	From  *string         `json:"from"`
	Value json.RawMessage `json:"value"`
}

// opNeeds says what each operation needs besides a path.
var opNeeds = map[string]string{"add": "value", "replace": "value", "test": "value", "remove": "", "move": "from", "copy": "from"}

func ParseOps(raw []byte) ([]op, error) {
	var ops []op
	if err := json.Unmarshal(raw, &ops); err != nil {
		return nil, fmt.Errorf(`the patch: want a list of operations, such as [{"op":"replace","path":"/spec/order","value":50}]`)
	}
	for i := range ops {
		o := &ops[i]
		needs, known := opNeeds[o.Op]
		switch {
		case !known:
			return nil, fmt.Errorf("operation %d: op is %q: want add, remove, replace, move, copy or test", i, o.Op)
		case o.Path == nil:
			return nil, fmt.Errorf("operation %d: path is missing", i)
		case needs == "value" && o.Value == nil:
			return nil, fmt.Errorf("operation %d: %s needs a value", i, o.Op)
		case needs == "from" && o.From == nil:
			return nil, fmt.Errorf("operation %d: %s needs from", i, o.Op)
		}
	}
	return ops, nil
}

func ApplyOps(doc any, ops []op) (any, error) {
	for i, o := range ops {
		next, err := o.apply(doc)
		if err != nil {
			return nil, fmt.Errorf("operation %d, %s %s: %w", i, o.Op, *o.Path, err)
		}
		doc = next
	}
	return doc, nil
}

func (o op) apply(doc any) (any, error) {
	path, err := pointer(*o.Path)
	if err != nil {
		return nil, err
	}
	switch o.Op {
	case "add", "replace":
		v, err := Tree(o.Value) // anew each time: later operations may change it
		if err != nil {
			return nil, err
		}
		return put(doc, path, v, o.Op == "add")
	case "remove":
		return remove(doc, path)
	case "test":
		return doc, o.test(doc, path)
	}
	from, err := pointer(*o.From)
	if err != nil {
		return nil, err
	}
	v, err := lookup(doc, from)
	if err != nil {
		return nil, fmt.Errorf("from %s: %w", *o.From, err)
	}
	if o.Op == "move" {
		if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
			return nil, fmt.Errorf("a value cannot move into itself")
		}
		if doc, err = remove(doc, from); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(v) // a copy of its own, as above
	if err != nil {
		return nil, err
	}
	if v, err = Tree(text); err != nil {
		return nil, err
	}
	return put(doc, path, v, true)
}

// test compares as RFC 6902 wants: numbers by their value.
func (o op) test(doc any, path []string) error {
	got, err := lookup(doc, path)
	if err != nil {
		return err
	}
	text, err := json.Marshal(got)
	if err != nil {
		return err
	}
	var is, want any
	if err := errors.Join(json.Unmarshal(text, &is), json.Unmarshal(o.Value, &want)); err != nil {
		return err
	}
	if !reflect.DeepEqual(is, want) {
		return fmt.Errorf("it is %s, not %s", Brief(got), Brief(want))
	}
	return nil
}

// pointer reads a JSON pointer (RFC 6901).
func pointer(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, fmt.Errorf("%q: a path begins with /, such as /spec/ingress/0/action", text)
	}
	parts := strings.Split(text[1:], "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	return parts, nil
}

func lookup(doc any, path []string) (any, error) {
	for _, p := range path {
		switch d := doc.(type) {
		case map[string]any:
			v, ok := d[p]
			if !ok {
				return nil, fmt.Errorf("there is no %q", p)
			}
			doc = v
		case []any:
			i, err := index(p, len(d)-1)
			if err != nil {
				return nil, err
			}
			doc = d[i]
		default:
			return nil, fmt.Errorf("%s has no %q", Brief(doc), p)
		}
	}
	return doc, nil
}

func index(text string, most int) (int, error) {
	i, err := strconv.Atoi(text)
	if err != nil || i < 0 || i > most || strconv.Itoa(i) != text {
		return 0, fmt.Errorf("%q is no place in a list of %d", text, most+1)
	}
	return i, nil
}

// put returns doc with v at a path; fresh: it need not be there, and in a list it is inserted.
func put(doc any, path []string, v any, fresh bool) (any, error) {
	if len(path) == 0 {
		return v, nil
	}
	return within(doc, path, func(parent any, last string) (any, error) {
		switch p := parent.(type) {
		case map[string]any:
			if _, had := p[last]; !had && !fresh {
				return nil, fmt.Errorf("there is no %q", last)
			}
			p[last] = v
			return p, nil
		case []any:
			if !fresh {
				i, err := index(last, len(p)-1)
				if err == nil {
					p[i] = v
				}
				return p, err
			}
			if last == "-" {
				return append(p, v), nil
			}
			i, err := index(last, len(p))
			if err != nil {
				return nil, err
			}
			return slices.Insert(slices.Clone(p), i, v), nil
		}
		return nil, fmt.Errorf("%s has no %q", Brief(parent), last)
	})
}

func remove(doc any, path []string) (any, error) {
	if len(path) == 0 {
		return nil, nil
	}
	return within(doc, path, func(parent any, last string) (any, error) {
		switch p := parent.(type) {
		case map[string]any:
			if _, had := p[last]; !had {
				return nil, fmt.Errorf("there is no %q", last)
			}
			delete(p, last)
			return p, nil
		case []any:
			i, err := index(last, len(p)-1)
			if err != nil {
				return nil, err
			}
			return slices.Delete(slices.Clone(p), i, i+1), nil
		}
		return nil, fmt.Errorf("%s has no %q", Brief(parent), last)
	})
}

// within changes what holds the end of a path.
func within(doc any, path []string, change func(parent any, last string) (any, error)) (any, error) {
	if len(path) == 1 {
		return change(doc, path[0])
	}
	child, err := lookup(doc, path[:1])
	if err != nil {
		return nil, err
	}
	if child, err = within(child, path[1:], change); err != nil {
		return nil, err
	}
	return put(doc, path[:1], child, false)
}
