package resources

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// patching are the flags of patch.
type patching struct {
	namespace, patch, file, form string
	dry                          dryRun
}

func (c *command) patchCmd() *cobra.Command {
	var o patching
	cmd := &cobra.Command{
		Use:   "patch KIND NAME | KIND/NAME -p PATCH",
		Short: "Change fields of a resource",
		Long: `Change fields of a stored resource. Everything else of it stays, also fields
that this version does not know. The result is checked as in apply; what was
wrong before and is not touched does not stand in the way.

--type
  strategic          an object with the fields to change; null removes one. Lists
                     are replaced whole, but for finalizers and owner references,
                     which are merged; $patch, $retainKeys, $setElementOrder and
                     $deleteFromPrimitiveList are as with kubectl
  merge              the same without both (JSON merge patch, RFC 7386)
  json               a list of operations (JSON patch, RFC 6902):
                     add, remove, replace, move, copy, test

A metadata.resourceVersion in a patch that is an object, or a test of it in a json patch,
makes the change only if nobody has changed the resource since.

Exit code: 0 it is so, 1 it does not exist, was changed or would be wrong,
2 usage.`,
		Example: `  twill patch node h1 -p '{"spec":{"bgp":{"routeReflectorClusterID":"244.0.0.1"}}}'
  twill patch np web -n prod -p 'spec: {order: 50}' --dry-run
  twill patch ippool p1 --type json -p '[{"op":"replace","path":"/spec/disabled","value":true}]'`,
		Args: oneResource("patch"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := namedRef(cmd, args, o.namespace)
			if err != nil {
				return err
			}
			edit, err := o.edit()
			if err != nil {
				return err
			}
			return c.rewriteOne(cmd, resources.Rewrite{Ref: ref, What: "patched", Edit: edit}, o.dry)
		},
		ValidArgsFunction: show.Complete(&c.Conn).One,
	}
	f := cmd.Flags()
	f.StringVarP(&o.patch, "patch", "p", "", "the patch, as JSON or YAML")
	f.StringVar(&o.file, "patch-file", "", "file with the patch")
	f.StringVarP(&o.form, "type", "t", "strategic", "merge, json or strategic")
	f.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the resource")
	o.dry.addFlag(cmd)
	c.out.As.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, false)
}

// rewriteOne makes one change and says what became of it.
func (c *command) rewriteOne(cmd *cobra.Command, r resources.Rewrite, dry dryRun) error {
	if err := dry.check(cmd.Name()); err != nil {
		return err
	}
	return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
		done, err := resources.Rewriting(ctx, dry.on(s), r)
		if missing := (*resources.MissingError)(nil); errors.As(err, &missing) {
			return show.Elsewhere(ctx, s, r.Ref, err)
		}
		if err != nil {
			return err
		}
		c.warnNew(r.Ref, done)
		return c.say(r.Ref, done, dry)
	})
}

// oneResource wants KIND NAME.
func oneResource(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return console.Usage("%s: want a kind and a name: twill %s networkpolicy web -n prod", verb, verb)
		}
		return nil
	}
}

// namedRef names the resource that KIND NAME and -n mean.
func namedRef(cmd *cobra.Command, args []string, namespace string) (api.Ref, error) {
	kind, err := show.LookupKind(args[0])
	if err == nil {
		err = show.CheckNamespace(cmd, args)
	}
	if err != nil {
		return api.Ref{}, err
	}
	ref := api.Ref{Kind: kind.Kind, Name: args[1]}
	if kind.Namespaced {
		ref.Namespace = namespace
	}
	return ref, nil
}

// edit reads the patch.
func (o patching) edit() (func(any) (any, error), error) {
	if (o.patch == "") == (o.file == "") {
		return nil, console.Usage("patch: want one of -p PATCH and --patch-file FILE")
	}
	if !slices.Contains(manifests.PatchForms, o.form) {
		return nil, console.Usage("patch: --type %q: want merge, json or strategic", o.form)
	}
	text := []byte(o.patch)
	if o.file != "" {
		var err error
		if text, err = console.ReadFile(o.file); err != nil {
			return nil, err
		}
	}
	return manifests.ParsePatch(o.form, text)
}
