// Package policynames has policies stored under the names that users know them by.
//
// In: a store. Before v3.32 upstream stored a policy of tier default as default.NAME, and showed it as NAME; since then the key has
// the name that users know. Out: a [Step] for each policy of an older name, with what becomes of it or would; or why it stays.
//
// What holds: at each moment the policy is in force, with the same rules, tier and order. Where the store has transactions, the
// new key comes and the old one goes in one. Elsewhere the new key comes first, and until the old one is gone two equal policies stand
// next to each other, of which the second decides nothing that the first has not. What was begun, and ended at any write, is finished
// by the next call. A policy is never written over another.
//
// Source: upstream's controller of these names, and its command `datastore migrate-policy-names`.
package policynames

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// What becomes of a policy.
const (
	Renamed = "renamed" // its key has its name now
	Removed = "removed" // of two keys that hold the same policy, the older one; or of two that differ, if the caller wants that
	Refused = "refused" // it stays as it is: Note says why, and what to do
	Left    = "left alone"
)

// Step is what becomes of one policy that is stored under an older name.
type Step struct {
	Policy    string `json:"policy"` // what it is called in messages: networkpolicy/prod/web
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Stored    string `json:"stored"` // the name of its key
	Name      string `json:"name"`   // by which users know it, and which its key has afterwards
	What      string `json:"what"`
	Note      string `json:"note,omitempty"` // why it is refused or left alone

	key string
}

// Renaming says how policies are renamed.
type Renaming struct {
	Dry      bool // only say what would become of them
	KeepNews bool // where the older and the newer name are both stored and the policies differ, the newer one stays
}

// Needs reports whether a stored value is a policy whose key has another name than its users know.
func Needs(u api.Update) bool {
	_, needs := look(u)
	return needs
}

// Find returns all policies that are stored under another name than their users know, by key.
func Find(ctx context.Context, s datastore.Store) (out []Step, err error) {
	s = resources.WithoutViews(s)
	for _, k := range api.Kinds() {
		if !k.Policy {
			continue
		}
		snap, err := s.List(ctx, api.KeyPrefix(k.Kind, ""))
		if err != nil {
			return nil, err
		}
		for _, u := range snap.Sorted() {
			if step, needs := look(u); needs {
				out = append(out, step)
			}
		}
	}
	return out, nil
}

// look says of a stored value by itself what would become of it; false: it needs nothing.
func look(u api.Update) (Step, bool) {
	at, ok := api.ParseKey(u.Key)
	if k, _ := api.LookupKind(at.Kind); !ok || !k.Policy || u.Value == nil {
		return Step{}, false
	}
	step := Step{Kind: at.Kind, Namespace: at.Namespace, Stored: at.Name, What: Renamed, key: u.Key}
	st, err := api.DecodeStored(u)
	if err != nil || st.NoObject {
		bare, prefixed := strings.CutPrefix(at.Name, api.TierDefault+".")
		if !prefixed {
			return Step{}, false
		}
		step.What, step.Note = Refused, "what is stored cannot be read; apply it anew, or delete it"
		return step.named(bare), true
	}
	step = step.named(st.Ref.Name)
	switch tier := cmp.Or(resources.TierName(st.Resource), api.TierDefault); {
	case step.Name == at.Name:
		return Step{}, false
	case tier != api.TierDefault:
		step.What, step.Note = Left, fmt.Sprintf("it is in tier %s, and upstream gave another name to the keys of tier %s alone", tier, api.TierDefault)
	case st.Resource.Meta().DeletionTimestamp != "":
		step.What, step.Note = Left, "it is being deleted, and goes with its last finalizer"
	}
	if _, err := st.Ref.Key(); err != nil {
		step.What, step.Note = Refused, err.Error()
	}
	return step, true
}

// named is the step of a policy that its users know by a name.
func (s Step) named(name string) Step {
	s.Name = name
	s.Policy = resources.Short(api.Ref{Kind: s.Kind, Namespace: s.Namespace, Name: name})
	return s
}

// tries is how often a policy is looked at anew after another writer was faster.
const tries = 10

// Rename gives the policy of a step the key that its name makes, and returns what became of it; a Step without What: there is no
// such policy any more. An error is the datastore's; after [datastore.ErrUnavailable] it is not known what was done, and the next call
// goes on from there.
func (r Renaming) Rename(ctx context.Context, s datastore.Store, of Step) (Step, error) {
	return r.RenameKey(ctx, s, of.key)
}

// RenameKey is Rename of the policy that a key holds.
func (r Renaming) RenameKey(ctx context.Context, s datastore.Store, key string) (step Step, err error) {
	s = resources.WithoutViews(s)
	for range tries {
		if step, err = r.once(ctx, s, key); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) {
			return step, err
		}
	}
	return step, fmt.Errorf("%s: %w, %d times in a row; try again when its other writer is quiet", step.Policy, err, tries)
}

func (r Renaming) once(ctx context.Context, s datastore.Store, key string) (Step, error) {
	old, err := s.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return Step{}, nil
	}
	if err != nil {
		return Step{}, err
	}
	step, needs := look(old)
	if !needs || step.What != Renamed {
		return step, nil
	}
	ref := api.Ref{Kind: step.Kind, Namespace: step.Namespace, Name: step.Name}
	to, err := ref.Key()
	if err != nil {
		return step, err
	}
	now, err := s.Get(ctx, to)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		return step, err
	}
	if err == nil {
		if step.What, step.Note = r.both(old, now, ref, step); step.What == Refused || r.Dry {
			return step, nil
		}
		return step, remove(ctx, s, old, now)
	}
	if r.Dry {
		return step, nil
	}
	value, err := rewritten(old, step.Name)
	if err != nil {
		return step, err
	}
	return step, move(ctx, s, old, api.Update{Key: to, Value: value})
}

// both says what becomes of a policy whose newer name is stored, too.
func (r Renaming) both(old, now api.Update, ref api.Ref, step Step) (what, note string) {
	st, err := api.DecodeStored(now)
	if err != nil || st.NoObject {
		return Refused, fmt.Sprintf("what is stored as %s cannot be read; delete that, and rename again", step.Name)
	}
	if st.Ref != ref {
		return Refused, fmt.Sprintf("%s is stored under that name; rename that first, or delete one of them", resources.Short(st.Ref))
	}
	differ := slices.DeleteFunc(resources.Written{Was: old, Now: now}.Changes(), sameForPackets)
	if len(differ) > 0 && !r.KeepNews {
		return Refused, fmt.Sprintf("another policy of that name is stored as %s (%s): delete the one that is wrong, or keep the newer name with --keep-newer", step.Name, resources.ListChanges(differ))
	}
	return Removed, ""
}

// sameForPackets reports whether a difference between two policies of one name changes nothing for packets.
func sameForPackets(c resources.Change) bool {
	tier := func(v any) bool { return v == nil || v == api.TierDefault }
	return !strings.HasPrefix(c.Path, "spec") || c.Path == "spec.tier" && tier(c.Was) && tier(c.Now)
}

// rewritten is the value of a policy under its users' name. All else that is stored stays: labels, owners, finalizers, what other
// versions wrote.
func rewritten(old api.Update, name string) ([]byte, error) {
	tree, err := resources.Tree(old.Value)
	if err != nil {
		return nil, err
	}
	doc, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: no object", old.Key)
	}
	text, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return nil, err
	}
	patch := map[string]any{"metadata": map[string]any{
		"name": name, "annotations": map[string]any{api.AnnotationMetadata: string(text)}, "labels": map[string]any{api.LabelTier: api.TierDefault},
	}}
	return resources.InOrderOf(old.Value, resources.MergePatch(doc, patch)), nil
}

// move writes what a key held under another name, where nothing was, and takes the key away.
func move(ctx context.Context, s datastore.Store, old, fresh api.Update) error {
	if t, ok := s.(datastore.Transactional); ok {
		_, err := t.Transact(ctx, datastore.Txn{If: map[string]api.Revision{old.Key: old.Revision, fresh.Key: {}}, Put: []api.Update{fresh}, Delete: []string{old.Key}})
		return err
	}
	made, err := s.Create(ctx, fresh)
	if err != nil {
		return err
	}
	err = s.Delete(ctx, old.Key, old.Revision)
	if !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrNotFound) {
		return err
	}
	// Somebody changed or deleted the policy under its older name since it was read: what was made of it goes again.
	if undo := s.Delete(ctx, made.Key, made.Revision); undo != nil && !errors.Is(undo, datastore.ErrNotFound) && !errors.Is(undo, datastore.ErrConflict) {
		return undo
	}
	return datastore.ErrConflict
}

// remove takes the older of two keys away, if both are as they were.
func remove(ctx context.Context, s datastore.Store, old, now api.Update) error {
	if t, ok := s.(datastore.Transactional); ok {
		_, err := t.Transact(ctx, datastore.Txn{If: map[string]api.Revision{old.Key: old.Revision, now.Key: now.Revision}, Delete: []string{old.Key}})
		return err
	}
	if err := s.Delete(ctx, old.Key, old.Revision); !errors.Is(err, datastore.ErrNotFound) {
		return err
	}
	return nil
}
