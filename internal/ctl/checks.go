package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// checkTiers refuses policies of tiers that neither exist nor come with them:
// such a policy would deny at the end of a tier nobody has ordered.
func checkTiers(ctx context.Context, s datastore.Store, ms []manifest) error {
	known := map[string]bool{"": true, api.TierDefault: true, api.TierKubeAdmin: true, api.TierKubeBaseline: true}
	for _, m := range ms {
		if m.Resource.Type().Kind == api.KindTier {
			known[m.Resource.Meta().Name] = true
		}
	}
	var wrong []error
	for _, m := range ms {
		name := tierName(m.Resource)
		if known[name] {
			continue
		}
		_, err := s.Get(ctx, api.KeyPrefix(api.KindTier, "")+name)
		switch {
		case err == nil:
			known[name] = true
		case errors.Is(err, datastore.ErrNotFound):
			wrong = append(wrong, fmt.Errorf("%s: %s: spec.tier: tier %q does not exist; create it first, or write it with this policy", m.file, short(api.RefOf(m.Resource)), name))
		default:
			return err
		}
	}
	return errors.Join(wrong...)
}

func tierName(r api.Resource) string {
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

// checkPools refuses what a pool cannot become, and pools that overlap, before anything is written.
func checkPools(ctx context.Context, s datastore.Store, ms []manifest) error {
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
		errs := api.ValidateAmong(m.Resource, others)
		if was, ok := stored[m.Resource.Meta().Name]; ok {
			errs = append(errs, api.ValidateUpdate(was, m.Resource)...)
		}
		wrong = append(wrong, inFile(m.file, errs.Err())...)
	}
	return errors.Join(wrong...)
}

// findStored is a resource by the name that users know. Old versions of
// upstream put "default." before the names of policies, and read it away.
func findStored(ctx context.Context, s datastore.Store, ref api.Ref) (api.Update, error) {
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
		return api.Update{}, fmt.Errorf("%s: %w", short(ref), datastore.ErrNotFound)
	}
	return u, err
}

// takenError is a resource whose key holds one of another name.
type takenError struct{ ref, by api.Ref }

func (e *takenError) Error() string {
	return fmt.Sprintf("an old version stored %s under this name; delete that first", short(e.by))
}
