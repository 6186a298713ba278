package api

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type golden struct {
	key  string
	data []byte
}

// goldens are documents as upstream's own tools store them, by the end of their key.
func goldens(t testing.TB) []golden {
	t.Helper()
	var out []golden
	const dir = "testdata/golden"
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out = append(out, golden{ResourcesPrefix + strings.TrimSuffix(rel, ".json"), data})
		return err
	})
	if err != nil || len(out) < 10 {
		t.Fatalf("%d fixtures: %v", len(out), err)
	}
	return out
}

func TestGoldenFormsAreReadAndWrittenBackEqual(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(strings.TrimPrefix(g.key, ResourcesPrefix), func(t *testing.T) {
			s, err := DecodeStored(Update{Key: g.key, Value: g.data})
			if err != nil || s.Closed != "" || len(s.Problems) > 0 {
				t.Fatalf("read: %v, closed %q, problems %v", err, s.Closed, s.Problems)
			}
			got, err := EncodeStored(s.Resource)
			if err != nil || !bytes.Equal(got, g.data) {
				t.Errorf("written back (%v):\n got %s\nwant %s", err, got, g.data)
			}
			if key, err := Key(s.Resource); key != g.key || err != nil {
				t.Errorf("key %s (%v), want %s", key, err, g.key)
			}
			merged, err := MergeRaw(g.data, s.Resource)
			if err != nil || !bytes.Equal(merged, g.data) {
				t.Errorf("merged (%v):\n got %s\nwant %s", err, merged, g.data)
			}
		})
	}
}

func TestGoldenFormsComeFromWhatUsersWrite(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(strings.TrimPrefix(g.key, ResourcesPrefix), func(t *testing.T) {
			shown, err := UserJSON(Update{Key: g.key, Value: g.data})
			if err != nil || bytes.Contains(shown, []byte(AnnotationMetadata)) {
				t.Fatalf("shown to users (%v): %s", err, shown)
			}
			docs, err := Decode(shown)
			if err != nil || len(docs) != 1 {
				t.Fatalf("%d documents: %v", len(docs), err)
			}
			r := docs[0].Resource
			Default(r)
			if err := Validate(r).Err(); err != nil {
				t.Fatal(err)
			}
			Prepare(r, "another", "another")
			if got, err := EncodeStored(r); err != nil || !bytes.Equal(got, g.data) {
				t.Errorf("stored (%v):\n got %s\nwant %s", err, got, g.data)
			}
		})
	}
}

func TestAnEditKeepsWhatAnotherVersionWrote(t *testing.T) {
	const key = ResourcesPrefix + "networkpolicies/prod/web"
	old := `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1","creationTimestamp":"t1","managedFields":[1]},` +
		`"spec":{"newField":{"a":[1,2]},"order":5,"ingress":[{"action":"Allow","source":{"sky":"blue"},"moon":1},{"action":"Deny","until":"noon"}],"selector":"all()","types":["Ingress"]},"future":true}`
	u := newPolicy("prod", "web")
	u.Spec.Ingress = []Rule{{Action: Deny}, {Action: Allow}}
	u.Metadata.UID, u.Metadata.CreationTimestamp = "u2", "t2"
	got, err := MergeRaw([]byte(old), u)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"managedFields":[1]`, `"newField":{"a":[1,2]}`, `"future":true`, `"uid":"u1"`, `"creationTimestamp":"t1"`,
		`{"action":"Deny","until":"noon"}`, `"sky":"blue"`, `"moon":1`,
	} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s is lost in %s", want, got)
		}
	}
	for _, gone := range []string{`"order"`, `"types"`} {
		if bytes.Contains(got, []byte(gone)) {
			t.Errorf("%s, which the user removed, is still in %s", gone, got)
		}
	}
	s, err := DecodeStored(Update{Key: key, Value: got})
	if err != nil || !s.Resource.(*NetworkPolicy).Spec.Ingress[1].Void {
		t.Errorf("the Allow with unknown conditions is not void: %+v (%v)", s.Resource, err)
	}
}

func newPolicy(namespace, name string) *NetworkPolicy {
	p := New(KindNetworkPolicy).(*NetworkPolicy)
	p.Metadata.Namespace, p.Metadata.Name = namespace, name
	return p
}

func TestMergeKeepsStatusAndRefusesWhatIsNotJSON(t *testing.T) {
	tier := New(KindTier).(*Tier)
	tier.Metadata.Name = "sec"
	old := `{"kind":"Tier","metadata":{"name":"sec","finalizers":["f"]},"spec":{},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"x","reason":"r","message":"m"}]}}`
	got, err := MergeRaw([]byte(old), tier)
	if err != nil || !bytes.Contains(got, []byte(`"Ready"`)) || !bytes.Contains(got, []byte(`"finalizers":["f"]`)) {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := MergeRaw([]byte("{"), tier); err == nil {
		t.Error("merged into what is not JSON")
	}
}

func TestWhatWasClosedIsNotStored(t *testing.T) {
	p := newPolicy("prod", "web")
	p.Spec.Ingress = []Rule{{Action: Allow, Void: true}}
	if data, err := EncodeStored(p); err == nil {
		t.Errorf("stored %s", data)
	}
}

func TestUserNames(t *testing.T) {
	for _, tt := range []struct{ name, key, tier, annotation, want string }{
		{"the annotation wins", "default.foo", "default", `{"name":"default.foo"}`, "default.foo"},
		{"an old name loses its tier", "default.foo", "default", "", "foo"},
		{"an old name without a tier too", "default.foo", "", "", "foo"},
		{"another tier's prefix stays", "sec.foo", "sec", "", "sec.foo"},
		{"the prefix alone is a name", "default.", "default", "", "default."},
		{"a broken annotation counts as none", "default.foo", "default", "{", "foo"},
		{"a name that would break a key counts as none", "foo", "default", `{"name":"a/b"}`, "foo"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPolicy("ns", tt.key)
			p.Spec.Tier = tt.tier
			if tt.annotation != "" {
				p.Metadata.Annotations = map[string]string{AnnotationMetadata: tt.annotation}
			}
			data, _ := json.Marshal(p)
			s, err := DecodeStored(Update{Key: ResourcesPrefix + "networkpolicies/ns/" + tt.key, Value: data})
			if err != nil || s.Ref.Name != tt.want || s.Resource.Meta().Name != tt.want {
				t.Errorf("%+v, %v", s.Ref, err)
			}
		})
	}
}
