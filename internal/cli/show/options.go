package show

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/datastore"
)

// Options are the flags of get.
type Options struct {
	scope
	console.Output
	Export  bool
	Watch   bool
	Narrow  filter
	several bool              // kinds are shown, each in a table of its own
	Hits    map[string]string // what the rules of each policy decided about on this host; nil: nobody says
	Files   manifests.Files
	List    string             // the kind of which everything was asked for; empty: several kinds, or some by name
	as      datastore.Position // of that list

	Realised map[string]string // on how many nodes each policy is in force, by key; nil: nobody says
}

// Check reads what needs no datastore.
func (o *Options) Check(args []string) (err error) {
	switch {
	case len(args) == 0 && len(o.Files.Paths) == 0:
		return console.Usage("get: want a kind, or -f FILE; kinds are %s", KindNames())
	case len(args) > 0 && len(o.Files.Paths) > 0:
		return console.Usage("get: %q and -f: give kinds and names or files, not both", args[0])
	case o.Watch && len(args) == 0:
		return console.Usage("get -w: want one kind")
	}
	if err = o.Parse(); err != nil {
		return err
	}
	if o.Narrow, err = o.Filter(); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return err
	}
	if o.Watch && (len(kinds) != 1 || o.Format.Name == "go-template" || o.Format.Name == "jsonpath" || o.Format.Name == "name") {
		return console.Usage("get -w: want one kind, and a table, custom-columns, yaml or json")
	}
	return nil
}

// LookFor finds what KIND[,KIND…] [NAME…], or files, and the flags mean. The error says what of it does not exist, or could not
// be looked for; what it found is good nevertheless.
func LookFor(ctx context.Context, c console.Stdio, s datastore.Store, args []string, o *Options) (all []Found, missing error) {
	if len(args) == 0 {
		all, missing = lookForFiles(ctx, c, s, o)
	} else {
		all, missing = lookForKinds(ctx, s, args, o)
	}
	return slices.DeleteFunc(all, func(f Found) bool { return !o.Narrow.Keeps(f) }), missing
}

func lookForKinds(ctx context.Context, s datastore.Store, args []string, o *Options) ([]Found, error) {
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return nil, err
	}
	if len(kinds) == 1 && len(args) == 1 {
		o.List = kinds[0].Kind
	}
	var all []Found
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
	o.All = o.All || !namespaced
	return all, errors.Join(missing...)
}

// lookForFiles finds what files name, in the order of the files.
func lookForFiles(ctx context.Context, c console.Stdio, s datastore.Store, o *Options) ([]Found, error) {
	ms, err := manifests.Load(c, o.Files)
	if err != nil {
		return nil, err
	}
	o.All = true // of namespaces: tables show them
	var all []Found
	var missing []error
	listed := map[string][]Found{} // of a kind and namespace
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		kind, _ := api.LookupKind(ref.Kind)
		in := scope{Namespace: ref.Namespace}
		at := api.KeyPrefix(ref.Kind, ref.Namespace)
		if _, ok := listed[at]; !ok {
			if listed[at], _, err = find(ctx, s, kind, in); err != nil {
				return nil, err
			}
		}
		fs, err := named(ctx, s, listed[at], kind, []string{ref.Name}, in)
		if err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", m.File, err))
		}
		all = append(all, fs...)
	}
	return all, errors.Join(missing...)
}

// CheckNamespace returns an error for -n with kinds of which none has a namespace: the caller means another kind.
func CheckNamespace(cmd *cobra.Command, args []string) error {
	f := cmd.Flags().Lookup("namespace")
	if !f.Changed || len(args) == 0 {
		return nil
	}
	kinds, err := lookupKinds(args[0])
	if err != nil || slices.ContainsFunc(kinds, func(k api.Kind) bool { return k.Namespaced }) {
		return err
	}
	return console.Usage("%s: -n %s: %s have no namespace; leave -n out", cmd.Name(), f.Value, kinds[0].Plural)
}

// lookupKinds reads a list of kinds; all is every kind.
func lookupKinds(words string) ([]api.Kind, error) {
	if strings.EqualFold(words, "all") {
		return api.Kinds(), nil
	}
	var out []api.Kind
	for word := range strings.SplitSeq(words, ",") {
		kind, err := LookupKind(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		out = append(out, kind)
	}
	return out, nil
}

// Nothing says that no resource is there, and what may help.
func Nothing(c console.Stdio, o Options) {
	hint := ""
	if !o.All {
		hint = " in namespace " + o.Namespace + "; -A shows all namespaces"
	}
	if o.filtered() {
		hint = " that the selectors match" + hint
	}
	fmt.Fprintln(c.Err, "nothing found"+hint)
}
