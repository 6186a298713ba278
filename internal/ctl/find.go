package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// found is one resource of the answer.
type found struct {
	kind  api.Kind
	ref   api.Ref
	value api.Update
	res   api.Resource
	doc   []byte // as users see it; nil if it cannot be read
	note  string // what is wrong in it

	builtin bool // nothing stores it
}

// readFound reads a stored value as far as it can be read.
func readFound(kind api.Kind, u api.Update) found {
	f := found{kind: kind, value: u}
	st, err := api.DecodeStored(u)
	if err != nil {
		f.ref, _ = api.ParseKey(u.Key)
		f.note = err.Error()
		return f
	}
	f.ref, f.res, f.note = st.Ref, st.Resource, st.Closed
	if i := slices.IndexFunc(st.Problems, func(p api.Problem) bool { return !p.NoEffect }); f.note == "" && i >= 0 {
		f.note = strings.TrimPrefix(st.Problems[i].Field+": "+st.Problems[i].Reason, ": ")
	}
	f.doc, _ = userDoc(u) // what DecodeStored can read, it can
	return f
}

// userDoc is a stored document as users see it, with its revision.
func userDoc(u api.Update) ([]byte, error) {
	raw, err := api.UserJSON(u)
	if err != nil || u.Revision == 0 {
		return raw, err
	}
	return withMetadata(raw, func(meta map[string]json.RawMessage) {
		meta["resourceVersion"], _ = json.Marshal(strconv.FormatInt(u.Revision, 10)) // text always encodes
	})
}

// withMetadata changes the metadata of a document.
func withMetadata(raw []byte, change func(map[string]json.RawMessage)) ([]byte, error) {
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

// find lists the resources of one kind, as of a revision.
func find(ctx context.Context, s datastore.Store, kind api.Kind, o scope) ([]found, int64, error) {
	namespace := ""
	if kind.Namespaced && !o.all {
		namespace = o.namespace
	}
	snap, err := s.List(ctx, api.KeyPrefix(kind.Kind, namespace))
	if err != nil {
		return nil, 0, err
	}
	var out []found
	have := map[string]int{} // where it is in out
	for _, u := range snap.Items {
		f := readFound(kind, u)
		have[f.ref.Name] = len(out)
		out = append(out, f)
	}
	if kind.Kind == api.KindIPAMConfiguration {
		if note := differing(ctx, s); note != "" && len(out) > 0 {
			out[0].note = note
		} else if note != "" {
			out = append(out, readFound(kind, api.Update{Key: theConfiguration, Value: defaultConfiguration()}))
			out[0].note = note
		}
	}
	for _, r := range builtins(kind.Kind) {
		i, stored := have[r.Meta().Name]
		switch t, ok := r.(*api.Tier); {
		case !stored:
			value, err := api.EncodeStored(r)
			if err != nil {
				return nil, 0, err
			}
			key, _ := api.Key(r)
			f := readFound(kind, api.Update{Key: key, Value: value})
			f.res, f.builtin = r, true
			out = append(out, f)
		case ok: // it is what it is, whatever is stored
			if was, ok := out[i].res.(*api.Tier); ok && out[i].note == "" && !sameTier(was.Spec, t.Spec) {
				was.Spec = t.Spec
				out[i].note = "the stored order and default action are ignored: this tier is built in"
			}
			if out[i].res == nil {
				out[i].res = r
			}
		}
	}
	if kind.Kind == api.KindTier {
		slices.SortStableFunc(out, func(a, b found) int { return cmp.Compare(tierOrder(a.res), tierOrder(b.res)) })
	}
	return out, snap.Revision, nil
}

// defaultConfiguration is what holds where no configuration is stored.
func defaultConfiguration() []byte {
	value, _ := api.EncodeStored(api.DefaultIPAMConfig().Resource()) // it was just made
	return value
}

func sameTier(a, b api.TierSpec) bool {
	return number(a.Order) == number(b.Order) && tierAction(a) == tierAction(b)
}

// tierOrder sorts tiers as they are walked; none is last.
func tierOrder(r api.Resource) float64 {
	if t, ok := r.(*api.Tier); ok && t.Spec.Order != nil {
		return *t.Spec.Order
	}
	return math.Inf(1)
}

// builtins are the resources that exist though nothing stores them.
func builtins(kind string) []api.Resource {
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

// named keeps those that were asked for. Each must exist; the error says which do not, and the others are there nevertheless.
func named(ctx context.Context, s datastore.Store, fs []found, kind api.Kind, names []string, o scope) ([]found, error) {
	var out []found
	var missing []error
	for _, n := range names {
		hit := false
		for _, f := range fs {
			if f.ref.Name == n {
				out, hit = append(out, f), true
			}
		}
		if !hit {
			missing = append(missing, notThere(ctx, s, kind, n, o))
		}
	}
	return out, errors.Join(missing...)
}

// notThere says what may have been meant.
func notThere(ctx context.Context, s datastore.Store, kind api.Kind, name string, o scope) error {
	o.all = true
	all, _, err := find(ctx, s, kind, o)
	if err != nil {
		return err
	}
	var elsewhere, names []string
	for _, f := range all {
		if f.ref.Name == name {
			elsewhere = append(elsewhere, "-n "+f.ref.Namespace)
		}
		names = append(names, f.ref.Name)
	}
	text := fmt.Sprintf("%s/%s does not exist", singular(kind), name)
	if kind.Namespaced && len(elsewhere) > 0 {
		return fmt.Errorf("%s in namespace %s; it does with %s", text, o.namespace, strings.Join(elsewhere, " or "))
	}
	slices.Sort(names)
	const most = 8
	if names = slices.Compact(names); len(names) > most {
		names = append(names[:most], "…")
	}
	if len(names) == 0 {
		return fmt.Errorf("%s; there are no %s", text, kind.Plural)
	}
	return fmt.Errorf("%s; there are %s", text, strings.Join(names, ", "))
}

func lookupKind(word string) (api.Kind, error) {
	if k, ok := api.LookupKind(word); ok {
		return k, nil
	}
	return api.Kind{}, usage("%q is no kind; there are %s", word, kindNames())
}

func kindNames() string {
	var names []string
	for _, k := range api.Kinds() {
		names = append(names, k.Plural)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func singular(k api.Kind) string { return strings.ToLower(k.Kind) }
