package bgp

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
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/node"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) bgpCmd() *cobra.Command {
	var l conn.Local
	var cfg daemon.Config
	var reg Registration
	cmd := &cobra.Command{
		Use:   "bgp",
		Short: "Run the BGP speaker of this host, and show its sessions and routes",
		Long: `Speak BGP as Node, BGPConfiguration, BGPPeer, BGPFilter and IPPool resources say.
The agent's routes (protocol 80) are advertised to peers, except those that
another of them covers. Routes learned from peers are installed in the kernel with
protocol bgp (186) and metric 2048 or 2049, those with a priority with protocol 82.
Routes of others are never touched, and only sent to peers whose BGPFilters want them.
"twill node" runs it as one of its children.

It may be killed and started again at any time (graceful restart, RFC 4724):
routes stay, here and at peers that support it, until it is back or the restart
time is over.

With --reflector this host is a dedicated route reflector: it originates no route
and installs none. Its Node has a routeReflectorClusterID; --cluster-id writes it.
It needs no agent, and reads Nodes, BGP resources and IPPools alone.
"twill node --bgp=reflector" runs it.

Passwords are files: BGPPeer password.secretKeyRef {name: N, key: K} is N/K below
--secrets-dir, without the line's end. A change takes effect within five seconds.
With DATASTORE_TYPE=kubernetes, and without --secrets-dir, it is the key K of the
Secret N in --secrets-namespace, and a change takes effect at once.`,
		Example: `  twill bgp --node h1 --etcd http://192.0.2.10:2379
  twill bgp --reflector --cluster-id 244.0.0.1 --etcd http://192.0.2.10:2379
  twill bgp peers
  twill bgp why 10.65.1.0/26`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := errors.Join(l.Read(), reg.Check(cfg.Reflector)); err != nil {
				return err
			}
			cfg.Node, cfg.Dir, cfg.Version, cfg.Store, cfg.Log = l.Node, l.Dir, conn.Version, l.Followed(&c.Conn), c.LogAs(l.Settings.LogFormat)
			cfg.Level, cfg.Local, cfg.Relay = &c.Level, l.Layers, l.Settings.Relay
			cfg.Store.DialTimeout = c.Conn.Timeout
			if err := conn.NotOfALab("bgp", cfg.Store.Endpoints); err != nil {
				return err
			}
			if reg.Cluster != "" {
				go node.RegisterLater(cmd.Context(), cfg.Store, l.Node, reg.Cluster, cfg.Log)
			}
			return daemon.Run(cmd.Context(), cfg)
		},
	}
	l.AddFlags(cmd)
	addSecrets(cmd, &cfg)
	cmd.Flags().BoolVar(&cfg.Reflector, "reflector", false, "be a dedicated route reflector: originate no route, and install none")
	reg.AddFlags(cmd.Flags())
	addRouterID(cmd, &cfg.RouterID)
	cmd.Flags().StringVar(&cfg.BFD, "bfd-socket", conn.BfdSocket(), "the BFD daemon's socket; empty: there is none (TWILL_BFD_SOCKET)")
	cmd.PersistentFlags().StringVar(&cfg.Socket, "socket", conn.BgpSocket(), "the daemon's socket (TWILL_BGP_SOCKET)")
	cmd.AddCommand(c.bgpPeersCmd(&cfg.Socket), c.bgpRoutesCmd(&cfg.Socket), c.bgpWhyCmd(&cfg.Socket), c.bgpReadyCmd(&cfg.Socket))
	return cmd
}

// addSecrets adds the flags that say where passwords of sessions are.
func addSecrets(cmd *cobra.Command, cfg *daemon.Config) {
	cmd.Flags().StringVar(&cfg.Secrets, "secrets-dir", os.Getenv("TWILL_SECRETS_DIR"), "passwords are files below this directory (TWILL_SECRETS_DIR; default "+daemon.DefaultSecrets+", and with Kubernetes none)")
	cmd.Flags().StringVar(&cfg.SecretsNamespace, "secrets-namespace", cmp.Or(os.Getenv("NAMESPACE"), "kube-system"), "with DATASTORE_TYPE=kubernetes: of the Secrets that passwords are in (NAMESPACE)")
}

func addRouterID(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "router-id", os.Getenv("CALICO_ROUTER_ID"), "an IPv4 address, or hash for a number made of the node's name; default: the node's IPv4 address (CALICO_ROUTER_ID)")
}

func (c *command) bgpPeersCmd(socket *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:     "peers",
		Short:   "Show the sessions of this host, their prefixes, and why one is down",
		Long:    "Show the sessions of this host: their state and for how long, how many prefixes were\nreceived from, accepted from and advertised to each peer, and why a session is down.\nBFD is the state of its session; Off is not a fault. -o wide shows for how long, its\ninterval and detection time, and why it is not Up.\n\nExit code: 0 all are Established, 1 some are not, or no answer.",
		Example: "  twill bgp peers\n  twill bgp peers -o wide",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.askBGP(cmd.Context(), *socket, func(ctx context.Context) error {
				r, err := daemon.Report(ctx, *socket)
				if err != nil {
					return err
				}
				err = c.Answer(output, console.Answer{Doc: r, Rows: ".sessions", Name: ".peer", Table: func(w io.Writer, wide bool) error {
					printSessions(w, r, time.Now(), wide)
					return nil
				}})
				return cmp.Or(err, allUp(r))
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

// askBGP calls do with a deadline, and says of a failure what to do about it.
func (c *command) askBGP(ctx context.Context, socket string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Conn.Timeout)
	defer cancel()
	return conn.ExplainSpeaker(socket, do(ctx))
}

func (c *command) bgpReadyCmd(socket *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Exit with 0 if BGP is ready: for a readiness probe",
		Long: `Print ready, or why BGP is not: it is if the speaker has a plan from the datastore,
a graceful restart is over, and at least one session is Established if any is
configured. "twill bgp peers" shows more.

Exit code: 0 ready, 1 not ready or no answer.`,
		Example: "  twill bgp ready",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.askBGP(cmd.Context(), *socket, func(ctx context.Context) error {
				r, err := daemon.Report(ctx, *socket)
				if err != nil {
					return err
				}
				why := nodestatus.NotReady(r)
				err = c.Answer(output, console.Answer{
					Doc: map[string]any{"node": r.Node, "ready": len(why) == 0, "why": why}, Name: ".node", Kind: "node",
					Table: func(w io.Writer, _ bool) (err error) {
						if len(why) == 0 {
							_, err = fmt.Fprintln(w, "ready")
						}
						return err
					},
				})
				if len(why) > 0 {
					return errors.New(strings.Join(why, "; "))
				}
				return err
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func allUp(r speaker.Report) error {
	if slices.ContainsFunc(r.Sessions, func(s speaker.Session) bool { return s.State != speaker.Established }) {
		return console.Exit{Code: 1, Msg: ""}
	}
	return nil
}

func printSessions(w io.Writer, r speaker.Report, now time.Time, more bool) {
	if r.Off != "" {
		fmt.Fprintf(w, "node %s does not speak BGP: %s\n", r.Node, r.Off)
		return
	}
	if r.Node == "" {
		fmt.Fprintln(w, "no plan yet: the datastore has not answered, and there is none on disk")
		return
	}
	kernel := fmt.Sprintf("%d installed", r.Kernel)
	if r.Reflects {
		kernel = "none installed: a dedicated reflector"
	}
	fmt.Fprintf(w, "node %s, AS %d, router id %s: %d prefixes originated, %d learned, %s\n", r.Node, r.AS, r.RouterID, r.Advertised, r.Learned, kernel)
	if !r.Holding.IsZero() {
		fmt.Fprintf(w, "restarting: stale routes are retained until all peers have sent End-of-RIB, at most %s more\n", r.Holding.Sub(now).Round(time.Second))
	}
	if len(r.Sessions) > 0 {
		t := terminal.NewTable(w, sessionHead(more)...)
		for _, s := range r.Sessions {
			t.Row(sessionRow(s, now, more)...)
		}
		t.Flush()
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "wrong: "+p)
	}
}

func sessionHead(more bool) []string {
	head := []string{"PEER", "NODE", "FROM", "AS", "STATE", "SINCE", "RECEIVED", "ACCEPTED", "ADVERTISED", "BFD"}
	if more {
		head = append(head, "BFD SINCE", "BFD INTERVAL", "BFD DETECTION TIME", "BFD NOTE")
	}
	return append(head, "NOTE")
}

func sessionRow(s speaker.Session, now time.Time, more bool) []string {
	note := s.Why
	if s.Client {
		note = strings.TrimSuffix("client; "+note, "; ")
	}
	row := []string{
		s.Peer.String(), s.PeerNode, s.From, fmt.Sprint(s.AS), s.State, age(s.Since, now),
		fmt.Sprint(s.Received), fmt.Sprint(s.Accepted), fmt.Sprint(s.Advertised), s.BFD.State,
	}
	if more {
		interval, detection := "", ""
		if s.BFD.Detection > 0 {
			interval, detection = s.BFD.Interval.String(), s.BFD.Detection.String()
		}
		row = append(row, age(s.BFD.Since, now), interval, detection, s.BFD.Why)
	}
	return append(row, note)
}

// age is how long something has been so; empty if nobody knows.
func age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return now.Sub(since).Round(time.Second).String()
}

func (c *command) bgpRoutesCmd(socket *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:     "routes",
		Short:   "Show all paths, which are best, and whether they are installed",
		Long:    "Show all paths that this host originates or learned, which of them are best, and\nwhether the kernel has them, or why not.\n\nExit code: 0 shown, 1 no answer, 2 usage.",
		Example: "  twill bgp routes\n  twill bgp routes -o json",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.askBGP(cmd.Context(), *socket, func(ctx context.Context) error {
				routes, err := daemon.Routes(ctx, *socket)
				if err != nil {
					return err
				}
				return c.Answer(output, console.Answer{Doc: routes, Name: ".dst", Table: func(w io.Writer, _ bool) error { return printPaths(w, routes) }})
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func printPaths(w io.Writer, routes []speaker.Route) error {
	t := terminal.NewTable(w, "PREFIX", "BEST", "FROM", "NEXT HOP", "AS PATH", "COMMUNITIES", "KERNEL")
	for _, r := range routes {
		from, hop, best := "this node", "", ""
		if !r.Own {
			from, hop = r.From.String(), r.NextHop.String()
		}
		if r.Best {
			best = "*"
		}
		if r.Stale {
			best += " stale"
		}
		t.Row(r.Dst.String(), best, from, hop, strings.Trim(fmt.Sprint(r.ASPath), "[]"), strings.Join(r.Communities, " "), r.Kernel)
	}
	return t.Flush()
}

func (c *command) bgpWhyCmd(socket *string) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:     "why PREFIX",
		Short:   "Explain a prefix or address: who advertised it, to whom it is advertised, and why not",
		Long:    "Explain a prefix, or the longest match for an address: from which peers it was learned,\nwhether the kernel has it, to which peers it is advertised, and which export rule\nrejects it for the others.\n\nExit code: 0 there is a route, 3 there is none, 1 no answer.",
		Example: "  twill bgp why 10.65.1.0/26\n  twill bgp why 10.65.3.6",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return console.Usage("bgp why: want one prefix or address")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dst, err := netip.ParsePrefix(args[0])
			if a, bad := netip.ParseAddr(args[0]); bad == nil {
				dst, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
			if err != nil {
				return console.Usage("bgp why: %q: want a prefix or an address", args[0])
			}
			return c.askBGP(cmd.Context(), *socket, func(ctx context.Context) error {
				e, err := daemon.Explain(ctx, *socket, dst)
				if err != nil {
					return err
				}
				err = c.Answer(output, console.Answer{Doc: e, Name: ".asked", Table: func(w io.Writer, _ bool) error {
					printExplanation(w, e)
					return nil
				}})
				if err != nil {
					return err
				}
				if !e.Dst.IsValid() {
					return console.Exit{Code: 3, Msg: ""}
				}
				return nil
			})
		},
	}
	output.AddFlag(cmd)
	return cmd
}

func printExplanation(w io.Writer, e speaker.Explanation) {
	if !e.Dst.IsValid() {
		fmt.Fprintf(w, "%s: no route: this node originates none, and no peer advertises one\n", e.Asked)
		return
	}
	fmt.Fprintf(w, "%s", e.Dst)
	if e.Dst != e.Asked {
		fmt.Fprintf(w, " (longest match for %s)", e.Asked)
	}
	fmt.Fprintln(w)
	if e.Own != "" {
		fmt.Fprintf(w, "  %s: %s\n", cmp.Or(e.Foreign, "originated here"), e.Own)
	}
	for _, p := range e.Paths {
		if p.Own {
			continue
		}
		best := "not best"
		if p.Best {
			best = "best; kernel: " + cmp.Or(p.Kernel, "not yet installed")
		}
		path := ""
		if len(p.ASPath) > 0 {
			path = ", AS path " + strings.Trim(fmt.Sprint(p.ASPath), "[]")
		}
		if p.Priority != 0 && p.Priority != plan.DefaultPriority {
			path += fmt.Sprintf(", priority %d", p.Priority)
		}
		fmt.Fprintf(w, "  learned from %s, next hop %s%s: %s\n", p.From, p.NextHop, path, best)
	}
	for _, r := range e.OtherRoutes {
		fmt.Fprintf(w, "  the kernel also has, of another owner: %s\n", r)
	}
	for _, p := range e.Peers {
		advertised := "not advertised"
		if p.Advertised {
			advertised = "advertised"
		}
		fmt.Fprintf(w, "  %s to %s: %s\n", advertised, strings.TrimSpace(p.Peer.String()+" "+p.PeerNode), p.Why)
	}
}

// nodeStatusCmd is calicoctl's command for the same.
func (c *command) nodeStatusCmd() *cobra.Command {
	var socket string
	var output console.Output
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the BGP sessions of this host, as calicoctl does",
		Long:    "Show the BGP sessions of this host by family: peer, type, state, since when, and why one\nis not up. \"twill bgp peers\" shows more.\n\nExit code: 0 shown, 1 no answer, 2 usage.",
		Example: "  twill node status",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.askBGP(cmd.Context(), socket, func(ctx context.Context) error {
				r, err := daemon.Report(ctx, socket)
				if err != nil {
					return err
				}
				return c.Answer(output, console.Answer{Doc: r, Rows: ".sessions", Name: ".peer", Table: func(w io.Writer, _ bool) error {
					printNodeStatus(w, r)
					return nil
				}})
			})
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&socket, "socket", conn.BgpSocket(), "the BGP daemon's socket (TWILL_BGP_SOCKET)")
	return cmd
}

func printNodeStatus(w io.Writer, r speaker.Report) {
	fmt.Fprintln(w, "Calico process is running.")
	if r.Off != "" {
		fmt.Fprintf(w, "\nBGP is off: %s\n", r.Off)
		return
	}
	for _, four := range []bool{true, false} {
		name := "IPv6"
		if four {
			name = "IPv4"
		}
		fmt.Fprintf(w, "\n%s BGP status\n", name)
		t := terminal.NewTable(w)
		for _, s := range r.Sessions {
			if s.Peer.Is4() != four {
				continue
			}
			if t.Len() == 0 {
				t.Row("PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO")
			}
			state, info := "start", strings.TrimSuffix(s.State+": "+s.Why, ": ")
			if s.State == speaker.Established {
				state, info = "up", s.State
			}
			t.Row(s.Peer.String(), peerType(s), state, s.Since.Format(time.DateTime), info)
		}
		_ = t.Flush()
		if t.Len() == 0 {
			fmt.Fprintf(w, "No %s peers found.\n", name)
		}
	}
}

func peerType(s speaker.Session) string {
	if s.From == plan.FromMesh {
		return "node-to-node mesh"
	}
	return s.From
}
