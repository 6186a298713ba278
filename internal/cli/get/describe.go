package get

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
)

// texts writes descriptions one after the other.
func texts(all []show.Description) func(io.Writer, bool) error {
	return func(w io.Writer, _ bool) error {
		for i, d := range all {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprint(w, d.Text)
		}
		return nil
	}
}

func (c *command) describeCmd() *cobra.Command {
	var o show.Options
	cmd := &cobra.Command{
		Use:   "describe KIND[,KIND…] [NAME…] | KIND/NAME…",
		Short: "Show what resources mean: order, effect, findings",
		Long: `Show what resources mean, for people. Of a policy: its rules, its place among
tiers and policies, and the workloads to which it applies. Of a workload
endpoint: the labels that selectors see, and the policies that its packets meet,
in order. Of a tier: its policies in order. Of a profile and a node: the
workloads that use it. Of each: what is wrong in it.

Exit code: 0 shown, 1 one does not exist, 2 usage.`,
		Example: "  twill describe np web -n prod\n  twill describe wep -A -l app=web\n  twill describe tiers",
		Args: func(_ *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return console.Usage("describe: want a kind: %s", show.KindNames())
			}
			o.Narrow, err = o.Filter()
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := show.CheckNamespace(cmd, args); err != nil {
				return err
			}
			return c.Conn.With(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				all, missing := show.LookFor(ctx, c.Stdio, s, args, &o)
				if missing != nil && len(all) == 0 {
					return missing
				}
				snap, err := s.List(ctx, api.Root)
				if err != nil {
					return err
				}
				if len(all) == 0 {
					show.Nothing(c.Stdio, o)
				}
				d := show.NewDescriber(snap.Items)
				var out []show.Description
				for _, f := range all {
					out = append(out, d.Describe(f))
				}
				return errors.Join(missing, c.Answer(o.Output, console.Answer{Doc: out, Name: ".resource", Table: texts(out)}))
			})
		},
		ValidArgsFunction: show.Complete(&c.Conn).Resources,
	}
	o.AddNamespace(cmd)
	o.AddFilters(cmd)
	o.Output.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, true)
}
