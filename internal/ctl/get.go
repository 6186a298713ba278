package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

func (c *command) getCmd() *cobra.Command {
	var namespace, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "get KIND[,KIND…] [NAME…]",
		Short: "Show resources",
		Long: `Show resources as a table, or as YAML or JSON that can be applied again. Kinds
may be given as upstream's tools take them: networkpolicies, networkpolicy, np.
Built-in tiers and the built-in profile are shown though nothing stores them.`,
		Example: "  twill get networkpolicies -A\n  twill get networkpolicy web -n demo -o yaml\n  twill get np,gnp,tiers -A -o wide",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("get: want a kind: %s", kindNames())
			}
			if !slices.Contains([]string{"", "wide", "yaml", "json", "name"}, output) {
				return usage("get: -o %q: want yaml, json, wide or name", output)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.conn.with(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.get(ctx, s, args, getOptions{namespace, all, output})
			})
		},
		ValidArgsFunction: completeKinds,
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the resources")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "resources of all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "", "yaml, json, wide or name; a table without")
	return cmd
}

type getOptions struct {
	namespace string
	all       bool
	output    string
}

// found is one resource of the answer.
type found struct {
	kind  api.Kind
	ref   api.Ref
	value api.Update
	res   api.Resource
	note  string // what is wrong in it
}

func (c *command) get(ctx context.Context, s datastore.Store, args []string, o getOptions) error {
	var all []found
	for word := range strings.SplitSeq(args[0], ",") {
		kind, err := lookupKind(word)
		if err != nil {
			return err
		}
		fs, err := find(ctx, s, kind, o)
		if err != nil {
			return err
		}
		if len(args) > 1 {
			if fs, err = named(fs, kind, args[1:], o); err != nil {
				return err
			}
		}
		all = append(all, fs...)
	}
	switch o.output {
	case "yaml", "json":
		return c.printDocuments(all, o.output, len(args) == 2 && len(all) == 1)
	case "name":
		for _, f := range all {
			fmt.Fprintln(c.stdio.Out, short(f.ref))
		}
		return nil
	}
	c.printTables(all, o)
	return nil
}

// find lists the resources of one kind.
func find(ctx context.Context, s datastore.Store, kind api.Kind, o getOptions) ([]found, error) {
	namespace := ""
	if kind.Namespaced && !o.all {
		namespace = o.namespace
	}
	snap, err := s.List(ctx, api.KeyPrefix(kind.Kind, namespace))
	if err != nil {
		return nil, err
	}
	var out []found
	have := map[string]bool{}
	for _, u := range snap.Items {
		f := found{kind: kind, value: u}
		if st, err := api.DecodeStored(u); err == nil {
			f.ref, f.res, f.note = st.Ref, st.Resource, st.Closed
			if f.note == "" && len(st.Problems) > 0 {
				f.note = st.Problems[0].Field + ": " + st.Problems[0].Reason
			}
		} else {
			f.ref, _ = api.ParseKey(u.Key)
			f.note = err.Error()
		}
		have[f.ref.Name] = true
		out = append(out, f)
	}
	for _, r := range builtins(kind.Kind) {
		if !have[r.Meta().Name] {
			value, err := api.EncodeStored(r)
			if err != nil {
				return nil, err
			}
			key, _ := api.Key(r)
			out = append(out, found{kind: kind, ref: api.RefOf(r), res: r, value: api.Update{Key: key, Value: value}})
		}
	}
	return out, nil
}

// builtins are the resources that exist though nothing stores them.
func builtins(kind string) []api.Resource {
	tier := func(name string, order float64, action api.Action) api.Resource {
		t := api.New(api.KindTier).(*api.Tier)
		t.Kind, t.APIVersion, t.Metadata.Name = api.KindTier, api.GroupVersion, name
		t.Spec = api.TierSpec{Order: &order, DefaultAction: &action}
		return t
	}
	switch kind {
	case api.KindTier:
		return []api.Resource{tier(api.TierKubeAdmin, 1000, api.Pass), tier(api.TierDefault, 1_000_000, api.Deny), tier(api.TierKubeBaseline, 10_000_000, api.Pass)}
	case api.KindProfile:
		p := api.New(api.KindProfile).(*api.Profile)
		p.Kind, p.APIVersion, p.Metadata.Name = api.KindProfile, api.GroupVersion, api.ProfileDefaultAllow
		p.Spec.Ingress, p.Spec.Egress = []api.Rule{{Action: api.Allow}}, []api.Rule{{Action: api.Allow}}
		return []api.Resource{p}
	}
	return nil
}

// named keeps those that were asked for; each must exist.
func named(fs []found, kind api.Kind, names []string, o getOptions) ([]found, error) {
	var out []found
	for _, n := range names {
		hit := false
		for _, f := range fs {
			if f.ref.Name == n {
				out, hit = append(out, f), true
			}
		}
		if !hit {
			where := ""
			if kind.Namespaced && !o.all {
				where = " in namespace " + o.namespace + "; -A looks in all"
			}
			return nil, fmt.Errorf("%s/%s does not exist%s", singular(kind), n, where)
		}
	}
	return out, nil
}

func (c *command) printDocuments(fs []found, format string, single bool) error {
	docs := []json.RawMessage{}
	for _, f := range fs {
		doc, err := api.UserJSON(f.value)
		if err != nil {
			return fmt.Errorf("%s: %w", short(f.ref), err)
		}
		docs = append(docs, doc)
	}
	var text []byte
	var err error
	if single {
		text = docs[0]
	} else if text, err = json.Marshal(map[string]any{"apiVersion": api.GroupVersion, "kind": "List", "items": docs}); err != nil {
		return err
	}
	if format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	} else {
		var b bytes.Buffer
		err = json.Indent(&b, text, "", "  ")
		b.WriteByte('\n')
		text = b.Bytes()
	}
	if err == nil {
		_, err = c.stdio.Out.Write(text)
	}
	return err
}

func (c *command) printTables(fs []found, o getOptions) {
	if len(fs) == 0 {
		fmt.Fprintln(c.stdio.Err, "nothing found; -A shows all namespaces")
		return
	}
	w := tabwriter.NewWriter(c.stdio.Out, 0, 0, 2, ' ', 0)
	last := ""
	for _, f := range fs {
		if f.kind.Kind != last {
			if last != "" {
				fmt.Fprintln(w)
			}
			last = f.kind.Kind
			fmt.Fprintln(w, strings.Join(header(f.kind, o), "\t"))
		}
		fmt.Fprintln(w, strings.Join(row(f, o), "\t"))
	}
	_ = w.Flush()
}

func lookupKind(word string) (api.Kind, error) {
	if k, ok := api.LookupKind(word); ok {
		return k, nil
	}
	return api.Kind{}, usage("%q is no kind; there are %s", word, kindNames())
}

func kindNames() string {
	var names []string
	for _, k := range api.Kinds() {
		names = append(names, k.Plural)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func singular(k api.Kind) string { return strings.ToLower(k.Kind) }

func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, k := range api.Kinds() {
		names = append(names, k.Plural)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
