package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	bgpdaemon "github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/hostfacts"
)

func (c *command) doctorCmd() *cobra.Command {
	var l local
	var output, agentAt, bgpAt, bgp string
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

Exit code: 0 nothing fails, 1 something does, 2 usage.`,
		Example: "  twill doctor\n  twill doctor -o wide      # the fixes in a column\n  twill doctor -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"", "wide", "json", "yaml"}, output) {
				return usage("-o %s: want wide, json or yaml, or nothing", output)
			}
			if err := l.read(); err != nil {
				return err
			}
			f := &doctor.Facts{Node: l.node, BGP: doctor.BGP{Mode: bgp}}
			cfg := l.store(&c.conn)
			cfg.DialTimeout = c.conn.timeout
			wanted := readStore(cmd.Context(), cfg, f)
			askAgent(cmd.Context(), agentAt, f)
			askSpeaker(cmd.Context(), bgpAt, f, wanted)
			if err := readHost(cmd.Context(), f, l.settings.InterfacePrefixes); err != nil {
				return fmt.Errorf("read this host (are you root?): %w", err)
			}
			found := doctor.Judge(f)
			if done, err := c.document(found, output); !done {
				printFindings(c.stdio.Out, found, output == "wide")
			} else if err != nil {
				return err
			}
			if doctor.Failed(found) {
				return exit{1, ""}
			}
			return nil
		},
	}
	l.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&agentAt, "socket", agentSocket(), "the agent's socket (TWILL_SOCKET)")
	f.StringVar(&bgpAt, "bgp-socket", bgpSocket(), "the BGP daemon's socket (TWILL_BGP_SOCKET)")
	f.StringVar(&bgp, "bgp", cmp.Or(os.Getenv("TWILL_BGP"), "on"), "who is to speak BGP here, as \"twill node\" is told: on, bird or off (TWILL_BGP)")
	f.StringVarP(&output, "output", "o", "", "wide, json or yaml")
	return cmd
}

const askFor = 5 * time.Second // each daemon

// readStore fills in how the datastore is, and what it says of this node.
func readStore(ctx context.Context, cfg etcdstore.Config, f *doctor.Facts) plan.Plan {
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	store, err := etcdstore.New(ctx, cfg)
	if err != nil {
		f.Store.Err = err.Error()
		return plan.Plan{}
	}
	defer store.Close()
	members, _ := store.Members(ctx) // the read below says what is wrong
	for _, m := range members {
		member := doctor.Member{Endpoint: m.Endpoint, Version: m.Version}
		if m.Err != nil {
			member.Err = m.Err.Error()
		}
		f.Store.Members = append(f.Store.Members, member)
	}
	begin := time.Now()
	u, err := store.Get(ctx, api.KeyPrefix(api.KindClusterInformation, "")+"default")
	f.Store.Latency = time.Since(begin)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		f.Store.Err = err.Error()
		return plan.Plan{}
	}
	if s, err := api.DecodeStored(u); err == nil {
		info, ok := s.Resource.(*api.ClusterInformation)
		f.Store.Frozen = ok && info.Spec.DatastoreReady != nil && !*info.Spec.DatastoreReady
	}
	world := plan.New()
	for _, prefix := range plan.Prefixes() {
		snap, err := store.List(ctx, prefix)
		if err != nil {
			f.Store.Err = err.Error()
			return plan.Plan{}
		}
		for _, u := range snap.Items {
			world.Update(u)
			f.Book.Update(u)
			addPool(f, u)
		}
	}
	return world.Plan(f.Node)
}

func addPool(f *doctor.Facts, u api.Update) {
	s, err := api.DecodeStored(u)
	if err != nil {
		return
	}
	if pool, ok := s.Resource.(*api.IPPool); ok {
		if p, err := netip.ParsePrefix(pool.Spec.CIDR); err == nil {
			f.Pools = append(f.Pools, p.Masked())
		}
	}
}

func askAgent(ctx context.Context, socket string, f *doctor.Facts) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	r, err := agent.Ask(ctx, socket)
	if err != nil {
		f.Agent.Err = explainAgent(socket, err).Error()
		return
	}
	f.Agent.NotReady = r.NotReady
	for _, w := range r.Wrong {
		f.Agent.Wrong = append(f.Agent.Wrong, w.Where+": "+w.Reason)
	}
}

func askSpeaker(ctx context.Context, socket string, f *doctor.Facts, wanted plan.Plan) {
	f.BGP.Listen = wanted.Listen
	for _, s := range wanted.Sessions {
		f.BGP.Wanted = append(f.BGP.Wanted, netip.AddrPortFrom(s.Peer, s.Port))
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	r, err := bgpdaemon.Report(ctx, socket)
	if err != nil {
		f.BGP.Err = explainSpeaker(socket, err).Error()
		return
	}
	f.BGP.Off, f.BGP.Problems = r.Off, r.Problems
	for _, s := range r.Sessions {
		f.BGP.Sessions = append(f.BGP.Sessions, doctor.Session{Peer: s.Peer, Node: s.PeerNode, State: s.State, Up: s.State == speaker.Established, Why: s.Why})
	}
}

// readHost fills in what the host says, and then what other hosts do.
func readHost(ctx context.Context, f *doctor.Facts, prefixes []string) error {
	h, err := hostfacts.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	f.Kernel = hostfacts.Kernel(func() error {
		_, err := agent.Boot(ctx, agent.Config{Node: f.Node})
		return err
	})
	if err := h.Read(f, prefixes); err != nil {
		return err
	}
	h.Listeners(f)
	h.Ask(f)
	return nil
}

func printFindings(w io.Writer, found []doctor.Finding, wide bool) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if wide {
		fmt.Fprintln(t, "CHECK\tVERDICT\tFOUND\tFIX")
	} else {
		fmt.Fprintln(t, "CHECK\tVERDICT\tFOUND")
	}
	count := map[doctor.Verdict]int{}
	for _, f := range found {
		count[f.Verdict]++
		switch {
		case wide:
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Check, f.Verdict, f.Found, f.Fix)
		case f.Fix == "":
			fmt.Fprintf(t, "%s\t%s\t%s\n", f.Check, f.Verdict, f.Found)
		default:
			fmt.Fprintf(t, "%s\t%s\t%s\n\t\tfix: %s\n", f.Check, f.Verdict, f.Found, f.Fix)
		}
	}
	t.Flush()
	fmt.Fprintf(w, "%d ok, %d warnings, %d failures\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
}
