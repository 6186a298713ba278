package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/dataplane/flows"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/terminal"
	"github.com/twillnet/twill/internal/verdict/world"
)

// flowOptions say which flows are shown.
type flowOptions struct {
	socket          string
	output          console.Output
	last            int
	follow, allowed bool
	staged, offline bool
	logged          bool
	from, to        string
	policy          string
}

func (c *command) flowsCmd() *cobra.Command {
	var o flowOptions
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show what policy drops on this host, and which rule did it",
		Long: `Show the packets that rules dropped on this host: when, from whom to whom, and
which rule of which policy in which tier decided. The last 1000 are kept by the
agent; --follow goes on with what comes.

Flows that policy allows are shown with --allowed, if the agent is configured to
report them: FelixConfiguration flowLogsLocalReporter: Enabled. Of those, one
packet is shown for each endpoint whose policy the flow passes.

Where endpoints have staged policies, a line says what these would have decided,
if that is something else; --staged shows only such flows.

Rules with action Log decide nothing: --log shows the packets that they reported,
and no others. The agent keeps the last 1000 of these, too.

Addresses of other hosts' workloads get their names from the datastore, if it
answers.

Exit code: 0 shown, 1 the agent does not answer, 2 usage.`,
		Example: `  twill flows
  twill flows --follow --to demo/web
  twill flows --policy networkpolicy/demo/web-in -o json
  twill flows --staged --allowed
  twill flows --log --follow`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.flows(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", conn.AgentSocket(), "the agent's socket (TWILL_SOCKET)")
	o.output.AddFlag(cmd)
	f.IntVar(&o.last, "last", 100, "how many of those that were before, of what is asked for")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes")
	f.BoolVar(&o.allowed, "allowed", false, "also what policy allows")
	f.BoolVar(&o.staged, "staged", false, "only where staged policies would decide otherwise")
	f.BoolVar(&o.logged, "log", false, "what rules with action Log reported, instead of what was decided")
	f.StringVar(&o.from, "from", "", "only from this one: namespace/workload or an address")
	f.StringVar(&o.to, "to", "", "only to this one")
	f.StringVar(&o.policy, "policy", "", "only what this policy decided or logged: kind/namespace/name, or a part of it")
	f.BoolVar(&o.offline, "no-names", false, "do not ask the datastore for names")
	cmd.MarkFlagsMutuallyExclusive("log", "allowed")
	cmd.MarkFlagsMutuallyExclusive("log", "staged")
	return cmd
}

func (c *command) flows(ctx context.Context, o flowOptions) error {
	names := func(netip.Addr) string { return "" }
	if !o.offline {
		names = c.namesOf(ctx)
	}
	out := &console.Stream{To: c.Stdio, As: o.output, Name: ".policy"}
	var latest time.Time
	var kept []flows.Flow // what was before: all of it is looked through, and the last of what is wanted shown
	err := agent.Flows(ctx, o.socket, agent.WhichFlows{Last: flows.Kept, Logged: o.logged}, func(f flows.Flow) error {
		latest = f.Time
		if f.From, f.To = cmp.Or(f.From, names(f.Src)), cmp.Or(f.To, names(f.Dst)); o.wants(f) {
			kept = append(kept, f)
		}
		return nil
	})
	kept = kept[len(kept)-min(max(o.last, 0), len(kept)):]
	for i := 0; i < len(kept) && err == nil; i++ {
		err = showFlow(out, kept[i])
	}
	if err == nil && len(kept) == 0 && !o.follow && o.output.IsTable() {
		none := "no flows: nothing was dropped, or nothing of what was asked for"
		if o.logged {
			none = "no flows: no rule with action Log matched a packet, or none of what was asked for"
		}
		fmt.Fprintln(c.Stdio.Err, none)
	}
	if err == nil && o.follow {
		err = agent.Flows(ctx, o.socket, agent.WhichFlows{Last: flows.Kept, Follow: true, Logged: o.logged}, func(f flows.Flow) error {
			if f.From, f.To = cmp.Or(f.From, names(f.Src)), cmp.Or(f.To, names(f.Dst)); !f.Time.After(latest) || !o.wants(f) {
				return nil
			}
			return showFlow(out, f)
		})
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return conn.ExplainAgent(o.socket, err)
}

func showFlow(to *console.Stream, f flows.Flow) error {
	var v any = f
	if f.Logged {
		v = struct {
			flows.Flow
			Allowed *bool `json:"allowed,omitempty"` // hides that of Flow, which says nothing
		}{Flow: f}
	}
	return to.Row(v, flowText(f))
}

// wants reports whether a flow is one of those that were asked for.
func (o flowOptions) wants(f flows.Flow) bool {
	is := func(want, name string, a netip.Addr) bool { return want == "" || want == name || want == a.String() }
	return (o.allowed || !f.Allowed || o.staged) && (!o.staged || f.Staged != nil) && is(o.from, f.From, f.Src) && is(o.to, f.To, f.Dst) &&
		(strings.Contains(strings.ToLower(f.Policy), strings.ToLower(o.policy)) || f.Staged != nil && strings.Contains(strings.ToLower(f.Staged.Policy), strings.ToLower(o.policy)))
}

// namesOf finds who has an address in the whole cluster; nobody, if the datastore does not answer.
func (c *command) namesOf(ctx context.Context) func(netip.Addr) string {
	var us []api.Update
	_ = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error { // names are a service, no more
		for _, plural := range []string{"nodes/", "workloadendpoints/"} {
			snap, err := s.List(ctx, api.ResourcesPrefix+plural)
			if err != nil {
				return err
			}
			us = append(us, snap.Items...)
		}
		return nil
	})
	w, known := world.New(us), map[netip.Addr]string{}
	return func(a netip.Addr) string {
		name, asked := known[a]
		if !asked {
			if p, err := w.Resolve(a.String()); err == nil && p.Node != "" {
				name = p.Name
			}
			known[a] = name
		}
		return name
	}
}

// flowText is a flow in one line; what staged policies would have decided is a second one.
func flowText(f flows.Flow) string {
	var b strings.Builder
	if f.Missed > 0 {
		b.WriteString(terminal.Warn.Render(fmt.Sprintf("%d flows came faster than they were read, and are not shown", f.Missed)) + "\n")
	}
	act, prefix := terminal.Deny.Render("DENY "), ""
	switch {
	case f.Logged:
		act = terminal.Warn.Render("LOG  ")
		if f.Prefix != "" {
			prefix = f.Prefix + ": "
		}
	case f.Allowed:
		act = terminal.Allow.Render("ALLOW")
	}
	fmt.Fprintf(&b, "%s  %s  %s -> %s  %s  %s", f.Time.Local().Format("15:04:05.000"), act, flowEnd(f.From, f.Src, f.SrcPort), flowEnd(f.To, f.Dst, f.DstPort),
		protocolText(f), prefix+decidedText(f.Policy, f.Dir, f.Rule, f.Tier, f.Reason, f.Endpoint))
	if f.Changed {
		b.WriteString(terminal.Faint.Render("  (the policy has changed since)"))
	}
	b.WriteByte('\n')
	if w := f.Staged; w != nil {
		would := "deny"
		if w.Allowed {
			would = "allow"
		}
		fmt.Fprintf(&b, "              %s %s\n", terminal.Warn.Render("staged policies would "+would+":"), decidedText(w.Policy, w.Dir, w.Rule, w.Tier, w.Reason, w.Endpoint))
	}
	return b.String()
}

func flowEnd(name string, a netip.Addr, port uint16) string {
	text := a.String()
	if port != 0 {
		text = netip.AddrPortFrom(a, port).String()
	}
	if name == "" {
		return text
	}
	return name + " (" + text + ")"
}

func protocolText(f flows.Flow) string {
	switch f.Proto {
	case protoICMP, protoICMPv6:
		name := map[uint8]string{protoICMP: "icmp", protoICMPv6: "icmpv6"}[f.Proto]
		return fmt.Sprintf("%s/%d/%d", name, f.ICMPType, f.ICMPCode)
	}
	for _, name := range []string{"TCP", "UDP", "SCTP", "UDPLite"} {
		if n, _ := (api.Protocol{Name: name}).Number(); n == f.Proto {
			return strings.ToLower(name)
		}
	}
	return fmt.Sprintf("protocol %d", f.Proto)
}

// decidedText says what decided.
func decidedText(policy, dir string, rule int, tier, reason, endpoint string) string {
	var b strings.Builder
	switch {
	case rule >= 0:
		fmt.Fprintf(&b, "by %s %s[%d]", refOf(policy), strings.ToLower(dir), rule)
	case policy != "":
		fmt.Fprintf(&b, "by the %s, last policy %s", reason, refOf(policy))
	default:
		b.WriteString("since " + reason)
	}
	if tier != "" {
		b.WriteString(" in tier " + tier)
	}
	if endpoint != "" {
		b.WriteString(", " + strings.ToLower(dir) + " of " + endpoint)
	}
	return b.String()
}
