package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// Tree reads JSON; numbers stay as they were written.
func Tree(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// Cell is a value in one line.
func Cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, _ := json.Marshal(v) // it came from JSON
	return string(text)
}

// Change is a field that differs between two documents.
type Change struct {
	Path     string
	Was, Now any // absent is nil
}

func (c Change) String() string {
	return fmt.Sprintf("%s %s → %s", c.Path, Brief(c.Was), Brief(c.Now))
}

// Brief is a value for a message.
func Brief(v any) string {
	const most = 60
	text := Cell(v)
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
func changes(was, now any, path string) []Change {
	a, ok1 := was.(map[string]any)
	b, ok2 := now.(map[string]any)
	if !ok1 || !ok2 {
		if reflect.DeepEqual(was, now) {
			return nil
		}
		return []Change{{path, was, now}}
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
	var out []Change
	for _, k := range names {
		out = append(out, changes(a[k], b[k], strings.TrimPrefix(path+"."+k, "."))...)
	}
	return out
}

// ListChanges is changes in one line.
func ListChanges(cs []Change) string {
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

// UserDoc is a stored document as users see it, with its revision.
func UserDoc(u api.Update) ([]byte, error) {
	raw, err := api.UserJSON(u)
	if err != nil || u.Revision.IsZero() {
		return raw, err
	}
	return WithMetadata(raw, func(meta map[string]json.RawMessage) {
		meta["resourceVersion"], _ = json.Marshal(u.Revision.String()) // text always encodes
	})
}

// WithMetadata changes the metadata of a document.
func WithMetadata(raw []byte, change func(map[string]json.RawMessage)) ([]byte, error) {
	var doc, meta map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	if m := doc["metadata"]; m != nil {
		if err := json.Unmarshal(m, &meta); err != nil {
			return nil, fmt.Errorf("metadata: want an object")
		}
	}
	if meta == nil {
		meta = map[string]json.RawMessage{}
	}
	change(meta)
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	if doc == nil {
		doc = map[string]json.RawMessage{}
	}
	doc["metadata"] = text
	return json.Marshal(doc)
}

// Builtins are the resources that exist though nothing stores them.
func Builtins(kind string) []api.Resource {
	tier := func(name string, order float64, action api.Action) api.Resource {
		t := api.New(api.KindTier).(*api.Tier)
		t.Kind, t.APIVersion, t.Metadata.Name = api.KindTier, api.GroupVersion, name
		t.Spec = api.TierSpec{Order: &order, DefaultAction: &action}
		return t
	}
	switch kind {
	case api.KindTier:
		return []api.Resource{tier(api.TierKubeAdmin, 1000, api.Pass), tier(api.TierDefault, 1_000_000, api.Deny), tier(api.TierKubeBaseline, 10_000_000, api.Pass)}
	case api.KindProfile:
		return []api.Resource{api.BuiltinProfile()}
	}
	return nil
}
