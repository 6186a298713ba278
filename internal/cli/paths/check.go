package paths

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/hostfacts"
	"github.com/twillnet/twill/internal/terminal"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	check := &cobra.Command{
		Use: "check", Short: "Try what only packets can show", Args: cobra.ArbitraryArgs, RunE: console.SubcommandWanted,
		Long: "Try what only packets can show: the ways from this host, or the network of a Kubernetes cluster.",
	}
	check.AddCommand(c.pathCmd(), c.clusterCmd())
	check.AddCommand(c.probeCmds()...)
	return []*cobra.Command{check}
}

// Measured is a way to an address of another node.
type Measured struct {
	Node      string   `json:"node"`
	Address   string   `json:"address"`
	Interface string   `json:"interface"`        // of this host, by which packets leave
	MTU       int      `json:"mtu"`              // of the interface
	Largest   int      `json:"largest"`          // the largest packet that arrived, and whose answer came back; 0: the node answers to no echo
	Behind    string   `json:"behind,omitempty"` // the last router that larger packets came to
	Problems  []string `json:"problems,omitempty"`
	Fixes     []string `json:"fixes,omitempty"`
}

func (c *command) pathCmd() *cobra.Command {
	var local conn.Local
	var socket string
	var output console.Output
	cmd := &cobra.Command{
		Use:   "path [NODE…]",
		Short: "Measure how large packets may be on the way to other nodes, and say where larger ones are lost",
		Long: `Send echo requests that nobody may cut in pieces to the addresses of other nodes,
and find the largest that comes back. Where that is less than this host's interface
takes, follow a large packet router by router, and say behind which it is lost; and
which tunnels to that node send packets that are too large for the way.

Without names, ten other nodes at most are tried. Tunnels are those that this host's
agent reports; if it does not answer, the ways are measured all the same.

Exit code: 0 all ways take what the interface takes, or the node does not answer,
1 one takes less, 2 usage.`,
		Example: "  twill check path\n  twill check path h2 h3\n  twill check path h2 -o json",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			f, err := c.measure(cmd.Context(), &local, socket, nodes)
			if err != nil {
				return err
			}
			rows := measured(f)
			if err := c.Answer(output, console.Answer{Doc: rows, Name: ".node", Kind: "node", Table: func(w io.Writer, _ bool) error {
				return printMeasured(w, rows)
			}}); err != nil {
				return err
			}
			if slices.ContainsFunc(rows, func(m Measured) bool { return len(m.Problems) > 0 }) {
				return console.Exit{Code: 1}
			}
			return nil
		},
		ValidArgsFunction: show.Complete(&c.Conn).Names(api.KindNode),
	}
	local.AddNodeFlags(cmd)
	cmd.Flags().StringVar(&socket, "socket", conn.AgentSocket(), "the agent's socket (TWILL_SOCKET)")
	output.AddFlag(cmd)
	return cmd
}

// measure gathers the ways to nodes.
func (c *command) measure(ctx context.Context, local *conn.Local, socket string, nodes []string) (*doctor.Facts, error) {
	p, end := c.Working("measuring", 0)
	defer end()
	if err := local.Read(); err != nil {
		return nil, err
	}
	f := &doctor.Facts{Node: local.Node}
	if err := c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error {
		snap, err := s.List(ctx, api.KeyPrefix(api.KindNode, ""))
		for _, u := range snap.Items {
			f.Nodes.Update(u)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n == f.Node {
			return nil, console.Usage("check path: %s is this host", n)
		}
		if f.Nodes.Node(n) == nil {
			return nil, fmt.Errorf("check path: there is no Node %s", n)
		}
	}
	asked, cancel := context.WithTimeout(ctx, conn.AskFor)
	defer cancel()
	if r, err := agent.Ask(asked, socket); err == nil {
		Tell(f, r)
	}
	h, err := hostfacts.Open()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if err := h.Read(f, nil); err != nil {
		return nil, fmt.Errorf("read this host (are you root?): %w", err)
	}
	p.Now("other nodes")
	f.Paths = h.Measure(f, nodes...)
	return f, nil
}

// Tell puts what the agent reports of other hosts among the facts that are judged.
func Tell(f *doctor.Facts, r agent.Report) {
	for _, o := range r.Others {
		f.Agent.Others = append(f.Agent.Others, doctor.Other{Node: o.Node, Family: o.Family, By: o.By, Encrypted: o.Encrypted, State: o.State, Problem: o.Problem})
	}
	for _, w := range r.WireGuard {
		f.Agent.Encryption = append(f.Agent.Encryption, doctor.Encryption{Family: w.Family, Interface: w.Interface, Problem: w.Problem, Port: w.Port, AllowClear: w.AllowUnencrypted})
	}
}

func measured(f *doctor.Facts) (out []Measured) {
	for _, p := range f.Paths {
		m := Measured{Node: p.Node, Address: p.Addr.String(), Interface: p.Link, MTU: p.MTU, Largest: p.Largest}
		if p.Behind.IsValid() {
			m.Behind = p.Behind.String()
		}
		only := *f
		only.Paths = []doctor.Path{p}
		for _, found := range doctor.Paths(&only) {
			m.Problems, m.Fixes = append(m.Problems, found.Found), append(m.Fixes, found.Fix)
		}
		out = append(out, m)
	}
	return out
}

func printMeasured(w io.Writer, rows []Measured) error {
	t := terminal.NewTable(w, "NODE", "ADDRESS", "INTERFACE", "MTU", "LARGEST", "LOST BEHIND")
	for _, m := range rows {
		largest := strconv.Itoa(m.Largest)
		if m.Largest == 0 {
			largest = "no answer"
		}
		t.Row(m.Node, m.Address, m.Interface, strconv.Itoa(m.MTU), largest, cmp.Or(m.Behind, "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, m := range rows {
		for i, p := range m.Problems {
			fmt.Fprintf(w, "\n%s\n  fix: %s\n", p, m.Fixes[i])
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "There is no way to an address of another Node.")
	}
	return nil
}
