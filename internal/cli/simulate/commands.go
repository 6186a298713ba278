// Package simulate is `twill simulate`: what a cluster costs that is larger than any at hand.
//
// In: arguments, and how much memory the machine has. Out: what package internal/simulate finds.
package simulate

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/kernel/sched"
	"github.com/twillnet/twill/internal/simulate"
	"github.com/twillnet/twill/internal/terminal"
)

const long = `Make up a cluster of --nodes with --endpoints and --policies, change it --churn times
a second, and say what that costs: memory and processor time of an agent, messages,
what the store holds and sends, how long a change takes to be known everywhere, and
what is used up first.

Some agents (--sample) are calculated in full, one after the other, in this process:
no kernel, network or datastore is touched. The others are counted. Of each figure
-o wide says how it is known:

  counted     of all agents; it follows from --seed
  estimated   counted in the sample and taken for all; it follows from --seed
  measured    in the sample, on this machine: processor time, and memory
  modelled    worked out from what was measured: queues of a store and its agents

--check calculates all agents (100 at most) in full, and prints how far the sample is
from them. docs/scale.md has what 10,000 nodes cost, and how to read the figures.

It needs the memory of one agent: at most 64 MB, 5 kB for each endpoint, 4 kB for each
node, and 16 kB for each policy and each change. If there is less, it ends before it
begins, and says so.

Exit code: 0 simulated, 1 not enough memory, or stopped, 2 usage.`

const example = `  twill simulate
  twill simulate --nodes 1000 --endpoints 100000 --policies 2000 --churn 50
  twill simulate --check --sample 5           # how far five agents are from a hundred
  twill simulate --nodes 10000 --endpoints 1000000 --policies 10000 -o json`

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.simulateCmd()}
}

func (c *command) simulateCmd() *cobra.Command {
	var output console.Output
	cfg := simulate.Config{CPU: sched.ProcessTime, Available: available("")}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Say what a cluster of a given size would cost",
		Long:  long, Example: example,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("sample") {
				cfg.Sample = min(cfg.Sample, cfg.Nodes)
			}
			progress, end := c.Working("agents calculated", cfg.Agents())
			cfg.Progress = progress
			r, err := simulate.Run(cmd.Context(), cfg)
			end()
			if wrong := (*simulate.ConfigError)(nil); errors.As(err, &wrong) {
				return console.Usage("%v", err)
			}
			if err != nil {
				return fmt.Errorf("simulate: %w", err)
			}
			return c.Answer(output, console.Answer{Doc: r, Rows: ".figures", Name: ".name", Table: func(w io.Writer, wide bool) error { return table(w, r, wide) }})
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Nodes, "nodes", 100, "how many nodes")
	f.IntVar(&cfg.Endpoints, "endpoints", 10_000, "how many workload endpoints, all nodes together")
	f.IntVar(&cfg.Policies, "policies", 200, "how many policies")
	f.Float64Var(&cfg.Churn, "churn", 10, "changes a second, of endpoints and policies")
	f.DurationVar(&cfg.Duration, "duration", 30*time.Second, "for how long there are changes, in virtual time")
	f.Uint64Var(&cfg.Seed, "seed", 1, "what the cluster and its changes follow from")
	f.IntVar(&cfg.Sample, "sample", 3, "how many agents are calculated in full")
	f.BoolVar(&cfg.Check, "check", false, "calculate all agents in full, and print how far the sample is from them")
	f.DurationVar(&cfg.Store.Send, "store-send", 30*time.Microsecond, "processor time of the store for one message to one agent")
	f.Float64Var(&cfg.Store.Cores, "store-cores", 4, "processors with which the store sends")
	f.DurationVar(&cfg.Store.Commit, "store-commit", 900*time.Microsecond, "from a write until the store has committed it")
	output.AddFlag(cmd)
	return cmd
}

func table(w io.Writer, r *simulate.Report, wide bool) error {
	titles := []string{"FIGURE", "VALUE"}
	checked := len(r.Figures) > 0 && r.Figures[0].Full != nil
	if checked {
		titles = append(titles, "ALL IN FULL", "ERROR")
	}
	if wide {
		titles = append(titles, "KNOWN")
	}
	t := terminal.NewTable(w, append(titles, "ABOUT")...)
	for _, f := range r.Figures {
		row := []string{f.Name, f.Text(f.Value)}
		if checked {
			row = append(row, f.Text(*f.Full), fmt.Sprintf("%.1f %%", *f.Error))
		}
		if wide {
			row = append(row, string(f.Known))
		}
		t.Row(append(row, f.About)...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if wide {
		fmt.Fprintf(w, "\nIn full: %s. %s, seed %d, state %s.\n", strings.Join(r.Sample, ", "), console.Count(r.Changes, "change"), r.Seed, r.State)
	}
	more := ""
	if r.Overloaded {
		more = fmt.Sprintf(" It cannot keep up with %v: convergence gets\nworse for as long as that goes on (here %v s).", r.Churn, r.Seconds)
	}
	_, err := fmt.Fprintf(w, "\nFirst used up: the %s, at %.0f changes a second.%s\n", r.Limit.By, r.Limit.Changes, more)
	return err
}
