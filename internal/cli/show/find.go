package show

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// Found is one resource of the answer.
type Found struct {
	kind  api.Kind
	Ref   api.Ref
	Value api.Update
	Res   api.Resource
	Doc   []byte // as users see it; nil if it cannot be read
	Note  string // what is wrong in it

	Builtin bool // nothing stores it
}

// ReadFound reads a stored value as far as it can be read.
func ReadFound(kind api.Kind, u api.Update) Found {
	f := Found{kind: kind, Value: u}
	st, err := api.DecodeStored(u)
	if err != nil {
		f.Ref, _ = api.ParseKey(u.Key)
		f.Note = err.Error()
		return f
	}
	f.Ref, f.Res, f.Note = st.Ref, st.Resource, st.Closed
	if i := slices.IndexFunc(st.Problems, func(p api.Problem) bool { return !p.NoEffect }); f.Note == "" && i >= 0 {
		f.Note = strings.TrimPrefix(st.Problems[i].Field+": "+st.Problems[i].Reason, ": ")
	}
	f.Doc, _ = resources.UserDoc(u) // what DecodeStored can read, it can
	return f
}

// Find lists the resources of one kind by name, of one namespace or, if it is empty, of all, and says as of which position of the
// datastore.
func Find(ctx context.Context, s datastore.Store, kind api.Kind, namespace string) ([]Found, datastore.Position, error) {
	return find(ctx, s, kind, scope{Namespace: namespace, All: namespace == ""})
}

// find lists the resources of one kind by name, and says as of which position of the datastore.
func find(ctx context.Context, s datastore.Store, kind api.Kind, o scope) ([]Found, datastore.Position, error) {
	namespace := ""
	if kind.Namespaced && !o.All {
		namespace = o.Namespace
	}
	snap, err := s.List(ctx, api.KeyPrefix(kind.Kind, namespace))
	if err != nil {
		return nil, datastore.Position{}, err
	}
	var out []Found
	have := map[string]int{} // where it is in out
	for _, u := range snap.Sorted() {
		f := ReadFound(kind, u)
		have[f.Ref.Name] = len(out)
		out = append(out, f)
	}
	if kind.Kind == api.KindIPAMConfiguration {
		if note := resources.Differing(ctx, s); note != "" && len(out) > 0 {
			out[0].Note = note
		} else if note != "" {
			out = append(out, ReadFound(kind, api.Update{Key: resources.TheConfiguration, Value: defaultConfiguration()}))
			out[0].Note = note
		}
	}
	for _, r := range resources.Builtins(kind.Kind) {
		i, stored := have[r.Meta().Name]
		switch t, ok := r.(*api.Tier); {
		case !stored:
			value, err := api.EncodeStored(r)
			if err != nil {
				return nil, datastore.Position{}, err
			}
			key, _ := api.Key(r)
			f := ReadFound(kind, api.Update{Key: key, Value: value})
			f.Res, f.Builtin = r, true
			out = append(out, f)
		case ok: // it is what it is, whatever is stored
			if was, ok := out[i].Res.(*api.Tier); ok && out[i].Note == "" && !sameTier(was.Spec, t.Spec) {
				was.Spec = t.Spec
				out[i].Note = "the stored order and default action are ignored: this tier is built in"
			}
			if out[i].Res == nil {
				out[i].Res = r
			}
		}
	}
	if kind.Kind == api.KindTier {
		slices.SortStableFunc(out, func(a, b Found) int { return cmp.Compare(tierOrder(a.Res), tierOrder(b.Res)) })
	}
	return out, snap.Position, nil
}

// defaultConfiguration is what holds where no configuration is stored.
func defaultConfiguration() []byte {
	value, _ := api.EncodeStored(api.DefaultIPAMConfig().Resource()) // it was just made
	return value
}

func sameTier(a, b api.TierSpec) bool {
	return Number(a.Order) == Number(b.Order) && TierAction(a) == TierAction(b)
}

// tierOrder sorts tiers as they are walked; none is last.
func tierOrder(r api.Resource) float64 {
	if t, ok := r.(*api.Tier); ok && t.Spec.Order != nil {
		return *t.Spec.Order
	}
	return math.Inf(1)
}

// named keeps those that were asked for. Each must exist; the error says which do not, and the others are there nevertheless.
func named(ctx context.Context, s datastore.Store, fs []Found, kind api.Kind, names []string, o scope) ([]Found, error) {
	var out []Found
	var missing []error
	for _, n := range names {
		hit := false
		for _, f := range fs {
			if f.Ref.Name == n {
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
	o.All = true
	all, _, err := find(ctx, s, kind, o)
	if err != nil {
		return err
	}
	elsewhere, names := namespacesOf(all, name), []string{}
	for _, f := range all {
		names = append(names, f.Ref.Name)
	}
	text := fmt.Sprintf("%s/%s does not exist", resources.Singular(kind), name)
	if kind.Namespaced && len(elsewhere) > 0 {
		return fmt.Errorf("%s in namespace %s; it does with %s", text, o.Namespace, strings.Join(elsewhere, " or "))
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

func LookupKind(word string) (api.Kind, error) {
	if k, ok := api.LookupKind(word); ok {
		return k, nil
	}
	return api.Kind{}, console.Usage("%q is no kind; there are %s", word, KindNames())
}

func KindNames() string {
	var names []string
	for _, k := range api.Kinds() {
		names = append(names, k.Plural)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
