package resources

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// deletion are the flags of delete.
type deletion struct {
	files     manifests.Files
	namespace string
	ignore    bool
	cascade   bool // with a node, all that hangs on it
	force     bool // a node whose agent lives
	dry       dryRun
	seen      map[api.Ref]string // metadata.resourceVersion of files
}

func (c *command) deleteCmd() *cobra.Command {
	var o deletion
	cmd := &cobra.Command{
		Use:   "delete KIND NAME… | -f FILE…",
		Short: "Delete resources by name or by file",
		Long: `Delete resources by kind and name, or those that files name: what others refer
to last. Built-in tiers, and tiers that still hold policies, are not deleted.

With a node goes what is its own: blocks, addresses of tunnels, its status and
automatic host endpoints. If more hangs on it (endpoints, addresses, BGPPeers and
settings that name it) that is listed, and it is asked for; where nobody can be
asked, --cascade says yes. A node whose agent lives is not deleted: it would write
all of it anew. --cascade also deletes what others left of a node that is gone.

With a metadata.resourceVersion in a file, a resource that somebody has changed
since is not deleted, and nothing else is. If one of several does not exist or
may not go, the others are deleted nevertheless.

Exit code: 0 deleted, 1 one does not exist, has changed or may not go, 2 usage.`,
		Example: "  twill delete networkpolicy web -n demo\n  twill delete -f policies/ --skip-not-exists\n  twill delete tier security --dry-run\n  twill delete node h3 --cascade",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.dry.check("delete"); err != nil {
				return err
			}
			if err := show.CheckNamespace(cmd, args); err != nil {
				return err
			}
			o.files.ReadNamespace(cmd)
			refs, err := c.refsToDelete(args, &o)
			if o.files.Skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.deleteAll(ctx, o.dry.on(s), refs, o)
			})
		},
		ValidArgsFunction: show.Complete(&c.Conn).Resources,
	}
	o.files.AddFlags(cmd)
	o.dry.addFlag(cmd)
	c.out.As.AddFlag(cmd)
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the resources")
	cmd.Flags().BoolVarP(&o.ignore, "skip-not-exists", "s", false, "it is no error if a resource does not exist")
	cmd.Flags().BoolVar(&o.ignore, "ignore-not-found", false, "the same, as kubectl calls it")
	cmd.Flags().BoolVar(&o.cascade, "cascade", false, "with a node, delete all that hangs on it, and do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false, "delete a node though its agent lives")
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}

func (c *command) deleteAll(ctx context.Context, s datastore.Store, refs []api.Ref, o deletion) error {
	if err := checkSeen(ctx, s, refs, o.seen); err != nil {
		return err
	}
	p := c.Progress(len(refs), "deleted")
	var wrong []error
	for i, ref := range refs {
		err := c.deleteOne(ctx, s, ref, o)
		if conn.IsUnreachable(err) {
			return errors.Join(console.Few(wrong), fmt.Errorf("%w%s", err, soFar(i-len(wrong), len(refs), "deleted")))
		}
		if err != nil {
			wrong = append(wrong, err)
		}
		p.Step()
	}
	return console.Few(wrong)
}

// checkSeen refuses to delete what was changed since the file was written, before anything is deleted.
func checkSeen(ctx context.Context, s datastore.Store, refs []api.Ref, seen map[api.Ref]string) error {
	var wrong []error
	for _, ref := range refs {
		if seen[ref] == "" {
			continue
		}
		u, err := resources.FindStored(ctx, s, ref)
		if err == nil {
			err = resources.CheckRevision(ref, u, seen[ref])
		}
		if err != nil && !errors.Is(err, datastore.ErrNotFound) {
			wrong = append(wrong, err)
		}
	}
	return console.Few(wrong)
}

func (c *command) refsToDelete(args []string, o *deletion) ([]api.Ref, error) {
	var refs []api.Ref
	if len(o.files.Paths) > 0 {
		if len(args) > 0 {
			return nil, console.Usage("delete: %q and -f: give names or files, not both", args[0])
		}
		ms, err := manifests.Load(c.Stdio, o.files)
		if err != nil {
			return nil, err
		}
		ms = resources.InOrder(ms)
		o.seen = map[api.Ref]string{}
		for i := len(ms) - 1; i >= 0; i-- {
			ref := api.RefOf(ms[i].Resource)
			refs = append(refs, ref)
			o.seen[ref] = ms[i].Resource.Meta().ResourceVersion
		}
		return refs, nil
	}
	if len(args) < 2 {
		return nil, console.Usage("delete: want a kind and names, or -f FILE: twill delete networkpolicy web -n demo")
	}
	kind, err := show.LookupKind(args[0])
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
	if resources.BuiltIn(ref) {
		return fmt.Errorf("%s is built in and cannot be deleted", resources.Short(ref))
	}
	if ref.Kind == api.KindTier {
		if err := resources.CheckTierEmpty(ctx, s, ref.Name); err != nil {
			return err
		}
	}
	if ref.Kind == api.KindNode {
		return c.deleteNode(ctx, s, ref, o)
	}
	key, err := resources.FindKey(ctx, s, ref)
	if err == nil && ref.Kind == api.KindIPPool {
		err = c.retirePool(ctx, s, key, ref)
	}
	if err == nil {
		err = s.Delete(ctx, key, o.revision(ref))
	}
	if errors.Is(err, datastore.ErrConflict) { // it has changed since checkSeen, or is gone
		if stale := checkSeen(ctx, s, []api.Ref{ref}, o.seen); stale != nil {
			return stale
		}
		err = datastore.ErrNotFound
	}
	switch {
	case errors.Is(err, datastore.ErrNotFound) && o.ignore:
		return nil
	case errors.Is(err, datastore.ErrNotFound):
		return fmt.Errorf("%s does not exist; --skip-not-exists makes that no error", resources.Short(ref))
	case err != nil:
		return err
	}
	return c.say(ref, resources.Written{What: "deleted"}, o.dry)
}

// revision is the only one that a file wants deleted; zero if it does not say.
func (o deletion) revision(ref api.Ref) api.Revision {
	if ref.Kind == api.KindIPPool { // retirePool has changed it just now
		return api.Revision{}
	}
	return api.RevisionOf(o.seen[ref])
}

// retirePool gives up the blocks of a pool that is about to go.
func (c *command) retirePool(ctx context.Context, s datastore.Store, key string, ref api.Ref) error {
	inUse, err := ipam.New(s, ipam.Config{}).RetirePool(ctx, key, func(stored []byte) ([]byte, error) {
		doc, err := resources.Tree(stored)
		if err != nil {
			return nil, err
		}
		return resources.InOrderOf(stored, resources.MergePatch(doc, map[string]any{"spec": map[string]any{"disabled": true}})), nil
	})
	if inUse > 0 {
		fmt.Fprintf(c.Stdio.Err, "twill: %s: addresses of it stay in use until they are released, %d now\n", resources.Short(ref), inUse)
	}
	return err
}
