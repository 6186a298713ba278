// Package upstreamtest writes random resources in every form that upstream's documented types allow.
//
// In: a source of random numbers. Out: [Object]s of each of the [Kinds], and their text as people and tools write it.
//
// The types are written down from upstream's documentation (docs.tigera.io/calico/latest/reference/resources, the schemas of
// its CustomResourceDefinitions, and what its validator says of fields that hang together), and from nothing of package
// api: that is what they are to judge.
package upstreamtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Author writes random resources. One goroutine may use it.
type Author struct {
	*rand.Rand
	n int // names and prefixes that were given out
}

// New returns an Author who draws from r.
func New(r *rand.Rand) *Author { return &Author{Rand: r} }

// Kinds are all kinds of upstream's that users write.
func Kinds() []Kind { return slices.Concat(policyKinds, networkKinds, settingKinds) }

// gen makes a value; nil stands for null.
type gen func(*Author) any

// Object is a JSON object whose names are fields.
type Object map[string]any

// dict is an object whose names are the user's own.
type dict map[string]any

// Values that upstream keeps also when they are zero, since it has pointers to them.
type (
	flag   bool
	number int
)

// field is one field of an object.
type field struct {
	name   string
	make   gen
	always bool
}

func req(name string, make gen) field { return field{name, make, true} }
func opt(name string, make gen) field { return field{name, make, false} }

// obj is an object with some of its optional fields: all of them, one, or each with even chance.
func obj(fields ...field) gen {
	return func(a *Author) any {
		out, mode, one := Object{}, a.IntN(4), a.IntN(len(fields))
		for i, f := range fields {
			if f.always || mode == 0 || mode == 1 && i == one || mode > 1 && a.IntN(2) == 0 {
				out[f.name] = f.make(a)
			}
		}
		return out
	}
}

// settings are an object of which a few fields are set; it has many.
func settings(fields ...field) gen {
	return func(a *Author) any {
		out := Object{}
		for _, i := range a.Perm(len(fields))[:1+a.IntN(8)] {
			out[fields[i].name] = fields[i].make(a)
		}
		return out
	}
}

// fieldsOf are fields of one type, by their names.
func fieldsOf(names string, make gen) (out []field) {
	for name := range strings.FieldsSeq(names) {
		out = append(out, opt(name, make))
	}
	return out
}

func pick(values ...string) gen {
	return func(a *Author) any { return values[a.IntN(len(values))] }
}

func either(gens ...gen) gen {
	return func(a *Author) any { return gens[a.IntN(len(gens))](a) }
}

// anyCase is pick with the case changed: upstream's schema reads these so.
func anyCase(values ...string) gen {
	return func(a *Author) any { return recase(a, values[a.IntN(len(values))]) }
}

func recase(a *Author, s string) string {
	switch a.IntN(3) {
	case 0:
		return strings.ToLower(s)
	case 1:
		return strings.ToUpper(s)
	}
	return s
}

func yesno(a *Author) any   { return a.IntN(2) == 0 }
func pointer(a *Author) any { return flag(a.IntN(2) == 0) }

func from(low, high int) gen { return func(a *Author) any { return number(low + a.IntN(high-low+1)) } }

func some(low, high int, make gen) gen {
	return func(a *Author) any {
		out := []any{}
		for range low + a.IntN(high-low+1) {
			out = append(out, make(a))
		}
		return out
	}
}

// distinct is a list of values none of which is there twice.
func distinct(low int, values ...string) gen {
	return func(a *Author) any {
		out := []any{}
		for _, i := range a.Perm(len(values))[:low+a.IntN(len(values)-low+1)] {
			out = append(out, values[i])
		}
		return out
	}
}

// fresh are names and prefixes that nothing else has.
func (a *Author) fresh() int {
	a.n++
	return a.n
}

func prefix4(a *Author) any { return fmt.Sprintf("10.%d.%d.0/24", a.IntN(256), a.IntN(256)) }
func prefix6(a *Author) any { return fmt.Sprintf("fd00:%x::/64", 1+a.IntN(60000)) }
func addr4(a *Author) any   { return fmt.Sprintf("192.0.2.%d", 1+a.IntN(250)) }
func addr6(a *Author) any   { return fmt.Sprintf("2001:db8::%x", 1+a.IntN(60000)) }
func text(a *Author) any    { return fmt.Sprintf("text %d", a.IntN(100)) }

var (
	prefix   = either(prefix4, prefix6)
	addr     = either(addr4, addr6)
	name     = pick("web", "db-1", "a.b", "node-1", "n1", "0x")
	selector = pick("all()", `app == "web"`, "has(role)", "!has(role)", `zone in {"a", "b"} && role != 'db'`, `zone not in {'a'}`,
		`(a == "b" || has(c)) && !(d contains "e")`, `name starts with "web"`, `name ends with "-1"`, `projectcalico.org/namespace == "prod"`)
	period   = pick("0s", "10s", "1m30s", "500ms", "2h")
	seconds  = pick("1s", "90s", "2m0s", "1h0m0s")
	enabled  = pick("Enabled", "Disabled")
	asNumber = either(from(1, 65535), func(a *Author) any { return 4200000000 + a.IntN(1000) }, pick("64512", "1.10"))
	mac      = pick("ee:ee:ee:ee:ee:ee", "66:00:00:00:00:01")
	wgKey    = pick("jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY=", "bKXYcXAOSLIHEEYSDkpWzo5cyJPTMTcWnG1lGDgDnAM=")
)

// labels and annotations.
func pairs(keys, values []string) gen {
	return func(a *Author) any {
		out := dict{}
		for range 1 + a.IntN(3) {
			out[keys[a.IntN(len(keys))]] = values[a.IntN(len(values))]
		}
		return out
	}
}

var (
	labels      = pairs([]string{"app", "example.com/Tier", "Zone", "a_b.c"}, []string{"web", "", "A-1_b.C", "true", "12"})
	annotations = pairs([]string{"note", "example.com/note", "Camel.Case"}, []string{"", "any text: {\"a\": [1]}", "yes", "012"})
)

// metadata is that of any resource. What a server fills in is there as often as not, and null where upstream prints null.
func metadata(named gen, more ...field) gen {
	return obj(append([]field{
		req("name", named),
		opt("labels", labels), opt("annotations", annotations),
		opt("uid", pick("5b0c8aa4-5dc4-4b6a-8b5e-0c6fbd1b4d0e")),
		opt("creationTimestamp", either(pick("2024-05-06T07:08:09Z"), none)),
		opt("generation", from(1, 9)),
		opt("selfLink", pick("/apis/projectcalico.org/v3/x/y", "")),
		opt("generateName", pick("x-")),
		opt("deletionGracePeriodSeconds", either(none, from(0, 30))),
		opt("deletionTimestamp", none),
		opt("finalizers", either(some(0, 2, pick("example.com/a")), none)),
		opt("ownerReferences", either(none, some(0, 1, obj(req("apiVersion", pick("v1")), req("kind", pick("Namespace")), req("name", pick("prod")),
			req("uid", pick("u1")), opt("controller", pointer), opt("blockOwnerDeletion", pointer))))),
		opt("managedFields", some(0, 2, func(*Author) any {
			return dict{
				"manager": "kubectl", "operation": "Update", "apiVersion": "projectcalico.org/v3", "time": "2024-05-06T07:08:09Z",
				"fieldsType": "FieldsV1", "fieldsV1": dict{"f:spec": dict{"f:order": dict{}}},
			}
		})),
	}, more...)...)
}

func none(*Author) any { return nil }

// Kind is a kind of upstream's and how to write one.
type Kind struct {
	Name, Plural string
	Namespaced   bool
	One          bool // there is only one, named default

	named    gen // nil: x-N
	body     []field
	complete func(*Author, Object) // makes fields that depend on each other consistent
}

// Write returns a random resource of the kind. Its name is new, unless the kind or its names leave no choice.
func (k Kind) Write(a *Author) Object {
	named := k.named
	switch {
	case k.One:
		named = pick("default")
	case named == nil:
		named = func(a *Author) any { return fmt.Sprintf("x-%d", a.fresh()) }
	}
	var more []field
	if k.Namespaced {
		more = append(more, req("namespace", pick("prod", "default", "test-1")))
	}
	o := obj(append([]field{req("metadata", metadata(named, more...))}, k.body...)...)(a).(Object)
	o["kind"], o["apiVersion"] = k.Name, "projectcalico.org/v3"
	if k.complete != nil {
		k.complete(a, o)
	}
	return o
}

func spec(o Object) Object {
	s, _ := o["spec"].(Object)
	return s
}

// without removes what must not be there when a condition holds.
func (o Object) without(names ...string) {
	for _, n := range names {
		delete(o, n)
	}
}

func (o Object) has(name string) bool { return o[name] != nil }

// Name is that of the metadata.
func (o Object) Name() string { return metaText(o, "name") }

// Namespace is empty if there is none.
func (o Object) Namespace() string { return metaText(o, "namespace") }

func metaText(o Object, field string) string {
	m, _ := o["metadata"].(Object)
	s, _ := m[field].(string)
	return s
}
