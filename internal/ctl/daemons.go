package ctl

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/node"
)

func (c *command) nodeCmd() *cobra.Command {
	var o nodeOptions
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run what this host needs, supervised",
		Long: `Run the daemons of one host as child processes: the agent, BGP, BFD, and with no
etcd named, an embedded member of its own. A child that dies is started again with
back-off; SIGHUP, SIGUSR1 and SIGUSR2 are passed on; SIGTERM stops all in order.

The address by which other nodes know this one is found among the interfaces, and
written into the Node if that has none: "twill node address" shows which. What
somebody wrote there stays, unless --ip says otherwise.

With --bgp=bird a BIRD 2 speaks BGP (apt install bird2), and "twill confd" keeps
its configuration; with --bgp=off nothing does: for a host whose routes something
else brings. On a host that runs, each may be had in place of another.

With --bgp=reflector the host reflects routes between others and does nothing
else: there is no agent, and no workload can be on it.`,
		Example: `  twill node                                    # one host, its own datastore
  twill node --etcd http://192.0.2.10:2379      # a host of a cluster
  twill node --etcd-listen http://0.0.0.0:2379  # a datastore for others too
  twill node --ip-autodetection-method interface=bond0 --ip6 autodetect
  twill node --bgp=reflector --cluster-id 244.0.0.1 --etcd http://192.0.2.10:2379`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.runNode(cmd.Context(), o)
		},
	}
	cmd.AddCommand(c.nodeStatusCmd(), c.nodeAddressCmd(), c.installCmd(), c.uninstallCmd(), c.bootCmd())
	cmd.Flags().StringVar(&o.name, "node", "", "name of this node in the datastore (NODENAME; default the host's name)")
	cmd.Flags().StringVar(&o.dir, "data-dir", "/var/lib/twill", "where this host keeps its data")
	cmd.Flags().StringVar(&o.bgp, "bgp", cmp.Or(os.Getenv("TWILL_BGP"), "on"), "on: speak BGP; bird: have BIRD speak it; reflector: reflect and do nothing else; off: none of it (TWILL_BGP)")
	o.registration.addFlags(cmd.Flags())
	o.addrs.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.addrs.as, "as", os.Getenv("AS"), "this node's AS number, written into its Node; default: what is there (AS)")
	cmd.Flags().StringSliceVar(&o.listen, "etcd-listen", nil, "run an embedded etcd member that listens on these URLs")
	return cmd
}

// nodeOptions are what `twill node` is told.
type nodeOptions struct {
	name, dir, bgp string
	listen         []string // empty: there is no etcd of our own, unless none is named
	addrs          addressing
	registration   registration
}

// runNode runs the daemons of a host until the context ends.
func (c *command) runNode(ctx context.Context, o nodeOptions) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	own := c.conn.endpoints == "" && os.Getenv("ETCD_ENDPOINTS") == "" || len(o.listen) > 0
	if err := o.check(own); err != nil {
		return err
	}
	keeps, err := o.addrs.config()
	if err != nil {
		return err
	}
	if _, err := firstPools(); err != nil {
		return usage("node: %v", err)
	}
	o.name = nodeName(o.name)
	if err := keepName(o.dir, o.name); err != nil {
		return fmt.Errorf("write down this node's name: %w", err)
	}
	if own && len(o.listen) == 0 {
		o.listen = []string{defaultEndpoint}
	}
	cfg := c.conn.config()
	if own && c.conn.endpoints == "" {
		cfg.Endpoints = o.listen[:1]
	}
	keeps.Node, keeps.Log = o.name, c.log()
	fill := own || !o.reflector() // which has no need of it where it is another's
	go prepare(ctx, cfg, keeps, fill)
	children := o.children(own, c.conn.args(own, o.listen))
	return node.Run(ctx, node.Config{Children: children, Signals: signals, Stdout: c.stdio.Out, Stderr: c.stdio.Err, Log: c.log()})
}

func (o *nodeOptions) reflector() bool { return o.bgp == "reflector" }

func (o *nodeOptions) check(own bool) error {
	if _, known := speakersOf[o.bgp]; !known {
		return usage("node: --bgp=%s: want on, bird, reflector or off", o.bgp)
	}
	if o.reflector() && own && len(o.listen) == 0 {
		return usage("node: --bgp=reflector: a datastore of its own would know no peers; name the others' with --etcd, or have it here for them with --etcd-listen")
	}
	return o.registration.check(o.reflector())
}

// children are what the host runs, in the order of their start.
func (o *nodeOptions) children(own bool, store []string) []node.Child {
	env := []string{"NODENAME=" + o.name}
	var out []node.Child
	if own {
		out = append(out, member(o.dir, o.listen))
	}
	if !o.reflector() {
		out = append(out, node.Child{Name: "agent", Args: append([]string{"agent"}, store...), Env: env})
	}
	for _, s := range speakersOf[o.bgp] {
		if s.Env = env; s.Name == "bfd" {
			s.Args = []string{s.Name, "--data-dir", o.dir}
		} else if s.Name != "bird" {
			s.Args = append([]string{s.Name, "--data-dir", o.dir}, store...)
		}
		if o.reflector() && s.Name == "bgp" {
			s.Args = append(append(s.Args, "--reflector"), o.registration.args()...)
		}
		out = append(out, s)
	}
	return out
}

// member is an embedded member of etcd.
func member(dir string, listen []string) node.Child {
	args := []string{"etcd", "--data-dir", filepath.Join(dir, "etcd")}
	for _, l := range listen {
		args = append(args, "--listen", l)
	}
	return node.Child{Name: "etcd", Args: args}
}

// speakersOf are the daemons that speak BGP, by --bgp. BIRD is killed: asked to end, it would tell peers to forget its
// routes. It has a BFD of its own.
var speakersOf = map[string][]node.Child{
	"on":        {{Name: "bfd"}, {Name: "bgp"}},
	"bird":      {{Name: "confd"}, {Name: "bird", Args: []string{"bird"}, Quit: syscall.SIGKILL}},
	"reflector": {{Name: "bfd"}, {Name: "bgp"}},
	"off":       nil,
}

// args hands the connection on to a child; the password goes by environment.
func (c *connection) args(own bool, listen []string) []string {
	if own && c.endpoints == "" {
		return []string{"--etcd", listen[0]}
	}
	var args []string
	for flag, v := range map[string]string{"--etcd": c.endpoints, "--etcd-user": c.user, "--etcd-cert": c.cert, "--etcd-key": c.key, "--etcd-ca": c.ca} {
		if v != "" {
			args = append(args, fmt.Sprintf("%s=%s", flag, v))
		}
	}
	return args
}
