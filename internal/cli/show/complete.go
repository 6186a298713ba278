package show

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// completionTime bounds how long the shell waits for names. A store that is
// away has none to offer, and says nothing: the user is in the middle of a line.
const completionTime = time.Second

// completer offers words to the shell.
type completer struct{ conn *conn.Connection }

func Complete(conn *conn.Connection) completer { return completer{conn} }

// Resources offers kinds, also behind the commas of a list, then the
// names that the store has.
func (c completer) Resources(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		list, last := "", word
		if i := strings.LastIndex(word, ","); i >= 0 {
			list, last = word[:i+1], word[i+1:]
		}
		var out []string
		for _, k := range kindWords(last) {
			out = append(out, list+k)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	kinds, err := lookupKinds(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	o := scope{Namespace: "default"}
	if f := cmd.Flags().Lookup("namespace"); f != nil {
		o.Namespace = f.Value.String()
	}
	var out []string
	c.ask(cmd, func(ctx context.Context, s datastore.Store) error {
		for _, k := range kinds {
			fs, _, err := find(ctx, s, k, o)
			if err != nil {
				return err
			}
			for _, f := range fs {
				if !slices.Contains(args[1:], f.Ref.Name) {
					out = append(out, f.Ref.Name)
				}
			}
		}
		return nil
	})
	return console.Beginning(out, word), cobra.ShellCompDirectiveNoFileComp
}

// One is resources for commands that take one name.
func (c completer) One(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.Resources(cmd, args, word)
}

// kindWords are the plurals that begin with word, or if none does the other names.
func kindWords(word string) []string {
	var plurals, others []string
	for _, k := range api.Kinds() {
		plurals = append(plurals, k.Plural)
		others = append(append(others, resources.Singular(k)), k.Aliases...)
	}
	if out := console.Beginning(plurals, word); len(out) > 0 {
		return out
	}
	return console.Beginning(others, word)
}

// ask asks the store for what can be offered.
func (c completer) ask(cmd *cobra.Command, do func(context.Context, datastore.Store) error) {
	// cobra has not given the command a context when it completes.
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	c.conn.Timeout = completionTime
	_ = c.conn.With(ctx, do) // see completionTime
}

// Flags offers namespaces and nodes from the store, for the flags that a command has.
func (c completer) Flags(cmd *cobra.Command) {
	for name, known := range map[string]func(*cobra.Command) []string{"namespace": c.namespaces, "node": c.names(api.KindNode)} {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
			return console.Beginning(known(cmd), word), cobra.ShellCompDirectiveNoFileComp
		}) // it fails only where there is no such flag, or where it is registered already
	}
}

// Names offers the names of a kind that has no namespaces.
func (c completer) Names(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return console.Beginning(c.names(kind)(cmd), word), cobra.ShellCompDirectiveNoFileComp
	}
}

func (c completer) names(kind string) func(*cobra.Command) []string {
	return func(cmd *cobra.Command) (out []string) {
		c.ask(cmd, func(ctx context.Context, s datastore.Store) error {
			snap, err := s.List(ctx, api.KeyPrefix(kind, ""))
			for _, u := range snap.Items {
				if ref, ok := api.ParseKey(u.Key); ok {
					out = append(out, ref.Name)
				}
			}
			return err
		})
		return out
	}
}

// Flow offers what a flow is made of: two ends, and a protocol with a port.
func (c completer) Flow(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 2 {
		return console.Beginning([]string{"tcp/", "udp/", "sctp/", "icmp"}, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return c.Ends(cmd, args, word)
}

// Ends offers the two ends of a flow.
func (c completer) Ends(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return console.Beginning(c.ends(cmd), word), cobra.ShellCompDirectiveNoFileComp
}

// ends are workloads and hosts, as `twill why` takes them.
func (c completer) ends(cmd *cobra.Command) (out []string) {
	c.ask(cmd, func(ctx context.Context, s datastore.Store) error {
		snap, err := s.List(ctx, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
		for _, u := range snap.Items {
			if st, err := api.DecodeStored(u); err == nil { // what cannot be read has no name
				if w, ok := st.Resource.(*api.WorkloadEndpoint); ok {
					out = append(out, st.Ref.Namespace+"/"+cmp.Or(w.Spec.Pod, w.Spec.Workload, st.Ref.Name))
				}
			}
		}
		return err
	})
	for _, n := range c.names(api.KindNode)(cmd) {
		out = append(out, "host/"+n)
	}
	return out
}

// namespaces are those that hold something.
func (c completer) namespaces(cmd *cobra.Command) []string {
	var out []string
	c.ask(cmd, func(ctx context.Context, s datastore.Store) error {
		for _, k := range api.Kinds() {
			if !k.Namespaced {
				continue
			}
			snap, err := s.List(ctx, api.KeyPrefix(k.Kind, ""))
			if err != nil {
				return err
			}
			for _, u := range snap.Items {
				if ref, ok := api.ParseKey(u.Key); ok {
					out = append(out, ref.Namespace)
				}
			}
		}
		return nil
	})
	return out
}
