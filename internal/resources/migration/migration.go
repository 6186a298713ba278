// Package migration puts what one datastore held into another.
//
// In: keys and values of an export, and a store, which may hold some of them
// already. Out: a [Plan], what becomes of each; or a [RefusedError], all that
// stands in the way, before anything is written. Where a store keeps values among
// objects of others, as in Kubernetes (datastore.Judging), what is made of those
// is left out, what only Calico has of Nodes and pods is written to those, and the store is asked whether it would take the rest.
//
// A plan that fails half-way is made anew and carried out again: what is there and
// equal is left as it is.
package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// Entry is a key as it is in a datastore.
type Entry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // base64 in JSON: what another version wrote need not be JSON
}

// What becomes of an entry.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged" // it is there, and says the same
	LeftOut   = "left out"
)

// Step is what becomes of one entry.
type Step struct {
	Key  string `json:"key"`
	What string `json:"what"`
	// Note says what a user should know of it.
	Note string `json:"note,omitempty"`

	value []byte
}

// Name is what the key is called in messages.
func (s Step) Name() string { return nameOf(s.Key) }

// Plan is what becomes of all entries, in their order.
type Plan []Step

// Count is how many steps are one of these.
func (p Plan) Count(what ...string) (n int) {
	for _, s := range p {
		if slices.Contains(what, s.What) {
			n++
		}
	}
	return n
}

// RefusedError is what stands in the way, each with its name.
type RefusedError struct{ Problems []string }

func (e *RefusedError) Error() string {
	const most = 30
	shown := e.Problems[:min(most, len(e.Problems))]
	text := "nothing was written, since\n  " + strings.Join(shown, "\n  ")
	if more := len(e.Problems) - len(shown); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text
}

// Transient begins the keys of what running processes report.
const Transient = api.Root + "felix/"

// IsTransient reports whether a key is no configuration: it is of a running process, or says what this datastore holds, which means nothing in another.
func IsTransient(key string) bool {
	return strings.HasPrefix(key, Transient) || strings.HasPrefix(key, mirror.Prefix)
}

// Prepare says what becomes of entries, of which none is transient. It is [*RefusedError] if one cannot be put into the store as it is, or if the store holds something else.
// Done is called after each entry.
func Prepare(ctx context.Context, s datastore.Store, es []Entry, done func()) (Plan, error) {
	s = resources.WithoutViews(s)
	snap, err := s.List(ctx, api.Root)
	if err != nil {
		return nil, err
	}
	p := preparation{judge: datastore.JudgeOf(s), here: map[string]api.Update{}, ensured: map[string]bool{}}
	for _, u := range snap.Items {
		p.here[u.Key] = u
	}
	for _, r := range resources.Ensured() {
		key, err := api.Key(r)
		if err != nil {
			return nil, err
		}
		p.ensured[key] = true
	}
	refused := RefusedError{}
	if refused.Problems, err = p.strangers(ctx, snap, es); err != nil {
		return nil, err
	}
	plan := make(Plan, 0, len(es))
	for _, e := range es {
		step, err := p.look(ctx, e)
		switch {
		case err == nil:
			plan = append(plan, step)
		case ctx.Err() != nil, errors.Is(err, datastore.ErrUnavailable), errors.Is(err, datastore.ErrUnauthorized), errors.Is(err, datastore.ErrFull):
			return nil, err
		default:
			refused.Problems = append(refused.Problems, nameOf(e.Key)+" "+err.Error())
		}
		done()
	}
	if len(refused.Problems) > 0 {
		return nil, &refused
	}
	return plan, nil
}

// Carry writes what is planned to a store that is locked, and does not unlock it.
func (p Plan) Carry(ctx context.Context, s datastore.Store, done func()) error {
	s = resources.WithoutViews(s)
	wrote := 0
	for _, step := range p {
		var err error
		switch step.What {
		case Created:
			_, err = s.Create(ctx, api.Update{Key: step.Key, Value: step.value})
		case Updated:
			err = datastore.Put(ctx, s, api.Update{Key: step.Key, Value: step.value})
		default:
			done()
			continue
		}
		if err != nil {
			return fmt.Errorf("%w\n%d keys were written before this, and the datastore stays locked; import again when that is fixed: what is there and equal is left as it is", err, wrote)
		}
		wrote++
		done()
	}
	return nil
}

// nameOf is what a key is called in messages.
func nameOf(key string) string {
	if ref, ok := api.ParseKey(key); ok {
		return resources.Short(ref)
	}
	return key
}

// preparation is what is known while a plan is made.
type preparation struct {
	judge   datastore.Judging     // nil: the store takes any value
	here    map[string]api.Update // by key, what the store holds
	ensured map[string]bool       // keys that any write of a user's makes
}

func (p preparation) place(ctx context.Context, key string) (datastore.Place, error) {
	if p.judge == nil {
		return datastore.PlaceOwn, nil
	}
	return p.judge.PlaceOf(ctx, key)
}

// strangers names what the store holds and the entries do not: it would be in force together with them.
func (p preparation) strangers(ctx context.Context, snap datastore.Snapshot, es []Entry) (problems []string, err error) {
	meant := map[string]bool{}
	for _, e := range es {
		meant[e.Key] = true
	}
	for _, u := range snap.Sorted() {
		if meant[u.Key] || p.ensured[u.Key] || IsTransient(u.Key) {
			continue
		}
		place, err := p.place(ctx, u.Key)
		if err != nil {
			return nil, err
		}
		if place == datastore.PlaceOwn {
			problems = append(problems, nameOf(u.Key)+" is there already, and is not in the export")
		}
	}
	return problems, nil
}

// look says what becomes of an entry; an error reads after its name.
func (p preparation) look(ctx context.Context, e Entry) (Step, error) {
	place, err := p.place(ctx, e.Key)
	switch {
	case err != nil:
		return Step{}, err
	case e.Key == clusterInfo:
		return p.cluster(ctx, e)
	case place == datastore.PlaceView:
		return p.view(e), nil
	case place == datastore.PlacePart && strings.HasPrefix(e.Key, api.KeyPrefix(api.KindNode, "")):
		return p.node(ctx, e)
	case place == datastore.PlacePart:
		return p.pod(e)
	case place == datastore.PlaceNone && e.Key == api.KeyPrefix(api.KindProfile, "")+api.BuiltinProfile().Meta().Name:
		return Step{Key: e.Key, What: LeftOut}, nil
	case place == datastore.PlaceNone:
		return Step{}, homeless(e.Key)
	case p.judge != nil && e.Key == translate.KeyLabelsAreCopied:
		return Step{Key: e.Key, What: LeftOut}, nil // of controllers that copy into another datastore
	}
	kept, err := p.kept(ctx, e)
	if err != nil {
		return Step{}, err
	}
	note := ""
	if p.judge == nil {
		note = faults(e)
	}
	have, is := p.here[e.Key]
	switch diff := different(have.Value, kept.Value); {
	case !is:
		return Step{Key: e.Key, What: Created, Note: note, value: e.Value}, nil
	case diff == "":
		return Step{Key: e.Key, What: Unchanged}, nil
	case p.ensured[e.Key]:
		return Step{Key: e.Key, What: Updated, Note: note, value: e.Value}, nil
	default:
		return Step{}, fmt.Errorf("is there already, and is another: %s", diff)
	}
}

// faults is what nobody could write of a resource by hand, where a store takes any value; empty: nothing, or it is no resource. What was in force
// where the export is of must be so here, so it is written all the same.
func faults(e Entry) string {
	ref, is := api.ParseKey(e.Key)
	if !is {
		return ""
	}
	r := api.New(ref.Kind)
	err := json.Unmarshal(e.Value, r)
	if err == nil {
		err = api.Validate(r).Err()
	}
	if err == nil {
		return ""
	}
	return "is written as it is, and apply would refuse it: " + strings.Join(strings.Fields(err.Error()), " ")
}

// kept is what the store would hold of an entry.
func (p preparation) kept(ctx context.Context, e Entry) (api.Update, error) {
	kv := api.Update{Key: e.Key, Value: e.Value}
	if p.judge == nil {
		return kv, nil
	}
	kept, err := p.judge.Try(ctx, kv)
	if err != nil {
		return kv, fmt.Errorf("is refused: %w", err)
	}
	if diff := lost(e.Value, kept.Value); diff != "" {
		return kv, fmt.Errorf("would not be kept as it is: %s", diff)
	}
	return kept, nil
}

// clusterInfo is the key of who the cluster is, and whether it is locked.
var clusterInfo = api.KeyPrefix(api.KindClusterInformation, "") + resources.ClusterInfo.Name

// cluster takes over the cluster's id, and keeps the datastore locked.
func (p preparation) cluster(ctx context.Context, e Entry) (Step, error) {
	doc, err := resources.Tree(e.Value)
	if err != nil {
		return Step{}, err
	}
	doc = resources.MergePatch(doc, map[string]any{"spec": map[string]any{"datastoreReady": false}})
	e.Value = resources.InOrderOf(e.Value, doc)
	if _, err := p.kept(ctx, e); err != nil {
		return Step{}, err
	}
	return Step{Key: e.Key, What: Updated, value: e.Value}, nil
}
