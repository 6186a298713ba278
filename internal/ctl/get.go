package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

	builtin bool // nothing stores it
}

func (c *command) get(ctx context.Context, s datastore.Store, args []string, o getOptions) error {
	var all []found
	namespaced := false
	for word := range strings.SplitSeq(args[0], ",") {
		kind, err := lookupKind(word)
		if err != nil {
			return err
		}
		namespaced = namespaced || kind.Namespaced
		fs, err := find(ctx, s, kind, o)
		if err != nil {
			return err
		}
		if len(args) > 1 {
			if fs, err = named(ctx, s, fs, kind, args[1:], o); err != nil {
				return err
			}
		}
		all = append(all, fs...)
	}
	switch o.output {
	case "yaml", "json":
		if len(args) == 1 {
			// The built-in profile cannot be applied, and a list can be.
			all = slices.DeleteFunc(all, func(f found) bool { return f.builtin && f.kind.Kind == api.KindProfile })
		}
		return c.printDocuments(all, o.output, len(args) == 2 && len(all) == 1)
	case "name":
		for _, f := range all {
			fmt.Fprintln(c.stdio.Out, short(f.ref))
		}
		return nil
	}
	o.all = o.all || !namespaced
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
	have := map[string]int{} // where it is in out
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
		have[f.ref.Name] = len(out)
		out = append(out, f)
	}
	for _, r := range builtins(kind.Kind) {
		i, stored := have[r.Meta().Name]
		switch t, ok := r.(*api.Tier); {
		case !stored:
			value, err := api.EncodeStored(r)
			if err != nil {
				return nil, err
			}
			key, _ := api.Key(r)
			out = append(out, found{kind: kind, ref: api.RefOf(r), res: r, value: api.Update{Key: key, Value: value}, builtin: true})
		case ok: // it is what it is, whatever is stored
			if was, ok := out[i].res.(*api.Tier); ok && out[i].note == "" && !sameTier(was.Spec, t.Spec) {
				was.Spec = t.Spec
				out[i].note = "the stored order and default action are ignored: this tier is built in"
			}
			if out[i].res == nil {
				out[i].res = r
			}
		}
	}
	if kind.Kind == api.KindTier {
		slices.SortStableFunc(out, func(a, b found) int { return cmp.Compare(tierOrder(a.res), tierOrder(b.res)) })
	}
	return out, nil
}

func sameTier(a, b api.TierSpec) bool {
	return number(a.Order) == number(b.Order) && tierAction(a) == tierAction(b)
}

// tierOrder sorts tiers as they are walked; none is last.
func tierOrder(r api.Resource) float64 {
	if t, ok := r.(*api.Tier); ok && t.Spec.Order != nil {
		return *t.Spec.Order
	}
	return math.Inf(1)
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
func named(ctx context.Context, s datastore.Store, fs []found, kind api.Kind, names []string, o getOptions) ([]found, error) {
	var out []found
	for _, n := range names {
		hit := false
		for _, f := range fs {
			if f.ref.Name == n {
				out, hit = append(out, f), true
			}
		}
		if !hit {
			return nil, notThere(ctx, s, kind, n, o)
		}
	}
	return out, nil
}

// notThere says what may have been meant.
func notThere(ctx context.Context, s datastore.Store, kind api.Kind, name string, o getOptions) error {
	o.all = true
	all, err := find(ctx, s, kind, o)
	if err != nil {
		return err
	}
	var elsewhere, names []string
	for _, f := range all {
		if f.ref.Name == name {
			elsewhere = append(elsewhere, "-n "+f.ref.Namespace)
		}
		names = append(names, f.ref.Name)
	}
	text := fmt.Sprintf("%s/%s does not exist", singular(kind), name)
	if kind.Namespaced && len(elsewhere) > 0 {
		return fmt.Errorf("%s in namespace %s; it does with %s", text, o.namespace, strings.Join(elsewhere, " or "))
	}
	slices.Sort(names)
	const most = 8
	if names = slices.Compact(names); len(names) > most {
		names = append(names[:most], "…")
	}
	if len(names) == 0 {
		return fmt.Errorf("%s; there are no %s", text, kind.Plural)
	}
	return fmt.Errorf("%s; there are %s", text, strings.Join(names, ", "))
}

func (c *command) printDocuments(fs []found, format string, single bool) error {
	docs := []json.RawMessage{}
	var unreadable []error
	for _, f := range fs {
		doc, err := api.UserJSON(f.value)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		docs = append(docs, doc)
	}
	var text []byte
	var err error
	if single && len(docs) == 1 {
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
	return errors.Join(append(unreadable, err)...)
}

func (c *command) printTables(fs []found, o getOptions) {
	if len(fs) == 0 {
		hint := ""
		if !o.all {
			hint = " in namespace " + o.namespace + "; -A shows all namespaces"
		}
		fmt.Fprintln(c.stdio.Err, "nothing found"+hint)
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
	for _, f := range fs {
		if f.note != "" && o.output != "wide" { // wide has a column for it
			fmt.Fprintf(c.stdio.Err, "%s: %s\n", short(f.ref), f.note)
		}
	}
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
