package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// getOptions are the flags of get.
type getOptions struct {
	scope
	output string // as given
	format        // as read
	export bool
	watch  bool
	narrow filter
	hits   map[string]string // what the rules of each policy decided about on this host; nil: nobody says
}

func (c *command) getCmd() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND…] [NAME…]",
		Short: "Show resources",
		Long: `Show resources as a table, or as YAML or JSON that can be applied again. Kinds
may be given as upstream's tools take them: networkpolicies, networkpolicy, np;
"all" is every kind. Built-in tiers and the built-in profile are shown though
nothing stores them.

-o FORMAT
  ps, wide                  a table; wide has labels, what is wrong, and of policies
                            the packets that their rules decided about on this host
  yaml, json, name          documents, or kind/name
  custom-columns=NAME:.path,NAME:.path
                            a table of your own; a path is .spec.nets[0],
                            .spec.ingress[*].action, .metadata.labels.a\.b
  custom-columns-file=FILE  the same from a file: a line of titles, one of paths
  jsonpath={.path}          text with paths: {.items[*].metadata.name}{"\n"}
  go-template=…, go-template-file=FILE
                            Go's template language, given the document that
                            -o json shows

-l looks at the labels that the resource itself has, in kubectl's language
(a=b,c!=d,e in (x,y),!f) or in that of Calico's selectors.

With -w the command stays, and prints a row for each change: added, changed,
deleted. As json each change is one line, {"type":"ADDED","object":{…}}. An
outage of the datastore is reported on standard error; what changed in it is
printed when it is back.`,
		Example: `  twill get networkpolicies -A
  twill get networkpolicy web -n demo -o yaml
  twill get np,gnp,tiers -A -o wide
  twill get wep -A -l 'app in (web,db)' --field-selector spec.node=h1
  twill get gnp -o custom-columns=NAME:.metadata.name,ORDER:.spec.order
  twill get ippools --export -o yaml > pools.yaml
  twill get wep -A -w -o json`,
		Args: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.watch {
				return c.conn.watching(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
					return c.watch(ctx, s, args, o)
				})
			}
			return c.conn.with(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.get(ctx, s, args, o)
			})
		},
		ValidArgsFunction: c.completeResources,
	}
	o.addNamespace(cmd)
	o.addFilters(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "ps, wide, yaml, json, name, custom-columns=…, custom-columns-file=…, jsonpath=…, go-template=…, go-template-file=…")
	cmd.Flags().BoolVar(&o.export, "export", false, "without what belongs to this cluster: uid, revision, times, owners")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print what there is, then each change, until interrupted")
	c.completeFlags(cmd, "ps", "wide", "yaml", "json", "name", "custom-columns=", "custom-columns-file=", "jsonpath=", "go-template=", "go-template-file=")
	return cmd
}

// check reads what needs no datastore.
func (o *getOptions) check(args []string) (err error) {
	if len(args) == 0 {
		return usage("get: want a kind: %s", kindNames())
	}
	if o.format, err = parseFormat(o.output); err != nil {
		return err
	}
	if o.narrow, err = o.filter(); err != nil {
		return err
	}
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return err
	}
	if o.watch && (len(kinds) != 1 || o.format.name == "go-template" || o.format.name == "jsonpath" || o.format.name == "name") {
		return usage("get -w: want one kind, and a table, custom-columns, yaml or json")
	}
	return nil
}

func (c *command) get(ctx context.Context, s datastore.Store, args []string, o getOptions) error {
	all, err := c.lookFor(ctx, s, args, &o)
	if err != nil {
		return err
	}
	if len(args) == 1 && o.format.documents() {
		// The built-in profile cannot be applied, and a list can be.
		all = slices.DeleteFunc(all, func(f found) bool { return f.builtin && f.kind.Kind == api.KindProfile })
	}
	if o.format.name == "wide" {
		o.hits = c.hits(ctx)
	}
	return c.print(all, o, len(args) == 2 && len(all) == 1)
}

// lookFor finds what KIND[,KIND…] [NAME…] and the flags mean.
func (c *command) lookFor(ctx context.Context, s datastore.Store, args []string, o *getOptions) ([]found, error) {
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return nil, err
	}
	var all []found
	namespaced := false
	for _, kind := range kinds {
		namespaced = namespaced || kind.Namespaced
		fs, err := find(ctx, s, kind, o.scope)
		if err != nil {
			return nil, err
		}
		if len(args) > 1 {
			if fs, err = named(ctx, s, fs, kind, args[1:], o.scope); err != nil {
				return nil, err
			}
		}
		all = append(all, fs...)
	}
	o.all = o.all || !namespaced
	return slices.DeleteFunc(all, func(f found) bool { return !o.narrow.keeps(f) }), nil
}

// lookupKinds reads a list of kinds; all is every kind.
func lookupKinds(words string) ([]api.Kind, error) {
	if strings.EqualFold(words, "all") {
		return api.Kinds(), nil
	}
	var out []api.Kind
	for word := range strings.SplitSeq(words, ",") {
		kind, err := lookupKind(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		out = append(out, kind)
	}
	return out, nil
}

// nothing says that no resource is there, and what may help.
func (c *command) nothing(o getOptions) {
	hint := ""
	if !o.all {
		hint = " in namespace " + o.namespace + "; -A shows all namespaces"
	}
	if o.filtered() {
		hint = " that the selectors match" + hint
	}
	fmt.Fprintln(c.stdio.Err, "nothing found"+hint)
}
