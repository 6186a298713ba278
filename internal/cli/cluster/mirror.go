package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

const aboutMirrors = `Where the truth is elsewhere, as with OpenStack in Neutron's database, etcd is a mirror that may be
lost at any time. Daemons whose TWILL_DATASTORE_MASTERS names a master keep what they have
while that master has not said that its part of the datastore is complete, and then change
over in one step.
`

func (c *command) mirrorCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mirror", Short: "Say whether a datastore that is rebuilt is complete", Long: aboutMirrors,
		RunE: console.SubcommandWanted, Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(c.mirrorStatusCmd(), c.mirrorBeginCmd(), c.mirrorCompleteCmd())
	return cmd
}

// withMirror is With for a datastore that can be a mirror.
func (c *command) withMirror(ctx context.Context, do func(context.Context, datastore.Store) error) error {
	switch is, err := c.Conn.Kubernetes(); {
	case err != nil:
		return err
	case is:
		return errors.New("the datastore is the Kubernetes API, which is a mirror of nobody: it is the master itself")
	}
	return c.Conn.With(ctx, do)
}

func (c *command) mirrorStatusCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what each master says of its part",
		Long: aboutMirrors + `
Exit code: 0 all that wrote here are complete, 1 one is not, 2 usage.`,
		Example: "  twill datastore mirror status\n  twill datastore mirror status -o json",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withMirror(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				marks, err := mirror.Marks(ctx, s)
				if err != nil {
					return err
				}
				all := make([]mirror.Mark, 0, len(marks))
				for _, name := range slices.Sorted(maps.Keys(marks)) {
					all = append(all, marks[name])
				}
				err = c.Answer(output, console.Answer{
					Doc: all, Name: ".master", Kind: "master",
					Table: func(w io.Writer, _ bool) error { return printMarks(w, all) },
				})
				if err == nil && slices.ContainsFunc(all, func(m mirror.Mark) bool { return !m.Complete }) {
					err = console.Exit{Code: 1}
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func printMarks(w io.Writer, all []mirror.Mark) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "no master has written to this datastore: what is in it is true by itself")
		return err
	}
	t := terminal.NewTable(w, "MASTER", "STATE", "SINCE", "GENERATION")
	for _, m := range all {
		state := "rebuilding"
		if m.Complete {
			state = "complete"
		}
		t.Row(m.Master, state, m.At.Format(time.RFC3339), m.Generation)
	}
	return t.Flush()
}

func oneMaster(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return console.Usage("%s wants the name of one master, got %q", cmd.CommandPath(), args)
	}
	return nil
}

func (c *command) mirrorBeginCmd() *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "begin MASTER",
		Short: "Say that a master's part is about to be rebuilt",
		Long: `Agents that wait for MASTER keep what they have from now on, until "twill datastore mirror
complete MASTER". MASTER is any name, such as operator for what people apply by hand. What
is written meanwhile counts for nobody before that.

Exit code: 0 it is said, 1 it could not be done, 2 usage.`,
		Example: "  twill datastore mirror begin operator && twill apply -f backup.yaml && twill datastore mirror complete operator",
		Args:    oneMaster,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withMirror(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				m, err := mirror.Begin(ctx, s, args[0], true)
				return c.marked(output, m, "is being rebuilt", err)
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func (c *command) mirrorCompleteCmd() *cobra.Command {
	var output console.Output
	var generation string
	cmd := &cobra.Command{
		Use:   "complete MASTER",
		Short: "Say that a master's part is all there",
		Long: `Agents that wait for MASTER, and for no other, read the datastore and change over. It is refused
unless the rebuild was begun ("twill datastore mirror begin"). With --generation, as begin
prints it, it is also refused if the datastore was emptied, or another rebuild begun, since.

Exit code: 0 it is said, 1 it is refused or could not be done, 2 usage.`,
		Example: "  twill datastore mirror complete operator",
		Args:    oneMaster,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withMirror(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				of := generation
				if of == "" {
					marks, err := mirror.Marks(ctx, s)
					if err != nil {
						return err
					}
					if of = marks[args[0]].Generation; of == "" {
						return fmt.Errorf("%s has not begun to rebuild its part, which may lack anything: twill datastore mirror begin %s", args[0], args[0])
					}
				}
				err := mirror.Complete(ctx, s, args[0], of)
				if err == nil {
					err = resources.EnsureReady(ctx, s)
				}
				if errors.Is(err, mirror.ErrSuperseded) {
					err = fmt.Errorf("%w; begin again", err)
				}
				return c.marked(output, mirror.Mark{Master: args[0], Complete: true, Generation: of}, "is complete", err)
			})
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&generation, "generation", "", "of the rebuild that ends; empty: whichever is under way")
	return cmd
}

// marked says what was said of a master's part.
func (c *command) marked(output console.Output, m mirror.Mark, what string, err error) error {
	if err != nil {
		return err
	}
	return c.Answer(output, console.Answer{
		Doc: map[string]any{"master": m.Master, "complete": m.Complete, "generation": m.Generation}, Name: ".master", Kind: "master",
		Table: func(w io.Writer, _ bool) error {
			_, err := fmt.Fprintf(w, "the part of %s %s (generation %s)\n", m.Master, what, m.Generation)
			return err
		},
	})
}
