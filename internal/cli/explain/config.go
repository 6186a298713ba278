package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/explain/settings"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) configCmd() *cobra.Command {
	var l conn.Local
	var output console.Output
	var all, offline, startedHere, usage bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the settings of this node's agent, and where each comes from",
		Long: `Print the settings of this host's agent, and where each comes from: the default,
the file, the environment, the command line, or a FelixConfiguration. Later ones
in this list win, unless the agent was called by one of upstream's names, or has
TWILL_SETTINGS_ORDER=local-last; of the FelixConfigurations "default" yields to those
whose nodeSelector selects the node, and these to "node.<name>".

The agent that runs here is asked for its file, environment and command line. If none
runs, or with --as-started-here, it is those of an agent that would be started here,
in this environment.

Exit code: 0 all values are good, 1 some are not and were passed over, 2 usage.`,
		Example: "  twill config                 # what differs from the defaults\n  twill config --all\n  twill config --as-started-here   # what a restart in this environment would make of it\n  twill config --node h1 -o yaml\n  twill config params          # what there is, as a page",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if usage {
				return settings.PrintUsage(cmd.Context(), c.Stdio, output, conn.AgentSocket())
			}
			if err := l.Read(); err != nil {
				return err
			}
			if !startedHere {
				c.TakeAgents(cmd, &l)
			}
			r := config.New(l.Node, l.Layers...)
			var stored []api.Problem
			if !offline {
				err := c.Conn.With(cmd.Context(), func(ctx context.Context, s datastore.Store) (err error) {
					stored, err = readSettings(ctx, s, r, l.Node)
					return err
				})
				if err != nil {
					return fmt.Errorf("%w\nWith --offline only what is known without the datastore is printed.", err)
				}
			}
			e := r.Resolve()
			if err := c.printConfig(e, all, output); err != nil {
				return err
			}
			return wrongSettings(c.Stdio.Err, l.Problems, e.Problems, stored)
		},
	}
	l.AddFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "also print what has its default")
	f.BoolVar(&startedHere, "as-started-here", false, "do not ask the agent that runs here")
	f.BoolVar(&offline, "offline", false, "do not ask the datastore")
	f.BoolVar(&usage, "usage-report", false, "print what the agent that runs here reports to usageReportingURL, or would")
	output.AddFlag(cmd)
	cmd.AddCommand(settings.Params(c.Stdio.Out))
	return cmd
}

// readSettings gives a Resolver what the datastore has for a node.
func readSettings(ctx context.Context, s datastore.Store, r *config.Resolver, node string) (problems []api.Problem, err error) {
	snap, err := s.List(ctx, api.ResourcesPrefix+"felixconfigurations/")
	if err != nil {
		return nil, err
	}
	for _, kv := range snap.Items {
		st, err := api.DecodeStored(kv)
		if err != nil {
			problems = append(problems, api.Problem{Key: kv.Key, Reason: err.Error()})
			continue
		}
		problems = append(problems, st.Problems...)
		if f, ok := st.Resource.(*api.FelixConfiguration); ok {
			f.Metadata.Name = st.Ref.Name
			r.Set(f)
		}
	}
	kv, err := s.Get(ctx, api.ResourcesPrefix+"nodes/"+node)
	if errors.Is(err, datastore.ErrNotFound) {
		return problems, nil
	}
	if err != nil {
		return nil, err
	}
	if st, err := api.DecodeStored(kv); err == nil {
		if n, ok := st.Resource.(*api.Node); ok {
			r.SetLabels(n.Metadata.Labels)
		}
	}
	return problems, nil
}

// setting is a line of output.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

func (c *command) printConfig(e config.Effective, all bool, output console.Output) error {
	var out []setting
	for _, v := range e.Values {
		if v.From == "default" && !all {
			continue
		}
		s := setting{v.Param.Name, v.Text, v.From}
		if v.Param.Name == "etcdPassword" && v.Text != "" {
			s.Value = agent.Hidden
		}
		out = append(out, s)
	}
	return c.Answer(output, console.Answer{Doc: out, Name: ".name", Table: func(w io.Writer, _ bool) error { return printSettings(w, out) }})
}

func printSettings(w io.Writer, out []setting) error {
	if len(out) == 0 {
		_, err := fmt.Fprintln(w, "Every setting has its default; --all prints them.")
		return err
	}
	t := terminal.NewTable(w, "NAME", "VALUE", "FROM")
	for _, s := range out {
		t.Row(s.Name, s.Value, s.From)
	}
	return t.Flush()
}

// wrongSettings is an error that lists what was passed over. What has no effect is only warned of, to w.
func wrongSettings(w io.Writer, local, all []config.Problem, stored []api.Problem) error {
	var lines []string
	local = slices.DeleteFunc(local, func(p config.Problem) bool { return slices.Contains(all, p) }) // what is wrong with a layer is found when all are read, too
	for _, p := range append(local, all...) {
		lines = append(lines, fmt.Sprintf("  %s: %s %s", p.From, p.Name, p.Reason))
	}
	for _, p := range stored {
		if p.NoEffect {
			fmt.Fprintf(w, "warning: %s: %s %s\n", strings.TrimPrefix(p.Key, api.ResourcesPrefix), p.Field, p.Reason)
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s: %s %s", strings.TrimPrefix(p.Key, api.ResourcesPrefix), p.Field, p.Reason))
	}
	if len(lines) == 0 {
		return nil
	}
	return console.Exit{Code: 1, Msg: fmt.Sprintf("Passed over: %s.\n%s", console.Count(len(lines), "setting"), strings.Join(lines, "\n"))}
}
