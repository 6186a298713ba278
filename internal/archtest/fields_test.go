package archtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kernel"
)

var update = flag.Bool("update", false, "write docs/fields.md anew")

// TestEveryFieldHasAFate walks every field of every kind: Twill acts on it, and a test that exists shows that; or it says
// something and asks for nothing, and is kept; or it is in api's table of the fields on which Twill does not act, which are
// warned of or refused. docs/fields.md is printed from that.
func TestEveryFieldHasAFate(t *testing.T) {
	tests := testsByPackage(t)
	fates, wrong := fatesOfFields(proofs, api.AllUnhonoured())
	structs, uses := structsOfKinds()
	known := map[string]bool{}
	var page bytes.Buffer
	page.WriteString(fieldsHead)
	for _, s := range structs {
		leaves := leavesOf(s)
		if len(leaves) > 0 {
			fmt.Fprintf(&page, "\n## %s\n\n%s\n\n| field | | |\n|---|---|---|\n", s.Name(), uses[s])
		}
		for _, name := range leaves {
			id := s.Name() + "." + name
			known[id] = true
			f, ok := fates[id]
			if !ok {
				wrong = append(wrong, id+" has no entry: name the test that shows it, or put it into api's table")
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", name, f.what, f.why)
			for _, missing := range unknownTests(f.test, tests) {
				wrong = append(wrong, fmt.Sprintf("%s names %s, which does not exist", id, missing))
			}
		}
	}
	for id := range fates {
		if !known[id] {
			wrong = append(wrong, id+" has an entry, and there is no such field")
		}
	}
	slices.Sort(wrong)
	for _, w := range wrong {
		t.Error(w)
	}
	const file = root + "docs/fields.md"
	if *update {
		if err := os.WriteFile(file, page.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, page.Bytes()) {
		t.Errorf("docs/fields.md is not what the tables say (%v); run go test ./internal/archtest -update", err)
	}
}

const fieldsHead = `# What becomes of each field

Printed by ` + "`go test ./internal/archtest -run EveryField -update`" + `; the test fails if a field of a kind is not here, or a test that is named is none.

- **honoured**: Twill acts on it. The test that is named fails if it does not.
- **kept**: it says something and asks for nothing. It is stored and shown as it is written.
- **warned of**: Twill does not act on it, and packets go as if it did. ` + "`twill apply` and `twill validate`" + ` say so on standard error
  (` + "`--strict`" + `: an error), and ` + "`twill status`, `describe` and `doctor`" + ` name it as long as it is stored.
- **refused**: Twill does not act on it, and packets would go otherwise if it did. ` + "`twill apply`" + ` refuses it by name; where something
  else has stored it, it is listed among what is wrong.

Of the last two, values that ask for nothing else than what happens, and Calico's defaults, are accepted in silence, as are empty ones.
A field that is not here is refused in what users write, and kept in what is stored. ` + "`" + `kind` + "`" + ` and ` + "`" + `apiVersion` + "`" + ` must be those of a kind.
`

// proof is a test, and the fields of one struct that it shows; without a test they are kept.
type proof struct{ test, of, fields string }

type fieldFate struct{ what, why, test string }

// fatesOfFields puts both tables into one, by struct and field, and says where they contradict themselves or each other.
func fatesOfFields(proofs []proof, table []api.Unhonoured) (out map[string]fieldFate, wrong []string) {
	out = map[string]fieldFate{}
	put := func(id string, f fieldFate) {
		if _, twice := out[id]; twice {
			wrong = append(wrong, id+" has two entries")
		}
		out[id] = f
	}
	for _, p := range proofs {
		for name := range strings.FieldsSeq(p.fields) {
			if p.test == "" {
				put(p.of+"."+name, fieldFate{what: "kept"})
				continue
			}
			put(p.of+"."+name, fieldFate{"honoured", "`" + strings.ReplaceAll(p.test, ", ", "`, `") + "`", p.test})
		}
	}
	for _, u := range table {
		why := u.Why
		if len(u.Quiet) > 0 {
			why += "; in silence: `" + strings.Join(u.Quiet, "`, `") + "`"
		}
		put(u.Type.Name()+"."+u.Field, fieldFate{what: string(u.Fate), why: why})
	}
	return out, wrong
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// inner is the struct that a field holds, itself or by pointers and lists; nil: the field is a leaf.
func inner(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	return t
}

// eachField calls f for each field of a struct by its JSON name, embedded ones in their place.
func eachField(t reflect.Type, f func(name string, of reflect.Type)) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || field.Type == reflect.TypeFor[api.TypeMeta](): // kind and apiVersion: see fieldsHead
		case field.Anonymous && name == "":
			eachField(field.Type, f)
		default:
			f(name, field.Type)
		}
	}
}

// leavesOf are the fields of a struct that hold no other struct, and those of which the table speaks as a whole.
func leavesOf(t reflect.Type) (out []string) {
	eachField(t, func(name string, of reflect.Type) {
		if inner(of) == nil || asAWhole(t, name) {
			out = append(out, name)
		}
	})
	return out
}

// asAWhole reports whether the table has the field itself, so that what is in it has no fate of its own.
func asAWhole(t reflect.Type, name string) bool {
	return slices.ContainsFunc(api.AllUnhonoured(), func(u api.Unhonoured) bool { return u.Type == t && u.Field == name })
}

// structsOfKinds are the structs of all kinds, each once, with where they are.
func structsOfKinds() (all []reflect.Type, uses map[reflect.Type]string) {
	where := map[reflect.Type][2][]string{}
	var walk func(t reflect.Type, kind, path string)
	walk = func(t reflect.Type, kind, path string) {
		w, had := where[t]
		if !slices.Contains(w[0], kind) {
			w[0] = append(w[0], kind)
		}
		if at := "`" + path + "`"; path != "" && !slices.Contains(w[1], at) {
			w[1] = append(w[1], at)
		}
		if where[t] = w; !had {
			all = append(all, t)
		}
		eachField(t, func(name string, of reflect.Type) {
			if in := inner(of); in != nil && !asAWhole(t, name) {
				if of.Kind() == reflect.Slice {
					name += "[]"
				}
				walk(in, kind, strings.TrimPrefix(path+"."+name, "."))
			}
		})
	}
	for _, k := range api.Kinds() {
		walk(reflect.TypeOf(api.New(k.Kind)).Elem(), k.Kind, "")
	}
	uses = map[reflect.Type]string{}
	for t, w := range where {
		at, of := "The document", strings.Join(w[0], ", ")
		if len(w[1]) > 0 {
			at = strings.Join(w[1], ", ")
		}
		if len(w[0]) == len(api.Kinds()) {
			of = "every kind"
		}
		uses[t] = fmt.Sprintf("%s of %s.", at, of)
	}
	return all, uses
}

func TestAContradictionAmongFatesIsFound(t *testing.T) {
	type s struct{}
	_, wrong := fatesOfFields([]proof{{"a.TestA", "s", "b c"}, {"", "s", "c"}}, []api.Unhonoured{{Type: reflect.TypeFor[s](), Field: "b"}})
	if got := strings.Join(wrong, ", "); got != "s.c has two entries, s.b has two entries" {
		t.Errorf("found %q", got)
	}
}

// TestMasksAreOneInAPIAndKernel holds what api says of a mask to the bits that are given out.
func TestMasksAreOneInAPIAndKernel(t *testing.T) {
	if api.LeastMarks != kernel.MarksNeeded || api.MarkMask != kernel.MarkMask {
		t.Errorf("api has %d bits of %#08x, and the kernel's part %d of %#08x", api.LeastMarks, api.MarkMask, kernel.MarksNeeded, kernel.MarkMask)
	}
}
