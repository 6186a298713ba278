package ctl

import (
	"context"
	"errors"
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
	files  fileOptions
	list   string // the kind of which everything was asked for; empty: several kinds, or some by name
	as     int64  // revision of that list
}

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
printed when it is back.`

func (c *command) getCmd() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND…] [NAME…] | -f FILE…",
		Short: "Show resources",
		Long:  getLong,
		Example: `  twill get networkpolicies -A
  twill get networkpolicy web -n demo -o yaml
  twill get np,gnp,tiers -A -o wide
  twill get wep -A -l 'app in (web,db)' --field-selector spec.node=h1
  twill get gnp -o custom-columns=NAME:.metadata.name,ORDER:.spec.order
  twill get ippools --export -o yaml > pools.yaml
  twill get -f policies/ -o wide
  twill get wep -A -w -o json`,
		Args: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(cmd, args); err != nil {
				return err
			}
			o.files.readNamespace(cmd)
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
	o.files.addFlags(cmd)
	addOutputs(cmd, &o.output, getFormats...)
	cmd.Flags().BoolVar(&o.export, "export", false, "without what belongs to this cluster: uid, revision, times, owners")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print what there is, then each change, until interrupted")
	c.completeFlags(cmd)
	return cmd
}

// check reads what needs no datastore.
func (o *getOptions) check(args []string) (err error) {
	switch {
	case len(args) == 0 && len(o.files.paths) == 0:
		return usage("get: want a kind, or -f FILE; kinds are %s", kindNames())
	case len(args) > 0 && len(o.files.paths) > 0:
		return usage("get: %q and -f: give kinds and names or files, not both", args[0])
	case o.watch && len(args) == 0:
		return usage("get -w: want one kind")
	}
	if o.format, err = parseFormat(o.output); err != nil {
		return err
	}
	if o.narrow, err = o.filter(); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
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
	all, missing := c.lookFor(ctx, s, args, &o)
	var empty *emptyError
	switch {
	case errors.As(missing, &empty) && o.files.skipEmpty:
		return nil
	case missing != nil && len(all) == 0:
		return missing
	}
	if o.format.name == "wide" {
		o.hits = c.hits(ctx)
	}
	return errors.Join(c.print(all, o, o.list == "" && len(all) == 1), missing)
}

// lookFor finds what KIND[,KIND…] [NAME…], or files, and the flags mean. The error says what of it does not exist, or could not
// be looked for; what it found is good nevertheless.
func (c *command) lookFor(ctx context.Context, s datastore.Store, args []string, o *getOptions) (all []found, missing error) {
	if len(args) == 0 {
		all, missing = c.lookForFiles(ctx, s, o)
	} else {
		all, missing = lookForKinds(ctx, s, args, o)
	}
	return slices.DeleteFunc(all, func(f found) bool { return !o.narrow.keeps(f) }), missing
}

func lookForKinds(ctx context.Context, s datastore.Store, args []string, o *getOptions) ([]found, error) {
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return nil, err
	}
	if len(kinds) == 1 && len(args) == 1 {
		o.list = kinds[0].Kind
	}
	var all []found
	var missing []error
	namespaced := false
	for _, kind := range kinds {
		namespaced = namespaced || kind.Namespaced
		fs, revision, err := find(ctx, s, kind, o.scope)
		if err != nil {
			return nil, err
		}
		if o.as = revision; len(args) > 1 {
			if fs, err = named(ctx, s, fs, kind, args[1:], o.scope); err != nil {
				missing = append(missing, err)
			}
		}
		all = append(all, fs...)
	}
	o.all = o.all || !namespaced
	return all, errors.Join(missing...)
}

// lookForFiles finds what files name, in the order of the files.
func (c *command) lookForFiles(ctx context.Context, s datastore.Store, o *getOptions) ([]found, error) {
	ms, err := c.load(o.files)
	if err != nil {
		return nil, err
	}
	o.all = true // of namespaces: tables show them
	var all []found
	var missing []error
	listed := map[string][]found{} // of a kind and namespace
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		kind, _ := api.LookupKind(ref.Kind)
		in := scope{namespace: ref.Namespace}
		at := api.KeyPrefix(ref.Kind, ref.Namespace)
		if _, ok := listed[at]; !ok {
			if listed[at], _, err = find(ctx, s, kind, in); err != nil {
				return nil, err
			}
		}
		fs, err := named(ctx, s, listed[at], kind, []string{ref.Name}, in)
		if err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", m.file, err))
		}
		all = append(all, fs...)
	}
	return all, errors.Join(missing...)
}

// checkNamespace refuses -n beside kinds of which none has a namespace: who gave it means another kind.
func checkNamespace(cmd *cobra.Command, args []string) error {
	f := cmd.Flags().Lookup("namespace")
	if !f.Changed || len(args) == 0 {
		return nil
	}
	kinds, err := lookupKinds(args[0])
	if err != nil || slices.ContainsFunc(kinds, func(k api.Kind) bool { return k.Namespaced }) {
		return err
	}
	return usage("%s: -n %s: %s have no namespace; leave -n out", cmd.Name(), f.Value, kinds[0].Plural)
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
