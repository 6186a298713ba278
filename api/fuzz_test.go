package api

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

func FuzzDecodeStored(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.key, g.data)
	}
	f.Add(ResourcesPrefix+"networkpolicies/a/b", []byte(`{"spec":{"ingress":[null,{"action":"Deny","source":{"x":1}}],"egress":[{"icmp":{}}]}}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		s, err := DecodeStored(Update{Key: key, Value: data})
		if err != nil {
			return
		}
		if s.Resource == nil || s.Ref.Name == "" {
			t.Fatalf("no resource: %+v", s)
		}
		for _, l := range rulesOf(s.Resource) {
			for i := range *l.rules {
				r := &(*l.rules)[i]
				if problems := checkRule(r); len(problems) > 0 {
					t.Fatalf("%s[%d] was left with %v", l.path, i, problems)
				}
				if r.Void && r.Action == Deny {
					t.Fatalf("%s[%d]: a Deny is void", l.path, i)
				}
			}
		}
		_ = Validate(s.Resource)
		_, _ = UserJSON(Update{Key: key, Value: data})
		if merged, err := MergeRaw(data, s.Resource); err == nil && !json.Valid(merged) {
			t.Fatalf("merged into %s", merged)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.data)
	}
	f.Add([]byte(head + "spec: {ingress: [{action: Allow, y: on}]}\n---\nkind: List\nitems: [{}, null, 7]\n...\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, _ := Decode(data)
		for _, d := range docs {
			Default(d.Resource)
			if len(Validate(d.Resource)) > 0 {
				continue
			}
			text, err := EncodeStored(d.Resource)
			if err != nil {
				t.Fatalf("valid, but not to be stored: %v", err)
			}
			key, err := Key(d.Resource)
			if err != nil {
				t.Fatalf("valid, but without a key: %v", err)
			}
			s, err := DecodeStored(Update{Key: key, Value: text})
			if err != nil || s.Closed != "" && d.Resource.Type().Kind != KindWorkloadEndpoint {
				t.Fatalf("valid and stored, but closed: %q, %v: %s", s.Closed, err, text)
			}
		}
	})
}

// fill sets a value at random. Text is such that types of their own read it back.
func fill(r *rand.Rand, v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *Later:
		*p = []Later{nil, Later(`""`), Later(`true`), Later(`{"a":[1]}`)}[r.IntN(4)]
		return
	case *Protocol:
		*p = []Protocol{{Name: "TCP"}, {Name: "UDP"}, {Num: 47}}[r.IntN(3)]
		return
	case *Port:
		*p = []Port{{Min: 80, Max: 80}, {Min: 1, Max: 9}, {Name: "http"}}[r.IntN(3)]
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"", "a", "all()", "has(x) && y == 'z'", "10.0.0.0/8"}[r.IntN(5)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(r.IntN(100)))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(r.IntN(100)))
	case reflect.Float64:
		v.SetFloat(float64(r.IntN(1000)) / 4)
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
			if e := v.Elem(); e.Kind() == reflect.Slice && e.IsNil() {
				e.Set(reflect.MakeSlice(e.Type(), 0, 0)) // null would be no list at all
			}
		}
	case reflect.Slice:
		if n := r.IntN(3); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(r, v.Index(i))
			}
		}
	case reflect.Map:
		if r.IntN(2) == 0 {
			v.Set(reflect.ValueOf(map[string]string{"k": "v"}))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Void" {
				fill(r, v.Field(i))
			}
		}
	}
}

func TestRandomResourcesSurviveTheirStoredForm(t *testing.T) {
	seed := seedtest.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		k := kinds[r.IntN(len(kinds))]
		was := New(k.Kind)
		fill(r, reflect.ValueOf(was).Elem())
		*was.Type() = TypeMeta{k.Kind, GroupVersion}
		text, err := EncodeStored(was)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// The typed reading and the one that goes field by field are one.
		a, b := New(k.Kind), New(k.Kind)
		if err := readStored(text, a); err != nil {
			t.Fatalf("seed %d: %v: %s", seed, err, text)
		}
		w := walker{strict: true}
		w.read(text, reflect.ValueOf(b).Elem(), "")
		if len(w.found) > 0 || !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d: %v:\n%+v\n%+v", seed, w.found, a, b)
		}
		again, err := EncodeStored(a)
		if err != nil || !bytes.Equal(again, text) {
			t.Fatalf("seed %d: %v:\n%s\n%s", seed, err, text, again)
		}
		if merged, err := MergeRaw(text, a); err != nil || !bytes.Equal(merged, text) {
			t.Fatalf("seed %d: merged %v:\n%s\n%s", seed, err, text, merged)
		}
	}
}

func BenchmarkDecodeStored(b *testing.B) {
	benchGolden(b, func(g golden, _ Resource) error {
		_, err := DecodeStored(Update{Key: g.key, Value: g.data})
		return err
	})
}

func BenchmarkEncodeStored(b *testing.B) {
	benchGolden(b, func(_ golden, r Resource) error {
		_, err := EncodeStored(r)
		return err
	})
}

func benchGolden(b *testing.B, f func(golden, Resource) error) {
	for _, g := range goldens(b) {
		s, err := DecodeStored(Update{Key: g.key, Value: g.data})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(s.Ref.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(g, s.Resource); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
