package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/autohep"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// deletion are the flags of delete.
type deletion struct {
	files     fileOptions
	namespace string
	ignore    bool
	dry       dryRun
}

func (c *command) deleteCmd() *cobra.Command {
	var o deletion
	cmd := &cobra.Command{
		Use:   "delete KIND NAME… | -f FILE…",
		Short: "Delete resources by name or by file",
		Long: `Delete resources by kind and name, or those that files name: what others refer
to last. Built-in tiers, and tiers that still hold policies, are not deleted.
With a node go the host endpoints that were made for it automatically.

Exit code: 0 deleted, 1 one does not exist or may not go, 2 usage.`,
		Example: "  twill delete networkpolicy web -n demo\n  twill delete -f policies/ --skip-not-exists\n  twill delete tier security --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.dry.check("delete"); err != nil {
				return err
			}
			refs, err := c.refsToDelete(args, o)
			if o.files.skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return c.conn.long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.deleteAll(ctx, o.dry.on(s), refs, o)
			})
		},
		ValidArgsFunction: c.completeResources,
	}
	o.files.addFlags(cmd)
	o.dry.addFlag(cmd)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the resources")
	cmd.Flags().BoolVarP(&o.ignore, "skip-not-exists", "s", false, "it is no error if a resource does not exist")
	cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "the same, as kubectl calls it")
	c.completeFlags(cmd)
	return cmd
}

func (c *command) deleteAll(ctx context.Context, s datastore.Store, refs []api.Ref, o deletion) error {
	p := c.progress(len(refs), "deleted")
	for i, ref := range refs {
		if err := c.deleteOne(ctx, s, ref, o); err != nil {
			return fmt.Errorf("%w%s", err, soFar(i, len(refs), "deleted"))
		}
		p.step()
	}
	return nil
}

func (c *command) refsToDelete(args []string, o deletion) ([]api.Ref, error) {
	var refs []api.Ref
	if len(o.files.paths) > 0 {
		if len(args) > 0 {
			return nil, usage("delete: %q and -f: give names or files, not both", args[0])
		}
		ms, err := c.load(o.files.paths, o.files.recursive)
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
			ref.Namespace = o.namespace
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

func (c *command) deleteOne(ctx context.Context, s datastore.Store, ref api.Ref, o deletion) error {
	if ref.Kind == api.KindProfile && ref.Name == api.ProfileDefaultAllow {
		return fmt.Errorf("%s is built in and cannot be deleted", short(ref))
	}
	if ref.Kind == api.KindTier {
		if err := checkTierEmpty(ctx, s, ref.Name); err != nil {
			return err
		}
	}
	key, err := findKey(ctx, s, ref)
	if err == nil && ref.Kind == api.KindIPPool {
		err = c.retirePool(ctx, s, key, ref)
	}
	if err == nil {
		err = s.Delete(ctx, key, 0)
	}
	switch {
	case errors.Is(err, datastore.ErrNotFound) && o.ignore:
		return nil
	case errors.Is(err, datastore.ErrNotFound):
		return fmt.Errorf("%s does not exist; --skip-not-exists makes that no error", short(ref))
	case err != nil:
		return err
	}
	c.say(ref, written{what: "deleted"}, o.dry)
	if ref.Kind == api.KindNode {
		return c.deleteMadeFor(ctx, s, ref.Name, o)
	}
	return nil
}

// deleteMadeFor deletes the automatic host endpoints of a node that is gone. Its own agent does so, too, if it lives; no other
// one does.
func (c *command) deleteMadeFor(ctx context.Context, s datastore.Store, node string, o deletion) error {
	snap, err := s.List(ctx, api.KeyPrefix(api.KindHostEndpoint, ""))
	if err != nil {
		return err
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		h, ok := st.Resource.(*api.HostEndpoint)
		if err != nil || !ok || h.Spec.Node != node || !autohep.Made(h) {
			continue
		}
		switch err := s.Delete(ctx, u.Key, 0); {
		case errors.Is(err, datastore.ErrNotFound):
		case err != nil:
			return err
		default:
			c.say(st.Ref, written{what: "deleted"}, o.dry)
		}
	}
	return nil
}

// retirePool gives up the blocks of a pool that is about to go.
func (c *command) retirePool(ctx context.Context, s datastore.Store, key string, ref api.Ref) error {
	inUse, err := ipam.New(s, ipam.Config{}).RetirePool(ctx, key, func(stored []byte) ([]byte, error) {
		doc, err := tree(stored)
		if err != nil {
			return nil, err
		}
		return inOrderOf(stored, mergePatch(doc, map[string]any{"spec": map[string]any{"disabled": true}})), nil
	})
	if inUse > 0 {
		fmt.Fprintf(c.stdio.Err, "twill: %s: addresses of it stay in use until they are released, %d now\n", short(ref), inUse)
	}
	return err
}

// findKey is the key of a resource by the name that users know, whatever the
// key says.
func findKey(ctx context.Context, s datastore.Store, ref api.Ref) (string, error) {
	u, err := findStored(ctx, s, ref)
	var taken *takenError
	if err == nil || !errors.Is(err, datastore.ErrNotFound) && !errors.As(err, &taken) {
		return u.Key, err
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
		return fmt.Errorf("tier/%s holds %s; delete first: %s", name, policies(len(holds)), strings.Join(holds, ", "))
	}
	return nil
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}
