package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
)

const verifyHelp = `Read back the nftables table, the routes and the settings of interfaces that
are Twill's, and compare them with what a fresh agent would make from the
datastore, with the file, environment and command line of the agent that runs here.
Nothing is changed, and no agent needs to run. Workloads whose policy
is asked rule by rule although it should be look-ups are named, with the reason;
that is no difference. With -o json or yaml they are byChains, beside differences.

A change that is under way shows as a difference, so the comparison is made
again until there is none or --patience is over.

With --explain ADDRESS nothing is compared: the table is read back, and the way of
packets between ADDRESS and each workload of this host is said in words: the class
of the address and what selects it, the program of the workload's group and the
policies that it asks, and for each kind of packets the rule that decides. So it is
for each host endpoint, at each stage at which it has policy. What is asked by chains
has their names. --flow asks about one kind of packets. The
datastore gives names only; "twill why" says what should be, this says what is.

Exit code: 0 equal or explained, 1 different or not possible, 2 usage.`

func (c *command) verifyCmd() *cobra.Command {
	var l conn.Local
	var output console.Output
	var patience time.Duration
	var maps mapsOptions
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare this host's kernel with what the datastore asks for",
		Long:  verifyHelp,
		Example: `  twill verify
  twill verify --node h1 -o json
  twill verify --explain 10.65.2.7 --flow tcp/80`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.Read(); err != nil {
				return err
			}
			c.TakeAgents(cmd, &l)
			cfg := agent.Config{Node: l.Node, Local: l.Layers, Socket: conn.AgentSocket(), Log: c.Log()}
			switch {
			case cmd.Flags().Changed("explain"):
				return c.explainMaps(cmd.Context(), cfg, maps, output)
			case cmd.Flags().Changed("flow"):
				return console.Usage("verify: --flow is for --explain")
			}
			var found agent.Verified
			c.Conn.Timeout += patience
			_, compared := c.Working("comparing the kernel with the datastore", 0)
			err := c.Conn.With(cmd.Context(), func(ctx context.Context, s datastore.Store) (err error) {
				for end := time.Now().Add(patience); ; {
					if found, err = agent.Verify(ctx, cfg, s); err != nil || len(found.Differences) == 0 || time.Now().After(end) {
						return err
					}
				}
			})
			compared()
			if err != nil {
				return err
			}
			return c.printDifferences(found, output)
		},
	}
	l.AddFlags(cmd)
	output.AddFlag(cmd)
	maps.addFlags(cmd)
	cmd.Flags().DurationVar(&patience, "patience", time.Second, "how long to wait for changes that are under way")
	return cmd
}

func (c *command) printDifferences(is agent.Verified, output console.Output) error {
	found := is.Differences
	err := c.Answer(output, console.Answer{Doc: is, Rows: ".differences", Name: ".part", Table: func(w io.Writer, _ bool) error {
		for _, d := range found {
			fmt.Fprintf(w, "%s: %s\n", d.Part, d.What)
		}
		if len(found) == 0 {
			fmt.Fprintln(w, "The kernel is what the datastore asks for.")
		}
		var slow []string
		for id, why := range is.Chains {
			slow = append(slow, fmt.Sprintf("%s: %s", id, why))
		}
		slices.Sort(slow)
		section(w, byChains, slow)
		return nil
	}})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return console.Exit{Code: 1, Msg: fmt.Sprintf("%d differences; a running agent repairs them, see its log", len(found))}
	}
	return nil
}
