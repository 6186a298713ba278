package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
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

// conflictTries is how often a change is made anew when another writer was first.
const conflictTries = 10

func applyOne(ctx context.Context, s datastore.Store, r api.Resource) (string, error) {
	key, err := api.Key(r)
	if err != nil {
		return "", err
	}
	for range conflictTries {
		var what string
		if what, err = applyOnce(ctx, s, key, r); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) {
			return what, err
		}
	}
	return "", err
}

func applyOnce(ctx context.Context, s datastore.Store, key string, r api.Resource) (string, error) {
	old, err := s.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
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
	if stored, err := api.DecodeStored(old); err == nil {
		if errs := api.ValidateUpdate(stored.Resource, r); len(errs) > 0 {
			return "", errs.Err()
		}
	}
	value, err := api.MergeRaw(old.Value, r)
	if err != nil {
		return "", err
	}
	if bytes.Equal(value, old.Value) {
		return "unchanged", nil
	}
	_, err = s.Update(ctx, api.Update{Key: key, Value: value, Revision: old.Revision})
	return "configured", err
}

func (c *command) validateCmd() *cobra.Command {
	var paths []string
	var recursive bool
	cmd := &cobra.Command{
		Use:     "validate -f FILE…",
		Short:   "Check files of resources without a datastore",
		Long:    "Check files, directories or standard input as `twill apply` would, without a\ndatastore.\n\nExit code: 0 all is valid, 1 something is not: file, resource, field and reason are printed.",
		Example: "  twill validate -f policies/ -R",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			ms, err := c.load(paths, recursive)
			if err != nil {
				return err
			}
			counts := map[string]int{}
			var files []string
			for _, m := range ms {
				if counts[m.file]++; counts[m.file] == 1 {
					files = append(files, m.file)
				}
			}
			for _, f := range files {
				fmt.Fprintf(c.stdio.Out, "%s: %d valid\n", f, counts[f])
			}
			return nil
		},
	}
	fileFlags(cmd, &paths, &recursive)
	return cmd
}

func (c *command) deleteCmd() *cobra.Command {
	var paths []string
	var recursive, ignore bool
	var namespace string
	cmd := &cobra.Command{
		Use:     "delete KIND NAME… | -f FILE…",
		Short:   "Delete resources by name or by file",
		Long:    "Delete resources by kind and name, or those that files name.\nBuilt-in tiers, and tiers that still hold policies, are not deleted.",
		Example: "  twill delete networkpolicy web -n demo\n  twill delete -f policies/ --ignore-not-found",
		RunE: func(cmd *cobra.Command, args []string) error {
			refs, err := c.refsToDelete(args, paths, recursive, namespace)
			if err != nil {
				return err
			}
			return c.conn.with(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				for _, ref := range refs {
					if err := c.deleteOne(ctx, s, ref, ignore); err != nil {
						return err
					}
				}
				return nil
			})
		},
		ValidArgsFunction: completeKinds,
	}
	fileFlags(cmd, &paths, &recursive)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the resources")
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "it is no error if a resource does not exist")
	return cmd
}

func (c *command) refsToDelete(args, paths []string, recursive bool, namespace string) ([]api.Ref, error) {
	var refs []api.Ref
	if len(paths) > 0 {
		ms, err := c.load(paths, recursive)
		if err != nil {
			return nil, err
		}
		ms = inOrder(ms)
		for i := len(ms) - 1; i >= 0; i-- {
			refs = append(refs, api.RefOf(ms[i].Resource))
		}
		return refs, nil
	}
	if len(args) < 2 {
		return nil, usage("delete: want a kind and names, or -f FILE: twill delete networkpolicy web -n demo")
	}
	kind, err := lookupKind(args[0])
	if err != nil {
		return nil, err
	}
	for _, name := range args[1:] {
		ref := api.Ref{Kind: kind.Kind, Name: name}
		if kind.Namespaced {
			ref.Namespace = namespace
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

func (c *command) deleteOne(ctx context.Context, s datastore.Store, ref api.Ref, ignore bool) error {
	if ref.Kind == api.KindTier {
		if err := checkTierEmpty(ctx, s, ref.Name); err != nil {
			return err
		}
	}
	key, err := findKey(ctx, s, ref)
	if err == nil {
		err = s.Delete(ctx, key, 0)
	}
	switch {
	case errors.Is(err, datastore.ErrNotFound) && ignore:
		return nil
	case errors.Is(err, datastore.ErrNotFound):
		return fmt.Errorf("%s does not exist", short(ref))
	case err != nil:
		return err
	}
	fmt.Fprintf(c.stdio.Out, "%s deleted\n", short(ref))
	return nil
}

// findKey is the key of a resource by the name that users know: data that
// upstream's older versions wrote has another one in the key.
func findKey(ctx context.Context, s datastore.Store, ref api.Ref) (string, error) {
	key, err := ref.Key()
	if err != nil {
		return "", err
	}
	if _, err := s.Get(ctx, key); err == nil || !errors.Is(err, datastore.ErrNotFound) {
		return key, err
	}
	snap, err := s.List(ctx, api.KeyPrefix(ref.Kind, ref.Namespace))
	if err != nil {
		return "", err
	}
	for _, u := range snap.Items {
		if st, err := api.DecodeStored(u); err == nil && st.Ref == ref {
			return u.Key, nil
		}
	}
	return "", fmt.Errorf("%s: %w", short(ref), datastore.ErrNotFound)
}

// checkTierEmpty refuses to delete a tier that is built in or holds policies.
func checkTierEmpty(ctx context.Context, s datastore.Store, name string) error {
	switch name {
	case api.TierDefault, api.TierKubeAdmin, api.TierKubeBaseline:
		return fmt.Errorf("tier/%s is built in and cannot be deleted", name)
	}
	var holds []string
	for _, k := range api.Kinds() {
		if !k.Policy {
			continue
		}
		snap, err := s.List(ctx, api.KeyPrefix(k.Kind, ""))
		if err != nil {
			return err
		}
		for _, u := range snap.Items {
			if st, err := api.DecodeStored(u); err == nil && tierName(st.Resource) == name {
				holds = append(holds, short(st.Ref))
			}
		}
	}
	if len(holds) > 0 {
		return fmt.Errorf("tier/%s holds %d policies; delete them first: %s", name, len(holds), strings.Join(holds, ", "))
	}
	return nil
}
