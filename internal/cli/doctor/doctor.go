package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	bgpdaemon "github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/cli/caliconode"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/paths"
	"github.com/twillnet/twill/internal/cni"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/doctor/takeover"
	"github.com/twillnet/twill/internal/hostfacts"
	"github.com/twillnet/twill/internal/leftovers"
	"github.com/twillnet/twill/internal/node"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/terminal"
)

// doctorFlags are those of `twill doctor`.
type doctorFlags struct {
	conn.Local
	output                   console.Output
	agentAt, bgpAt, bgp, fix string
	force                    bool

	takeOver                                                         bool
	felixConfig, nodeEnv, confDir, binDir, secrets, secretsNamespace string // with takeOver: where to look
}

func (c *command) doctorCmd() *cobra.Command {
	var d doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps this host from working, and say what to do",
		Long: `Look at this host, its datastore and the way to other nodes, and say of each check
whether it is ok, may become bad (warn) or is bad (fail), what was found, and what
to do about it. Nothing is changed. What goes out on the wire: ARP or neighbour
probes for this node's addresses, echo requests to ten other nodes at most, and
attempts to connect to peers that have no session.

The checks:
  ` + strings.Join(doctor.About(), "\n  ") + `

With --fix leftovers, remove what an upstream agent left in the kernel: its chains in
iptables (legacy and nft), its tables of nftables, IP sets, routes and tunnels. It is
refused while that agent runs, and while ours does not guard workloads.

With --take-over, say what happens when Twill takes the place of Calico's agent here,
before, while or after that is done: what blocks it, what changes and when, what stays
the same, and the next steps, also those of the way back. It reads the datastore, the
kernel, the environment and settings of Calico's agent, /etc/twill/node.env, and networks
of container runtimes. Nothing is changed, and nothing sent to hosts but the datastore's:
  ` + strings.Join(takeover.About(), "\n  ") + `

Exit code: 0 nothing fails or blocks, 1 something does, 2 usage.`,
		Example: "  twill doctor\n  twill doctor -o wide      # the fixes in a column\n  twill doctor -o json\n  twill doctor --take-over  # may Calico's agent be replaced here?\n  " + doctor.FixLeftovers,
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.fix != "" && d.fix != "leftovers" {
				return console.Usage("--fix %s: there is only --fix leftovers", d.fix)
			}
			if d.takeOver {
				return c.takeOver(cmd, &d)
			}
			f, err := c.facts(cmd.Context(), &d)
			if err != nil {
				return err
			}
			if d.fix != "" {
				return c.fixLeftovers(cmd.Context(), &d, f)
			}
			found := doctor.Judge(f)
			err = c.Answer(d.output, console.Answer{Doc: found, Name: ".check", Table: func(w io.Writer, wide bool) error {
				printFindings(w, found, wide)
				return nil
			}})
			if err != nil {
				return err
			}
			if doctor.Failed(found) {
				return console.Exit{Code: 1, Msg: ""}
			}
			return nil
		},
	}
	d.addFlags(cmd)
	return cmd
}

func (d *doctorFlags) addFlags(cmd *cobra.Command) {
	d.AddFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&d.agentAt, "socket", "", "the agent's socket (TWILL_SOCKET)")
	f.StringVar(&d.bgpAt, "bgp-socket", "", "the BGP daemon's socket (TWILL_BGP_SOCKET)")
	f.StringVar(&d.bgp, "bgp", "", "what speaks BGP on this host, as in \"twill node --bgp\": on, bird, reflector, bird-reflector or off (TWILL_BGP)")
	_ = cmd.RegisterFlagCompletionFunc("bgp", cobra.FixedCompletions([]string{"on", "bird", "reflector", "bird-reflector", "off"}, cobra.ShellCompDirectiveNoFileComp)) // there is such a flag
	f.StringVar(&d.fix, "fix", "", "what to put right: leftovers")
	f.BoolVar(&d.force, "force", false, "with --fix: also where the policy of one of the host's chains will drop what the leftovers accepted; with --take-over: that is provided for")
	f.BoolVar(&d.takeOver, "take-over", false, "say what a take-over from Calico's agent changes here, and what blocks it")
	f.StringVar(&d.felixConfig, "felix-config", caliconode.FelixConfig, "with --take-over: the file of settings of Calico's agent")
	f.StringVar(&d.nodeEnv, "env-file", node.EnvFile, "with --take-over: the environment of Twill's units, for variables that are not set here")
	f.StringVar(&d.confDir, "conf-dir", "", "with --take-over: where runtimes look for networks (CNI_NET_DIR)")
	f.StringVar(&d.binDir, "bin-dir", cni.DefaultBinDir, "with --take-over: where runtimes look for plugins")
	f.StringVar(&d.secrets, "secrets-dir", "", "with --take-over: where passwords of BGP sessions are files (TWILL_SECRETS_DIR; default "+bgpdaemon.DefaultSecrets+", and with Kubernetes none)")
	f.StringVar(&d.secretsNamespace, "secrets-namespace", "", "with --take-over and DATASTORE_TYPE=kubernetes: of the Secrets that passwords are in (NAMESPACE)")
	d.byEnvironment(f)
	cmd.MarkFlagsMutuallyExclusive("take-over", "fix")
	d.output.AddFlag(cmd)
}

// byEnvironment gives flags that nobody has set the values that variables say now, which are their defaults.
func (d *doctorFlags) byEnvironment(f *pflag.FlagSet) {
	for name, value := range map[string]string{
		"socket": conn.AgentSocket(), "bgp-socket": conn.BgpSocket(), "bgp": conn.Speaker(), "conf-dir": cmp.Or(os.Getenv("CNI_NET_DIR"), cni.DefaultConfDir),
		"secrets-dir": os.Getenv("TWILL_SECRETS_DIR"), "secrets-namespace": cmp.Or(os.Getenv("NAMESPACE"), "kube-system"),
	} {
		if flag := f.Lookup(name); !flag.Changed {
			flag.DefValue = value
			_ = flag.Value.Set(value) // any text is one
		}
	}
}

// facts gathers all that is judged.
func (c *command) facts(ctx context.Context, d *doctorFlags) (*doctor.Facts, error) {
	p, end := c.Working("looking", 0)
	defer end()
	if err := d.Read(); err != nil {
		return nil, err
	}
	f := &doctor.Facts{Node: d.Node, BGP: doctor.BGP{Mode: d.bgp}}
	cfg := d.Store(&c.Conn)
	cfg.DialTimeout = c.Conn.Timeout
	p.Now(conn.Place(cfg))
	wanted := readStore(ctx, cfg, f)
	p.Now("the daemons")
	_ = askAgent(ctx, d.agentAt, f) // the facts have it
	askSpeaker(ctx, d.bgpAt, f, wanted)
	p.Now("this host, and others from it")
	if err := readHost(ctx, f, d); err != nil {
		return nil, fmt.Errorf("read this host (are you root?): %w", err)
	}
	return f, nil
}

// fixLeftovers removes what an upstream agent left, says what, and looks again.
func (c *command) fixLeftovers(ctx context.Context, d *doctorFlags, f *doctor.Facts) error {
	if len(f.Leftovers().Lines()) == 0 {
		fmt.Fprintln(c.Stdio.Out, "Nothing of an upstream agent is left here.")
		return nil
	}
	if why := f.Obstacles(); len(why) > 0 {
		return fmt.Errorf("nothing is removed: %s", strings.Join(why, "; "))
	}
	err := leftovers.Remove(ctx, leftovers.Config{Facts: f, Force: d.force, Say: func(line string) { fmt.Fprintln(c.Stdio.Out, "removed", line) }})
	if err != nil {
		return err
	}
	again, err := c.facts(ctx, d)
	if err != nil {
		return err
	}
	if left := again.Leftovers().Lines(); len(left) > 0 {
		return fmt.Errorf("still there, or there again: %s", strings.Join(left, "; "))
	}
	return nil
}

// readStore fills in how the datastore is, and what it says of this node.
func readStore(ctx context.Context, cfg datastore.Config, f *doctor.Facts) plan.Plan {
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	store, err := stores.Open(ctx, cfg)
	if err != nil {
		f.Store.Err = err.Error()
		return plan.Plan{}
	}
	defer store.Close()
	f.Store.Members = membersOf(ctx, store)
	begin := time.Now()
	u, err := store.Get(ctx, api.KeyPrefix(api.KindClusterInformation, "")+"default")
	f.Store.Latency = time.Since(begin)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		f.Store.Err = err.Error()
		return plan.Plan{}
	}
	f.Store.Frozen, f.Store.Unsaid = readinessOf(u)
	world := plan.New()
	for _, prefix := range plan.Prefixes() {
		snap, err := store.List(ctx, prefix)
		if err != nil {
			f.Store.Err = err.Error()
			return plan.Plan{}
		}
		for _, u := range snap.Items {
			world.Update(u)
			f.Nodes.Update(u)
			f.AddPool(u)
		}
	}
	return world.Plan(f.Node)
}

// readinessOf is what the stored ClusterInformation default says: that the datastore is locked, or why it does not say that it is ready.
func readinessOf(u api.Update) (locked bool, unsaid string) {
	switch is := api.Gone.AfterUpdate(u); {
	case u.Value == nil:
		return false, "it has no ClusterInformation default"
	case is == api.Gone:
		return false, "its ClusterInformation default cannot be read"
	case is == api.Unsaid:
		return false, "its ClusterInformation default has no datastoreReady"
	default:
		return is == api.Locked, ""
	}
}

// membersOf are the servers of a store that has several.
func membersOf(ctx context.Context, s datastore.Store) (out []doctor.Member) {
	c, ok := s.(datastore.Clustered)
	if !ok {
		return nil
	}
	members, _ := c.Members(ctx) // the next read returns the error
	for _, m := range members {
		member := doctor.Member{Endpoint: m.Endpoint, Version: m.Version, Full: m.Full}
		if m.Err != nil {
			member.Err = m.Err.Error()
		}
		out = append(out, member)
	}
	return out
}

// askAgent fills in what the agent says; an error means that it does not answer.
func askAgent(ctx context.Context, socket string, f *doctor.Facts) error {
	ctx, cancel := context.WithTimeout(ctx, conn.AskFor)
	defer cancel()
	r, err := agent.Ask(ctx, socket)
	if err != nil {
		f.Agent.Err = conn.ExplainAgent(socket, err).Error()
		return err
	}
	paths.Tell(f, r)
	f.Agent.NotReady, f.Agent.Unforwarded, f.Agent.RouteProtocol = r.NotReady, r.Unforwarded, r.RouteProtocol
	for _, e := range r.Endpoints {
		if e.Status == status.Error {
			f.Agent.Errors = append(f.Agent.Errors, e.Name+": "+e.Reason)
		}
	}
	for _, w := range r.NoEffect {
		f.Agent.NoEffect = append(f.Agent.NoEffect, w.Where+": "+w.Reason)
	}
	for _, w := range r.Wrong {
		f.Agent.Wrong = append(f.Agent.Wrong, w.Where+": "+w.Reason)
	}
	return nil
}

func askSpeaker(ctx context.Context, socket string, f *doctor.Facts, wanted plan.Plan) {
	f.BGP.Listen = wanted.Listen
	for _, s := range wanted.Sessions {
		f.BGP.Wanted = append(f.BGP.Wanted, netip.AddrPortFrom(s.Peer, s.Port))
	}
	ctx, cancel := context.WithTimeout(ctx, conn.AskFor)
	defer cancel()
	r, err := bgpdaemon.Report(ctx, socket)
	if err != nil {
		f.BGP.Err = conn.ExplainSpeaker(socket, err).Error()
		return
	}
	f.BGP.Off, f.BGP.Problems = r.Off, r.Problems
	for _, s := range r.Sessions {
		f.BGP.Sessions = append(f.BGP.Sessions, doctor.Session{Peer: s.Peer, Node: s.PeerNode, State: s.State, Up: s.State == speaker.Established, Why: s.Why})
	}
}

// readHost fills in what the host says, and then what other hosts do.
func readHost(ctx context.Context, f *doctor.Facts, d *doctorFlags) error {
	h, err := hostfacts.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	if d.fix == "" {
		f.Kernel = hostfacts.Kernel(func() error {
			_, err := agent.Boot(ctx, agent.Config{Node: f.Node})
			return err
		})
	}
	if err := h.Read(f, d.Settings.InterfacePrefixes); err != nil {
		return err
	}
	h.Listeners(f)
	if d.fix == "" {
		h.Ask(f)
	}
	return nil
}

// shown is a verdict in its colour.
func shown(v doctor.Verdict) string {
	switch v {
	case doctor.OK:
		return terminal.Allow.Render(string(v))
	case doctor.Fail:
		return terminal.Deny.Render(string(v))
	}
	return terminal.Warn.Render(string(v))
}

func printFindings(w io.Writer, found []doctor.Finding, wide bool) {
	t := terminal.NewTable(w, "CHECK", "VERDICT", "FOUND")
	if wide {
		t = terminal.NewTable(w, "CHECK", "VERDICT", "FOUND", "FIX")
	}
	count := map[doctor.Verdict]int{}
	for _, f := range found {
		count[f.Verdict]++
		if wide {
			t.Row(f.Check, shown(f.Verdict), f.Found, f.Fix)
			continue
		}
		t.Row(f.Check, shown(f.Verdict), f.Found)
		if f.Fix != "" {
			t.Row("", "", "fix: "+f.Fix)
		}
	}
	t.Flush()
	fmt.Fprintf(w, "%d ok, %d warnings, %d failures\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
}
