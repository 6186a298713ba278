package explain

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/reach"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) reachCmd() *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "reach PEER [WORKLOAD]",
		Short: "List all that a peer and workloads may open to each other",
		Long: `List, for each workload (or for one), every protocol and port at which policy makes a
difference for PEER: what the workload receives from it and sends to it, and the
rule that decides. "twill why" explains one flow; reach shows all of them at once.

The workload's own policy is asked, not PEER's: a flow between two workloads needs
both, and has a line for each when both are asked about.

PEER, WORKLOAD   namespace/workload or an address; PEER also host/NODE

Lines of a workload go from the special to the general: the first that fits a
packet is meant, and "all else" is what is left.

Exit code: 0 listed, 1 the question cannot be answered, 2 usage.`,
		Example: `  twill reach demo/client demo/web
  twill reach 203.0.113.9
  twill reach --files policies/ demo/client -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return console.Usage("reach: want PEER [WORKLOAD]: twill reach demo/client demo/web")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			us, err := c.resources(cmd.Context(), o)
			if err != nil {
				return err
			}
			found, err := reach.List(us, args[0], args[1:]...)
			if err != nil {
				return err
			}
			return c.Answer(o.output, console.Answer{Doc: found, Name: ".workload", Table: func(w io.Writer, _ bool) error { return printReach(w, found) }})
		},
	}
	cmd.ValidArgsFunction = show.Complete(&c.Conn).Ends
	cmd.Flags().StringSliceVar(&o.files, "files", nil, "read resources from files or directories, not from the datastore")
	o.output.AddFlag(cmd)
	return cmd
}

func printReach(w io.Writer, lines []reach.Line) error {
	t := terminal.NewTable(w, "WORKLOAD", "PEER", "DIRECTION", "FLOWS", "ANSWER", "BY")
	for _, r := range lines {
		if r.When != "" {
			r.Flows += " if " + r.When
		}
		t.Row(r.Workload, r.Peer.String(), r.Direction, r.Flows, r.Action, r.By)
	}
	return t.Flush()
}
