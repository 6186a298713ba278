package resources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// CheckTiers refuses policies of tiers that neither exist nor come with them:
// such a policy would deny at the end of a tier nobody has ordered.
func CheckTiers(ctx context.Context, s datastore.Store, ms []Manifest) error {
	known := map[string]bool{"": true, api.TierDefault: true, api.TierKubeAdmin: true, api.TierKubeBaseline: true}
	for _, m := range ms {
		if m.Resource.Type().Kind == api.KindTier {
			known[m.Resource.Meta().Name] = true
		}
	}
	var wrong []error
	for _, m := range ms {
		name := TierName(m.Resource)
		if known[name] {
			continue
		}
		_, err := s.Get(ctx, api.KeyPrefix(api.KindTier, "")+name)
		switch {
		case err == nil:
			known[name] = true
		case errors.Is(err, datastore.ErrNotFound):
			wrong = append(wrong, fmt.Errorf("%s: %s: spec.tier: tier %q does not exist; create it first, or write it with this policy", m.File, Short(api.RefOf(m.Resource)), name))
		default:
			return err
		}
	}
	return errors.Join(wrong...)
}

func TierName(r api.Resource) string {
	switch p := r.(type) {
	case *api.NetworkPolicy:
		return p.Spec.Tier
	case *api.GlobalNetworkPolicy:
		return p.Spec.Tier
	case *api.StagedNetworkPolicy:
		return p.Spec.Tier
	case *api.StagedGlobalNetworkPolicy:
		return p.Spec.Tier
	}
	return ""
}

// CheckPools refuses what a pool cannot become, and new pools that overlap others, before anything is written.
func CheckPools(ctx context.Context, s datastore.Store, ms []Manifest) error {
	pools := map[string]api.Resource{}
	for _, m := range ms {
		if m.Resource.Type().Kind == api.KindIPPool {
			pools[m.Resource.Meta().Name] = m.Resource
		}
	}
	if len(pools) == 0 {
		return nil
	}
	snap, err := s.List(ctx, api.KeyPrefix(api.KindIPPool, ""))
	if err != nil {
		return err
	}
	stored := map[string]api.Resource{}
	for _, u := range snap.Items {
		if st, err := api.Admit(u); err == nil { // what means nothing may become anything: that is how it is put right
			stored[st.Ref.Name] = st.Resource
			if _, changes := pools[st.Ref.Name]; !changes {
				pools[st.Ref.Name] = st.Resource
			}
		}
	}
	others := slices.Collect(maps.Values(pools))
	var wrong []error
	for _, m := range ms {
		was, ok := stored[m.Resource.Meta().Name]
		errs := api.ValidateAmong(m.Resource, rivals(was, m.Resource, others))
		if ok {
			errs = append(errs, api.ValidateUpdate(was, m.Resource)...)
		} else if p, ok := m.Resource.(*api.IPPool); ok {
			odd, err := formerBlocks(ctx, s, p)
			if err != nil {
				return err
			}
			errs = append(errs, odd...)
		}
		wrong = append(wrong, InFile(m.File, errs.Err())...)
	}
	return errors.Join(wrong...)
}

// rivals are those of other pools that one must not overlap: all, if it is new or has another range; those that are not disabled, if it no longer is; and
// none else, or a pool that overlaps another could not even be disabled.
func rivals(was, is api.Resource, others []api.Resource) []api.Resource {
	p, ok := was.(*api.IPPool)
	q, ok1 := is.(*api.IPPool)
	switch {
	case !ok || !ok1 || !api.SameRange(p.Spec.CIDR, q.Spec.CIDR):
		return others
	case !p.Spec.Disabled || q.Spec.Disabled:
		return nil
	}
	return slices.DeleteFunc(slices.Clone(others), func(r api.Resource) bool {
		o, ok := r.(*api.IPPool)
		return !ok || o.Spec.Disabled
	})
}

// formerBlocks refuses a new pool in the range of which a former pool left blocks of another size: assignments go around them, so that what is free
// in them is out of reach until the last address of each is released. Who may not read blocks is not refused.
func formerBlocks(ctx context.Context, s datastore.Store, p *api.IPPool) (api.FieldErrors, error) {
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	if err != nil || p.Spec.BlockSize == 0 {
		return nil, nil // it is not what a user writes
	}
	snap, err := s.List(ctx, api.BlocksPrefix(cidr.Addr()))
	if errors.Is(err, datastore.ErrUnauthorized) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, u := range snap.Sorted() {
		if b, ok := api.ParseBlockKey(u.Key); ok && b.Overlaps(cidr) && b.Bits() != p.Spec.BlockSize {
			reason := fmt.Sprintf("is %d, and a former pool left block %s: make it %d, or release what such blocks have; `twill ipam check --fix` deletes empty ones", p.Spec.BlockSize, b, b.Bits())
			return api.FieldErrors{{Kind: api.KindIPPool, Name: p.Metadata.Name, Path: "spec.blockSize", Reason: reason}}, nil
		}
	}
	return nil, nil
}

// FindStored is a resource by the name that users know. Old versions of
// upstream put "default." before the names of policies, and read it away.
func FindStored(ctx context.Context, s datastore.Store, ref api.Ref) (api.Update, error) {
	key, err := ref.Key()
	if err != nil {
		return api.Update{}, err
	}
	u, err := s.Get(ctx, key)
	if !errors.Is(err, datastore.ErrNotFound) {
		if st, bad := api.DecodeStored(u); err == nil && bad == nil && st.Ref != ref {
			err = &takenError{ref: ref, by: st.Ref}
		}
		return u, err
	}
	if k, _ := api.LookupKind(ref.Kind); !k.Policy {
		return u, err
	}
	old := ref
	old.Name = api.TierDefault + "." + ref.Name
	if key, err = old.Key(); err != nil {
		return api.Update{}, err
	}
	u, err = s.Get(ctx, key)
	if st, bad := api.DecodeStored(u); err == nil && (bad != nil || st.Ref != ref) {
		return api.Update{}, fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
	}
	return u, err
}

// takenError is a resource whose key holds one of another name.
type takenError struct{ ref, by api.Ref }

func (e *takenError) Error() string {
	return fmt.Sprintf("an old version stored %s under this name; delete that first", Short(e.by))
}

// Manifest is one resource of a user's file, defaulted and valid.
type Manifest struct {
	File string
	api.Document
}

func InFile(name string, err error) []error {
	var fields api.FieldErrors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fields):
		var out []error
		for _, e := range fields {
			out = append(out, fmt.Errorf("%s: %w", name, e))
		}
		return out
	}
	return []error{fmt.Errorf("%s: %w", name, err)}
}

// InOrder sorts so that what others refer to comes first.
func InOrder(ms []Manifest) []Manifest {
	rank := map[string]int{}
	for i, k := range api.Kinds() {
		rank[k.Kind] = i
	}
	out := slices.Clone(ms)
	slices.SortStableFunc(out, func(a, b Manifest) int {
		return cmp.Compare(rank[a.Resource.Type().Kind], rank[b.Resource.Type().Kind])
	})
	return out
}
