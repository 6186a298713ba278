package node

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/remote/conformance"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) conformanceCmd() *cobra.Command {
	var cfg conformance.Config
	var output console.Output
	cmd := &cobra.Command{
		Use:   "conformance unix:///PATH",
		Short: "Try whether a dataplane driver keeps the protocol",
		Long: `Calls a driver as an agent does (api/dataplanepb, docs/remote-dataplane.md), and prints for each
case whether the driver did what it must: greetings, order, commits, sequence numbers,
outcomes, large commits, streams that are cut, and what means nothing. What becomes of packets
is not tried.

No agent may use the driver meanwhile. What it has in force is removed, so that a driver which
says that it programs this host's kernel is left alone without --kernel.

Exit code: 0 all cases are ok, 1 a case failed, or the driver was not tried, 2 wrong usage.`,
		Example: `  twill dataplane --in-memory --listen unix:///run/twill/try.sock
  twill dataplane conformance unix:///run/twill/try.sock
  twill dataplane conformance unix:///run/twill/try.sock -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Address = args[0]
			if err := remote.Address(cfg.Address); err != nil {
				return console.Usage("dataplane conformance: %v", err)
			}
			if cfg.Patience <= 0 {
				return console.Usage("dataplane conformance: --timeout is %v: want more than 0", cfg.Patience)
			}
			results, err := conformance.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := c.Answer(output, console.Answer{Doc: results, Name: ".case", Table: func(w io.Writer, _ bool) error { return printConformance(w, results) }}); err != nil {
				return err
			}
			for _, r := range results {
				if !r.OK {
					return console.Exit{Code: 1}
				}
			}
			return nil
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().DurationVar(&cfg.Patience, "timeout", conformance.DefaultPatience, "how long a case may take")
	cmd.Flags().BoolVar(&cfg.Kernel, "kernel", false, "try a driver that programs this host's kernel, too: what is in force there goes")
	return cmd
}

func printConformance(w io.Writer, results []conformance.Result) error {
	t := terminal.NewTable(w, "CASE", "RESULT", "WHAT A DRIVER MUST DO", "REASON")
	for _, r := range results {
		result := "ok"
		if !r.OK {
			result = "failed"
		}
		t.Row(r.Case, result, r.About, r.Reason)
	}
	return t.Flush()
}
