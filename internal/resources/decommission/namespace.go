package decommission

import (
	"context"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// Namespace is what hangs on a namespace, which is no resource of its own: it exists as long as something is in it.
type Namespace struct {
	Name string

	endpoints   []held
	others      []held // of every other kind that has namespaces
	profiles    []held // that stand for the namespace and its accounts
	allocations []ipam.Allocation
}

// LookNamespace reads what hangs on a namespace: resources that are in it, the profiles kns.NAME and ksa.NAME.ACCOUNT, and addresses
// that were assigned for it or that its endpoints alone have.
func LookNamespace(ctx context.Context, s datastore.Store, name string) (*Namespace, error) {
	n := &Namespace{Name: name}
	for _, k := range slices.Backward(api.Kinds()) { // policies come before the sets that they name
		if !k.Namespaced {
			continue
		}
		found, err := below(ctx, s, api.KeyPrefix(k.Kind, name))
		if err != nil {
			return nil, err
		}
		if k.Kind == api.KindWorkloadEndpoint {
			n.endpoints = found
		} else {
			n.others = append(n.others, found...)
		}
	}
	profiles, err := below(ctx, s, api.KeyPrefix(api.KindProfile, ""))
	if err != nil {
		return nil, err
	}
	n.profiles = slices.DeleteFunc(profiles, func(h held) bool {
		return h.ref.Name != "kns."+name && !strings.HasPrefix(h.ref.Name, "ksa."+name+".")
	})
	v, err := ipam.New(s, ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return nil, err
	}
	n.allocations = v.OfNamespace(name)
	return n, nil
}

// below are the resources under a prefix, by what their keys say: that a value cannot be read does not keep it.
func below(ctx context.Context, s datastore.Store, prefix string) (out []held, err error) {
	snap, err := s.List(ctx, prefix)
	for _, u := range snap.Sorted() {
		ref, ok := api.ParseKey(u.Key)
		if st, err := api.DecodeStored(u); err == nil {
			ref = st.Ref // the name that users know
		}
		if ok {
			out = append(out, held{ref: ref, at: u})
		}
	}
	return out, err
}

// Empty reports whether there is nothing to delete at all.
func (n *Namespace) Empty() bool {
	return len(n.endpoints)+len(n.others)+len(n.profiles)+len(n.allocations) == 0
}

// Loss is what would be lost: all of it.
func (n *Namespace) Loss() (what []string, refs []api.Ref) {
	for _, r := range slices.Concat(n.endpoints, n.others, n.profiles) {
		refs = append(refs, r.ref)
	}
	for _, l := range n.allocations {
		what = append(what, "address "+l.Addr.String())
	}
	return what, refs
}

// Delete deletes all of it: endpoints, then their addresses, so that none is given out that an endpoint still has; then policies and
// what they name, and the profiles last. A resource that was changed since it was looked at is an error. Whatever it dies between, the
// same call deletes what is left.
func (n *Namespace) Delete(ctx context.Context, s datastore.Store, done Done) error {
	if err := remove(ctx, s, n.endpoints, done); err != nil {
		return err
	}
	if err := release(ctx, ipam.New(s, ipam.Config{}), n.allocations, done); err != nil {
		return err
	}
	if err := remove(ctx, s, n.others, done); err != nil {
		return err
	}
	return remove(ctx, s, n.profiles, done)
}
