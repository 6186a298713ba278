package resources

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources/decommission"
)

// Deletion says how a resource goes.
type Deletion struct {
	// Revision is the only metadata.resourceVersion that may go; empty: any. It is asked for by the first write: of what has another nothing goes that
	// hangs on it, either.
	Revision string
	// Cascade deletes with a node all that hangs on it, and what others left of a node that is gone; and all that is in a namespace.
	Cascade bool
	// Force deletes a node although its agent is alive, and would write again what is deleted.
	Force bool
	// Agree is called, without Cascade, before objects that users made, or that are in use, are lost; nil: refused.
	Agree func(ref api.Ref, lost []string) bool
	// Done is called for each deleted object: a resource, or a description of an address or a block; may be nil.
	Done func(ref api.Ref, words string)
	// InUse is called with the number of addresses of a deleted pool that stay in use until they are released; may be nil.
	InUse func(ref api.Ref, addresses int)
	// Terminating is called in the place of Done for a resource that stays until its finalizers are removed; may be nil.
	Terminating func(ref api.Ref, finalizers []string)
}

// HeldError is a node or a namespace that is not deleted since something hangs on it that would be lost, or that is gone and left something.
type HeldError struct {
	Ref    api.Ref
	Exists bool
	Lost   []string // resources as kind/namespace/name, addresses in words
}

func (e *HeldError) Error() string {
	if !e.Exists {
		return fmt.Sprintf("%s does not exist, and something is left of it: %s", Short(e.Ref), strings.Join(e.Lost, ", "))
	}
	return fmt.Sprintf("%s is not deleted, since this hangs on it: %s", Short(e.Ref), strings.Join(e.Lost, ", "))
}

// AliveError is the error for a node that is not deleted since its agent is alive.
type AliveError struct{ Ref api.Ref }

func (e *AliveError) Error() string { return Short(e.Ref) + ": its agent lives" }

// Delete deletes a resource with all that hangs on it: of a node its endpoints, addresses, blocks, peers and status, of a pool its
// blocks, of a namespace ([KindNamespace]) its endpoints with their addresses, its policies, network sets and endpoint slices, and the profiles
// that stand for it and its accounts. What is built in, and a tier that holds policies, stays. An error that is [datastore.ErrNotFound] means that there is
// nothing; others are *[StaleError], *[HeldError], *[AliveError] and those of the store.
func Delete(ctx context.Context, s datastore.Store, ref api.Ref, d Deletion) error {
	if BuiltIn(ref) {
		return fmt.Errorf("%s is built in and cannot be deleted", Short(ref))
	}
	switch ref.Kind {
	case api.KindTier:
		if err := checkTierEmpty(ctx, s, ref.Name); err != nil {
			return err
		}
	case api.KindNode:
		return d.node(ctx, s, ref)
	case KindNamespace:
		return d.namespace(ctx, s, ref)
	}
	at, err := find(ctx, s, ref)
	key := at.Key
	revision := api.RevisionOf(d.Revision)
	if err == nil && ref.Kind == api.KindIPPool {
		revision, err = d.retire(ctx, s, key, ref)
	}
	if err == nil {
		err = s.Delete(ctx, key, revision)
	}
	if err == nil {
		d.deleted(ctx, s, ref, at)
	}
	return d.overtaken(ctx, s, ref, err)
}

// overtaken says of a conflict what it is: the resource has changed since the caller looked, or is gone.
func (d Deletion) overtaken(ctx context.Context, s datastore.Store, ref api.Ref, err error) error {
	if !errors.Is(err, datastore.ErrConflict) {
		return err
	}
	if d.Revision == "" {
		return fmt.Errorf("%s changed while it was about to be deleted; try again: %w", Short(ref), err)
	}
	if stale := CheckSeen(ctx, s, ref, d.Revision); stale != nil {
		return stale
	}
	return fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
}

// deleted notes that a resource was deleted, or that Kubernetes keeps it for as long as it has finalizers.
func (d Deletion) deleted(ctx context.Context, s datastore.Store, ref api.Ref, was api.Update) {
	if len(finalizersOf(was)) > 0 {
		now, err := s.Get(ctx, was.Key)
		st, _ := api.DecodeStored(now) // what cannot be read has none
		if err == nil && st.Resource != nil && st.Resource.Meta().DeletionTimestamp != "" {
			if d.Terminating != nil {
				d.Terminating(ref, finalizersOf(now))
			}
			return
		}
	}
	d.done(ref, "")
}

// finalizersOf are those of a stored resource.
func finalizersOf(u api.Update) []string {
	st, _ := api.DecodeStored(u) // what cannot be read has none
	if st.Resource == nil {
		return nil
	}
	return st.Resource.Meta().Finalizers
}

func (d Deletion) done(ref api.Ref, words string) {
	if d.Done != nil {
		d.Done(ref, words)
	}
}

// CheckSeen refuses a resource that has changed since it was seen. A deleted one has not changed.
func CheckSeen(ctx context.Context, s datastore.Store, ref api.Ref, seen string) error {
	if seen == "" {
		return nil
	}
	u, err := FindStored(ctx, s, ref)
	if err == nil {
		err = CheckRevision(ref, u, seen)
	}
	if errors.Is(err, datastore.ErrNotFound) {
		return nil
	}
	return err
}

// node deletes a node with what hangs on it.
func (d Deletion) node(ctx context.Context, s datastore.Store, ref api.Ref) error {
	h, err := decommission.Look(ctx, s, ref.Name)
	if err != nil {
		return err
	}
	if h.Exists {
		if err := refused(ctx, s, ref); err != nil {
			return err
		}
	}
	lost := names(h.Loss())
	switch {
	case !h.Exists && h.Empty():
		return fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
	case !h.Exists && !d.Cascade:
		return &HeldError{Ref: ref, Lost: lost}
	case h.Alive && !d.Force:
		return &AliveError{ref}
	case len(lost) > 0 && !d.Cascade && (d.Agree == nil || !d.Agree(ref, lost)):
		return &HeldError{Ref: ref, Exists: true, Lost: lost}
	}
	if h.Exists && d.Revision != "" {
		if err := h.Claim(ctx, s, api.RevisionOf(d.Revision)); err != nil {
			return d.overtaken(ctx, s, ref, err)
		}
	}
	return h.Delete(ctx, s, d.done)
}

// refused is why a store does not delete a resource that is a part of an object of others, as a Node is with Kubernetes; nil: it is not.
func refused(ctx context.Context, s datastore.Store, ref api.Ref) error {
	j, judges := s.(datastore.Judging)
	if !judges {
		return nil
	}
	key := api.KeyPrefix(ref.Kind, ref.Namespace) + ref.Name
	if place, err := j.PlaceOf(ctx, key); err != nil || place != datastore.PlacePart {
		return err
	}
	return s.Delete(ctx, key, api.Revision{}) // which says what to do instead
}

// namespace deletes what is in a namespace.
func (d Deletion) namespace(ctx context.Context, s datastore.Store, ref api.Ref) error {
	n, err := decommission.LookNamespace(ctx, s, ref.Name)
	if err != nil {
		return err
	}
	lost := names(n.Loss())
	switch {
	case n.Empty():
		return fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
	case !d.Cascade && (d.Agree == nil || !d.Agree(ref, lost)):
		return &HeldError{Ref: ref, Exists: true, Lost: lost}
	}
	return n.Delete(ctx, s, d.done)
}

// names are those of resources, and after them what has none.
func names(what []string, refs []api.Ref) (out []string) {
	for _, ref := range refs {
		out = append(out, Short(ref))
	}
	return append(out, what...)
}

// retire gives up the blocks of a pool that is about to go, and returns the revision at which it may go: any, once it is disabled.
func (d Deletion) retire(ctx context.Context, s datastore.Store, key string, ref api.Ref) (api.Revision, error) {
	revision := api.RevisionOf(d.Revision)
	inUse, err := ipam.New(s, ipam.Config{}).RetirePool(ctx, key, revision, func(stored []byte) ([]byte, error) {
		revision = api.Revision{}
		doc, err := Tree(stored)
		if err != nil {
			return nil, err
		}
		return InOrderOf(stored, MergePatch(doc, map[string]any{"spec": map[string]any{"disabled": true}})), nil
	})
	if inUse > 0 && d.InUse != nil {
		d.InUse(ref, inUse)
	}
	return revision, err
}

// find finds a resource by the name that users know, whatever the key says.
func find(ctx context.Context, s datastore.Store, ref api.Ref) (api.Update, error) {
	u, err := FindStored(ctx, s, ref)
	var taken *takenError
	if err == nil || !errors.Is(err, datastore.ErrNotFound) && !errors.As(err, &taken) {
		return u, err
	}
	snap, err := s.List(ctx, api.KeyPrefix(ref.Kind, ref.Namespace))
	if err != nil {
		return api.Update{}, err
	}
	for _, u := range snap.Items {
		if st, err := api.DecodeStored(u); err == nil && st.Ref == ref {
			return u, nil
		}
	}
	return api.Update{}, fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
}

// checkTierEmpty refuses to delete a tier that is built in or holds policies.
func checkTierEmpty(ctx context.Context, s datastore.Store, name string) error {
	switch name {
	case api.TierDefault, api.TierKubeAdmin, api.TierKubeBaseline:
		return fmt.Errorf("tier/%s is built in and cannot be deleted", name)
	}
	holds, err := PoliciesOf(ctx, s, name)
	if err == nil && len(holds) > 0 {
		err = fmt.Errorf("tier/%s holds %s; delete first: %s", name, policies(len(holds)), strings.Join(holds, ", "))
	}
	return err
}

// PoliciesOf are the policies that a tier holds, as kind/namespace/name.
func PoliciesOf(ctx context.Context, s datastore.Store, tier string) (out []string, err error) {
	for _, k := range api.Kinds() {
		if !k.Policy {
			continue
		}
		snap, err := s.List(ctx, api.KeyPrefix(k.Kind, ""))
		if err != nil {
			return nil, err
		}
		for _, u := range snap.Sorted() {
			if st, err := api.DecodeStored(u); err == nil && TierName(st.Resource) == tier {
				out = append(out, Short(st.Ref))
			}
		}
	}
	return out, nil
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}
