package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// deletion are the flags of delete.
type deletion struct {
	files     manifests.Files
	namespace string
	ignore    bool
	cascade   bool // with a node or a namespace, all that hangs on it
	force     bool // a node whose agent lives
	dry       dryRun
	seen      map[api.Ref]string // metadata.resourceVersion of files
}

func (c *command) deleteCmd() *cobra.Command {
	var o deletion
	cmd := &cobra.Command{
		Use:   "delete KIND NAME… | KIND/NAME… | -f FILE…",
		Short: "Delete resources by name or by file",
		Long: `Delete resources by kind and name, or those that files name: what others refer
to last. Built-in tiers, and tiers that still hold policies, are not deleted.

Deleting a node also deletes its blocks, addresses of tunnels, status and automatic
host endpoints. If more depends on it (endpoints, addresses, BGPPeers and settings
that name it), that is listed, and you are asked to confirm; without a terminal,
--cascade confirms. A node whose agent is alive is not deleted, since the agent
would write it again. --cascade also deletes what is left of a node that is gone.

A namespace is no resource here: deleting one deletes all resources in it, that is
its endpoints with their addresses, policies, network sets and endpoint slices,
and the profiles kns.NAME and ksa.NAME.ACCOUNT. These are listed and confirmed, too.

With a metadata.resourceVersion in a file, a resource that somebody has changed
since is not deleted, and nothing else is. If one of several does not exist or
may not go, the others are deleted nevertheless.

Exit code: 0 deleted, 1 one does not exist, has changed or may not go, 2 usage.`,
		Example: "  twill delete networkpolicy web -n demo\n  twill delete -f policies/ --skip-not-exists\n  twill delete tier security --dry-run\n  twill delete node h3 --cascade\n  twill delete namespace demo",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.dry.check("delete"); err != nil {
				return err
			}
			if err := checkNamespace(cmd, args); err != nil {
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
	cmd.Flags().BoolVar(&o.cascade, "cascade", false, "with a node or a namespace, delete all that hangs on it, and do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false, "delete a node though its agent lives")
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, true)
}

func (c *command) deleteAll(ctx context.Context, s datastore.Store, refs []api.Ref, o deletion) error {
	var wrong []error
	for _, ref := range refs { // before anything is deleted
		if err := resources.CheckSeen(ctx, s, ref, o.seen[ref]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return console.Few(wrong)
	}
	p, end := c.Working("deleted", len(refs))
	defer end()
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
	if isNamespace(args) {
		for _, name := range args[1:] {
			refs = append(refs, api.Ref{Kind: resources.KindNamespace, Name: name})
		}
		return refs, nil
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
	err := resources.Delete(ctx, s, ref, resources.Deletion{
		Revision: o.seen[ref], Cascade: o.cascade, Force: o.force, Agree: c.agreed,
		Done: func(what api.Ref, words string) { c.gone(what, words, o.dry) },
		InUse: func(ref api.Ref, n int) {
			fmt.Fprintf(c.Err, "twill: %s: addresses of it stay in use until they are released, %d now\n", resources.Short(ref), n)
		},
		Terminating: func(ref api.Ref, finalizers []string) {
			_ = c.say(ref, resources.Written{What: "terminating"}, o.dry)
			fmt.Fprintf(c.Err, "twill: %s stays until its finalizers are removed: %s; twill get %s %s -o yaml says in status.conditions what they wait for, and the controllers (twill kube-controllers) remove Calico's\n",
				resources.Short(ref), strings.Join(finalizers, ", "), strings.ToLower(ref.Kind), ref.Name)
		},
	})
	var held *resources.HeldError
	var alive *resources.AliveError
	switch {
	case errors.As(err, &held) && !held.Exists && o.ignore:
		return nil
	case errors.As(err, &held) && !held.Exists:
		return fmt.Errorf("%s does not exist, and something is left of it, which --cascade deletes:%s", resources.Short(ref), listed(held.Lost))
	case errors.As(err, &held):
		return fmt.Errorf("%s is not deleted, since this hangs on it; --cascade deletes it, too:%s", resources.Short(ref), listed(held.Lost))
	case errors.As(err, &alive):
		return fmt.Errorf("%w, and would write again what is deleted: stop it there (twill node uninstall) and wait until its last report expires, within two minutes, or pass --force", err)
	case errors.Is(err, datastore.ErrNotFound) && o.ignore:
		return nil
	case errors.Is(err, datastore.ErrNotFound):
		return show.Elsewhere(ctx, s, ref, fmt.Errorf("%s does not exist; --skip-not-exists makes that no error", resources.Short(ref)))
	}
	return err
}

func checkNamespace(cmd *cobra.Command, args []string) error {
	switch {
	case !isNamespace(args):
		return show.CheckNamespace(cmd, args)
	case cmd.Flags().Changed("namespace"):
		return console.Usage("delete: namespaces have no namespace; leave -n out")
	}
	return nil
}

// isNamespace reports whether what is to be deleted are namespaces.
func isNamespace(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"namespace", "namespaces", "ns"}, strings.ToLower(args[0]))
}
