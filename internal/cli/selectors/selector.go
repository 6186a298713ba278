// Package selectors is the commands that try selectors: selector match.
//
// In: a selector and labels, from the command line. Out: whether it matches, as text or
// a document, and an exit code that says yes or no.
package selectors

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.selectorCmd()}
}

func (c *command) selectorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "selector",
		Short: "Try selectors on labels",
		RunE:  console.SubcommandWanted,
		Args:  cobra.ArbitraryArgs,
	}
	var output console.Output
	match := &cobra.Command{
		Use:   "match 'EXPR' [KEY=VALUE…]",
		Short: "Say whether a selector matches labels",
		Long: `Say whether a selector matches a set of labels. Nothing is read from a
datastore: the labels are those on the command line, without any that a
namespace or profile would add.

Exit code: 0 it matches, 1 it does not, 2 it does not parse.`,
		Example: `  twill selector match 'app == "web" && tier in {"front", "back"}' app=web tier=front
  twill selector match '!has(quarantine)' app=web`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.Usage("selector match: no selector given; quote it: twill selector match 'app == \"web\"' app=web")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return c.selectorMatch(args[0], args[1:], output) },
	}
	output.AddFlag(match)
	cmd.AddCommand(match)
	return cmd
}

func (c *command) selectorMatch(expr string, pairs []string, output console.Output) error {
	sel, err := selector.Parse(expr)
	if err != nil {
		return console.Exit{Code: 2, Msg: err.Error()}
	}
	labels := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return console.Usage("label %q: want KEY=VALUE", p)
		}
		labels[k] = v
	}
	match := sel.Match(labels)
	err = c.Answer(output, console.Answer{
		Doc: map[string]any{"selector": sel.String(), "labels": labels, "match": match}, Name: ".match",
		Table: func(w io.Writer, _ bool) error {
			_, err := fmt.Fprintf(w, "%s: %s\n", map[bool]string{true: "match", false: "no match"}[match], sel)
			return err
		},
	})
	if err == nil && !match {
		return console.Exit{Code: 1}
	}
	return err
}
