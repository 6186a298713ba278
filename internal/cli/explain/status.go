package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/paths"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) statusCmd() *cobra.Command {
	var all bool
	var socket string
	var output console.Output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What this node does, what is wrong, and since when",
		Long: `Ask the agent of this host: is it ready, is its datastore there, is everything
in force, which endpoints are not up and why, by which ways other hosts are
reached, what is wrong in resources and settings, and what of ours others have
changed. -o wide lists all endpoints and hosts; of WireGuard with the last
handshake, and the bytes since the device has the host's key.

With --all, read from the datastore what every node last reported.

Exit code: 0 ready, 1 not ready or no answer, 2 usage.`,
		Example: "  twill status\n  twill status -o wide\n  twill status -o json\n  twill status --all",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				return c.statusOfAll(cmd.Context(), output)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), c.Conn.Timeout)
			defer cancel()
			report, err := agent.Ask(ctx, socket)
			if err != nil {
				return conn.ExplainAgent(socket, err)
			}
			err = c.Answer(output, console.Answer{Doc: report, Name: ".node", Kind: "node", Table: func(w io.Writer, wide bool) error {
				printReport(w, report, wide, time.Now())
				return nil
			}})
			return errors.Join(err, notReady(report))
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "what every node last reported to the datastore")
	cmd.Flags().StringVar(&socket, "socket", conn.AgentSocket(), "the agent's socket (TWILL_SOCKET)")
	output.AddFlag(cmd)
	return cmd
}

func notReady(r agent.Report) error {
	if r.Ready {
		return nil
	}
	return console.Exit{Code: 1, Msg: ""}
}

func printReport(w io.Writer, r agent.Report, wide bool, now time.Time) {
	state := "ready"
	if !r.Ready {
		state = "NOT READY"
	}
	fmt.Fprintf(w, "Node %s is %s; agent %s has run for %s.\n", r.Node, state, r.Version, terminal.Ago(now, r.Started))
	for _, why := range r.NotReady {
		fmt.Fprintf(w, "  because: %s\n", why)
	}
	t := terminal.NewTable(w)
	t.Row("  datastore", r.Datastore.State+" for "+terminal.Ago(now, r.Datastore.Since))
	if r.Unwritten != "" {
		t.Row("", "cannot be written to: "+r.Unwritten)
	}
	t.Row("  kernel", r.Kernel.State+" for "+terminal.Ago(now, r.Kernel.Since))
	t.Row("  endpoints", fmt.Sprintf("%d up, %d down, %d error", r.Counts.Endpoints[status.Up], r.Counts.Endpoints[status.Down], r.Counts.Endpoints[status.Error]))
	if r.Counts.ByChains > 0 {
		t.Row("", fmt.Sprintf("%d groups of the same policies are asked rule by rule, see below", r.Counts.ByChains))
	}
	t.Row("  in use", fmt.Sprintf("%d policies and profiles, %d sets of addresses, %d routes", r.Counts.Policies, r.Counts.Sets, r.Counts.Routes))
	if m := r.MTU; m != nil {
		by := ""
		if m.Interface != "" {
			by = " (" + m.Interface + ")"
		}
		t.Row("  MTU", fmt.Sprintf("%d between hosts%s, %d of new workloads", m.Carries, by, m.Workloads))
	}
	paths.Summary(t, r)
	if p := r.Plugins; p != nil {
		t.Row("  plugins", p.String())
	}
	var repairs []string
	for what, n := range r.Repairs {
		repairs = append(repairs, fmt.Sprintf("%d × %s", n, what))
	}
	if slices.Sort(repairs); len(repairs) > 0 {
		t.Row("  repaired", strings.Join(repairs, ", ")+"; the log says what")
	}
	t.Flush()
	printEndpoints(w, r, wide, now)
	printPlugins(w, r.Plugins, wide, now)
	paths.Print(w, r.Others, wide, now)
	section(w, "Not in force", r.Failed)
	if r.MTU != nil {
		section(w, "Packets may be too large (docs/mtu.md)", shortened(r.MTU.Problems, wide))
	}
	section(w, byChains, remarks(r, wide, func(e agent.EndpointReport) string { return e.Chains }))
	section(w, "Live migrations (docs/live-migration.md)", remarks(r, wide, func(e agent.EndpointReport) string { return e.Note }))
	section(w, "Left by an upstream agent, and still at work ("+doctor.FixLeftovers+")", r.Leftovers)
	printFound(w, r, wide, now)
}

// printFound prints what is wrong in resources and settings, or has no effect.
func printFound(w io.Writer, r agent.Report, wide bool, now time.Time) {
	var wrong []string
	for _, f := range r.Wrong {
		wrong = append(wrong, fmt.Sprintf("%s: %s (for %s)", f.Where, f.Reason, terminal.Ago(now, f.Since)))
	}
	section(w, "Wrong in resources and settings", wrong)
	var noEffect []string
	for i, f := range r.NoEffect {
		if i == console.MostErrors && !wide {
			noEffect = append(noEffect, fmt.Sprintf("and %d more; -o wide lists them", len(r.NoEffect)-i))
			break
		}
		noEffect = append(noEffect, fmt.Sprintf("%s: %s", f.Where, f.Reason))
	}
	section(w, "Without effect in resources", noEffect)
}

func printEndpoints(w io.Writer, r agent.Report, wide bool, now time.Time) {
	t := terminal.NewTable(w)
	for _, e := range r.Endpoints {
		if e.Status == status.Up && !wide {
			continue
		}
		if t.Len() == 0 {
			t.Row()
			t.Row("ENDPOINT", "INTERFACE", "STATUS", "FOR", "REASON")
		}
		t.Row(e.Name, e.Interface, e.Status, terminal.Ago(now, e.Since), e.Reason)
	}
	t.Flush()
}

// byChains is what is said of workloads whose policy exceeds a limit of look-ups.
const byChains = "Asked rule by rule, not by look-ups; the verdicts are the same (docs/compiled.md says what to do)"

// remarks are the endpoints of which there is something to say.
func remarks(r agent.Report, wide bool, of func(agent.EndpointReport) string) (lines []string) {
	for _, e := range r.Endpoints {
		if text := of(e); text != "" {
			lines = append(lines, e.Name+": "+text)
		}
	}
	return shortened(lines, wide)
}

// shortened are the first lines, unless all are wanted.
func shortened(lines []string, wide bool) []string {
	if more := len(lines) - console.MostErrors; more > 0 && !wide {
		return append(slices.Clone(lines[:console.MostErrors]), fmt.Sprintf("and %d more; -o wide lists them", more))
	}
	return lines
}

func section(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(w, "  %s\n", l)
	}
}

func (c *command) statusOfAll(ctx context.Context, output console.Output) error {
	var nodes []status.NodeStatus
	if err := c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) (err error) {
		nodes, err = status.Nodes(ctx, s)
		return err
	}); err != nil {
		return err
	}
	if !output.IsTable() {
		return c.Answer(output, console.Answer{Doc: nodes, Name: ".node", Kind: "node"})
	}
	if len(nodes) == 0 {
		fmt.Fprintln(c.Stdio.Err, "No node has reported yet; an agent does so when it starts (`twill node`).")
		return nil
	}
	t := terminal.NewTable(c.Stdio.Out, "NODE", "AGENT", "LAST REPORT", "VERSION", "UP", "DOWN", "ERROR", "ERRORS OF THE HOST")
	bad := false
	for _, n := range nodes {
		state := "ready"
		switch {
		case !n.Alive:
			state = "silent"
		case !n.Last.Ready:
			state = "not ready"
		}
		bad = bad || state != "ready"
		of := func(s string) string { return strconv.Itoa(n.Endpoints[s]) }
		t.Row(n.Node, state, n.Last.Time, n.Last.Version, of(status.Up), of(status.Down), of(status.Error), strings.Join(n.Last.Errors, "; "))
	}
	t.Flush()
	if bad {
		return console.Exit{Code: 1, Msg: ""}
	}
	return nil
}
