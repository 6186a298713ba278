package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

func (c *command) applyCmd() *cobra.Command {
	var paths []string
	var recursive bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Create or change resources from files",
		Long: `Create the resources in files, directories or standard input, or change them to
be so. All files are read and checked first; if one resource is wrong, nothing
is written. A change is made on the stored document, so that fields which
another version wrote stay.`,
		Example: "  twill apply -f policies/\n  kubectl get … -o yaml | twill apply -f -",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ms, err := c.load(paths, recursive)
			if err != nil {
				return err
			}
			return c.conn.with(cmd.Context(), func(ctx context.Context, s datastore.Store) error { return c.applyAll(ctx, s, inOrder(ms)) })
		},
	}
	fileFlags(cmd, &paths, &recursive)
	return cmd
}

func (c *command) applyAll(ctx context.Context, s datastore.Store, ms []manifest) error {
	if err := checkTiers(ctx, s, ms); err != nil {
		return err
	}
	if err := checkPools(ctx, s, ms); err != nil {
		return err
	}
	for _, m := range ms {
		what, err := applyOne(ctx, s, m.Resource)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", m.file, short(api.RefOf(m.Resource)), err)
		}
		fmt.Fprintf(c.stdio.Out, "%s %s\n", short(api.RefOf(m.Resource)), what)
	}
	return nil
}

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
			wrong = append(wrong, fmt.Errorf("%s: %s: spec.tier: tier %q does not exist; create it first, or apply it with this file", m.file, short(api.RefOf(m.Resource)), name))
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
		if st, err := api.DecodeStored(u); err == nil {
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

// conflictTries is how often a change is made anew when another writer was first.
const conflictTries = 10

func applyOne(ctx context.Context, s datastore.Store, r api.Resource) (string, error) {
	var err error
	for range conflictTries {
		var what string
		if what, err = applyOnce(ctx, s, r); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) {
			return what, err
		}
	}
	return "", err
}

func applyOnce(ctx context.Context, s datastore.Store, r api.Resource) (string, error) {
	old, err := findStored(ctx, s, api.RefOf(r))
	if errors.Is(err, datastore.ErrNotFound) {
		key, err := api.Key(r)
		if err != nil {
			return "", err
		}
		api.Prepare(r, uuid.NewString(), time.Now().UTC().Format(time.RFC3339))
		value, err := api.EncodeStored(r)
		if err != nil {
			return "", err
		}
		_, err = s.Create(ctx, api.Update{Key: key, Value: value})
		return "created", err
	}
	if err != nil {
		return "", err
	}
	value, err := api.MergeRaw(old.Value, r)
	if err != nil {
		return "", err
	}
	if bytes.Equal(value, old.Value) {
		return "unchanged", nil
	}
	_, err = s.Update(ctx, api.Update{Key: old.Key, Value: value, Revision: old.Revision})
	return "configured", err
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
