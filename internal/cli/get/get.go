package get

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
)

const getLong = `Show resources as a table, or as YAML or JSON that can be applied again. Kinds
may be given as upstream's tools take them: networkpolicies, networkpolicy, np,
networkpolicies.projectcalico.org; "all" is every kind. With -f, show those that
files name, as the datastore has them. Built-in tiers and the built-in profile
are shown though nothing stores them.

As YAML or JSON one resource that was asked for by name is a document, all of a
kind are a list of that kind (NetworkPolicyList) with the revision that it is as
of, and anything else is a sequence of documents: calicoctl writes and reads the
same. Templates and paths see several resources as .items.

If one of several that were asked for by name does not exist, the others are
shown. Exit code: 0 shown, 1 one does not exist or could not be read, 2 usage.

-o FORMAT
  table, wide               AGE is since it was made; wide has labels, what is wrong,
                            and of policies on how many nodes they are in force as they
                            are now (REALISED, as the nodes' agents say), and the packets
                            that their rules decided about on this host
  yaml, json, name          documents, or kind/name
  custom-columns=NAME:.path,NAME:.path
                            a table of your own; a path is .spec.nets[0],
                            .spec.ingress[*].action, .metadata.labels.a\.b
  custom-columns-file=FILE  the same from a file: a line of titles, one of paths
  jsonpath={.path}          text with paths, as kubectl has it: {.items[*].metadata.name}{"\n"},
                            {range .items[*]}…{end}, {.items[?(@.spec.node=="h1")]…}
  go-template=…, go-template-file=FILE
                            Go's template language, given the document that
                            -o json shows

-l looks at the labels that the resource itself has, in kubectl's language
(a=b,c!=d,e in (x,y),!f) or in that of Calico's selectors.

With -w the command stays, and prints a row for each change: added, changed,
deleted. As json each change is one line, {"type":"ADDED","object":{…}}. An
outage of the datastore is reported on standard error; what changed in it is
printed when it is back.`

func (c *command) getCmd() *cobra.Command {
	var o show.Options
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND…] [NAME…] | KIND/NAME… | -f FILE…",
		Short: "Show resources",
		Long:  getLong,
		Example: `  twill get networkpolicies -A
  twill get networkpolicy web -n demo -o yaml
  twill get networkpolicy/web -n demo
  twill get np,gnp,tiers -A -o wide
  twill get wep -A -l 'app in (web,db)' --field-selector spec.node=h1
  twill get gnp -o custom-columns=NAME:.metadata.name,ORDER:.spec.order
  twill get ippools --export -o yaml > pools.yaml
  twill get -f policies/ -o wide
  twill get wep -A -w -o json`,
		Args: func(_ *cobra.Command, args []string) error { return o.Check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := show.CheckNamespace(cmd, args); err != nil {
				return err
			}
			o.Files.ReadNamespace(cmd)
			if o.Watch {
				return c.Conn.Watching(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
					return c.watch(ctx, s, args, o)
				})
			}
			return c.Conn.With(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.get(ctx, s, args, o)
			})
		},
		ValidArgsFunction: show.Complete(&c.Conn).Resources,
	}
	o.AddNamespace(cmd)
	o.AddFilters(cmd)
	o.Files.AddFlags(cmd)
	o.Output.AddFlag(cmd)
	cmd.Flags().BoolVar(&o.Export, "export", false, "without what belongs to this cluster: uid, revision, times, owners")
	cmd.Flags().BoolVarP(&o.Watch, "watch", "w", false, "print what there is, then each change, until interrupted")
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, true)
}

func (c *command) get(ctx context.Context, s datastore.Store, args []string, o show.Options) error {
	all, missing := show.LookFor(ctx, c.Stdio, s, args, &o)
	var empty *manifests.EmptyError
	switch {
	case errors.As(missing, &empty) && o.Files.SkipEmpty:
		return nil
	case missing != nil && len(all) == 0:
		return missing
	}
	if o.Format.Name == "wide" {
		o.Hits, o.Realised = c.hits(ctx), realised(ctx, s, all)
	}
	return errors.Join(show.Print(c.Stdio, all, o, o.List == "" && len(all) == 1), missing)
}
