package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Later is a field that upstream has and Twill does not act on: its JSON, as it is written. It is kept, and [Unhonoured]
// has what is said of it.
type Later []byte

// UnmarshalJSON takes any value; null is none.
func (l *Later) UnmarshalJSON(raw []byte) error {
	if *l = nil; !isNull(raw) {
		*l = slices.Clone(raw)
	}
	return nil
}

// MarshalJSON returns what was read.
func (l Later) MarshalJSON() ([]byte, error) {
	if len(l) == 0 {
		return []byte("null"), nil
	}
	return l, nil
}

// Fate is what is done about a field on which Twill does not act.
type Fate string

// Fates. A field may only be warned of if passing it over can neither let through what would be denied, nor deny what
// would be let through, nor send packets another way.
const (
	Warned  Fate = "warned of"
	Refused Fate = "refused"
)

// Unhonoured is a field on which Twill does not act.
type Unhonoured struct {
	Type  reflect.Type // the struct that has it
	Field string       // its JSON name
	// Quiet are the values that ask for nothing else than what happens, and upstream's default, which its tools fill in: JSON,
	// or text of a string in any case, of which a * at the end is any text. They are accepted without a word, as are null, "", [] and {}.
	Quiet []string
	Fate  Fate
	Why   string // what does not happen, or what happens instead
}

// Notice is a value of a resource on which Twill does not act.
type Notice struct {
	Path string // spec.bpfEnabled
	Fate Fate
	Why  string
}

// Reason is the notice as one clause, to stand after the path.
func (n Notice) Reason() string {
	if n.Fate == Warned {
		return "has no effect: " + n.Why
	}
	return "Calico has this field; Twill does not honour it yet: " + n.Why
}

// Notices finds the values of a resource's spec on which Twill does not act, in the order of its fields.
func Notices(r Resource) []Notice {
	var n noticer
	spec := reflect.ValueOf(r).Elem().FieldByName("Spec")
	if spec.IsValid() {
		n.walk(spec, "spec")
	}
	return n.found
}

type noticer struct{ found []Notice }

func (n *noticer) walk(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n.walk(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			n.walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Struct:
		for _, s := range steps[v.Type()] {
			f := v.FieldByIndex(s.index)
			switch {
			case s.rule == nil:
				n.walk(f, join(path, s.name))
			case !s.rule.quiet(f):
				n.found = append(n.found, Notice{Path: join(path, s.name), Fate: s.rule.Fate, Why: s.rule.Why})
			}
		}
	}
}

// quiet reports whether a value asks for nothing that is not done.
func (u *Unhonoured) quiet(v reflect.Value) bool {
	if v.IsZero() {
		return true
	}
	raw, err := json.Marshal(v.Interface())
	if err != nil || saysNothing(raw) {
		return true
	}
	text := string(raw)
	if s := ""; json.Unmarshal(raw, &s) == nil {
		text = s
	}
	return slices.ContainsFunc(u.Quiet, func(q string) bool { return quiet(q, text) })
}

// step is a field of a struct on which Twill does not act, or below which there is such a field.
type step struct {
	name  string
	index []int
	rule  *Unhonoured // nil: below it
}

// steps say for each struct of the API where such fields are, so that nearly all of a resource is passed over.
var steps = planSteps()

func planSteps() map[reflect.Type][]step {
	rules := map[reflect.Type]map[string]*Unhonoured{}
	for i := range unhonoured {
		u := &unhonoured[i]
		if rules[u.Type] == nil {
			rules[u.Type] = map[string]*Unhonoured{}
		}
		rules[u.Type][u.Field] = u
	}
	out := map[reflect.Type][]step{}
	var plan func(reflect.Type) bool
	plan = func(t reflect.Type) bool {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		if had, ok := out[t]; ok {
			return len(had) > 0
		}
		var own []step
		for _, f := range fieldsOf(t) {
			if rule := rules[t][f.name]; rule != nil || plan(f.typ) {
				own = append(own, step{f.name, f.index, rule})
			}
		}
		out[t] = own
		return len(own) > 0
	}
	for _, k := range Kinds() {
		if spec, ok := reflect.TypeOf(k.new()).Elem().FieldByName("Spec"); ok {
			plan(spec.Type)
		}
	}
	return out
}

// AllUnhonoured is the table of the fields on which Twill does not act.
func AllUnhonoured() []Unhonoured { return slices.Clone(unhonoured) }

func quiet(value, text string) bool {
	if begin, is := strings.CutSuffix(value, "*"); is {
		return strings.HasPrefix(text, begin)
	}
	return strings.EqualFold(value, text)
}
