package ctl

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// completionTime bounds how long the shell waits for names. A store that is
// away has none to offer, and says nothing: the user is in the middle of a line.
const completionTime = time.Second

// completeResources offers kinds, also behind the commas of a list, then the
// names that the store has.
func (c *command) completeResources(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
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
	o := scope{namespace: "default"}
	if f := cmd.Flags().Lookup("namespace"); f != nil {
		o.namespace = f.Value.String()
	}
	var out []string
	c.ask(cmd, func(ctx context.Context, s datastore.Store) error {
		for _, k := range kinds {
			fs, _, err := find(ctx, s, k, o)
			if err != nil {
				return err
			}
			for _, f := range fs {
				if !slices.Contains(args[1:], f.ref.Name) {
					out = append(out, f.ref.Name)
				}
			}
		}
		return nil
	})
	return beginning(out, word), cobra.ShellCompDirectiveNoFileComp
}

// completeOne is completeResources for commands that take one name.
func (c *command) completeOne(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeResources(cmd, args, word)
}

// kindWords are the plurals that begin with word, or if none does the other names.
func kindWords(word string) []string {
	var plurals, others []string
	for _, k := range api.Kinds() {
		plurals = append(plurals, k.Plural)
		others = append(append(others, singular(k)), k.Aliases...)
	}
	if out := beginning(plurals, word); len(out) > 0 {
		return out
	}
	return beginning(others, word)
}

func beginning(words []string, with string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, strings.ToLower(with)) {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ask asks the store for what can be offered.
func (c *command) ask(cmd *cobra.Command, do func(context.Context, datastore.Store) error) {
	// cobra has not given the command a context when it completes.
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	c.conn.timeout = completionTime
	_ = c.conn.with(ctx, do) // see completionTime
}

// completeFlags offers namespaces from the store.
func (c *command) completeFlags(cmd *cobra.Command) {
	if cmd.Flags().Lookup("namespace") == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return beginning(c.namespaces(cmd), word), cobra.ShellCompDirectiveNoFileComp
	}) // it fails only where there is no such flag
}

// namespaces are those that hold something.
func (c *command) namespaces(cmd *cobra.Command) []string {
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
