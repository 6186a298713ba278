package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/bgp"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/diags"
	"github.com/twillnet/twill/internal/cli/packaging"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/node"
)

func (c *command) nodeCmd() *cobra.Command {
	var o nodeOptions
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Run what this host needs, supervised",
		Long: `Run the daemons of one host as child processes: the agent, BGP, BFD, and with no
etcd named, an embedded member of its own. With DATASTORE_TYPE=kubernetes the
host is a node of that cluster, and no etcd has a part in it. A child that dies is
started again with back-off; SIGHUP, SIGUSR1 and SIGUSR2 are passed on; SIGTERM
stops all in order.

The address by which other nodes know this one is found among the interfaces, and
written into the Node if that has none: "twill node address" shows which. What
somebody wrote there stays, unless --ip says otherwise.

With --bgp=bird a BIRD 2 speaks BGP (apt install bird2), and "twill confd" keeps
its configuration; with --bgp=off nothing does: for a host whose routes something
else brings. On a host that runs, each may be had in place of another.

With --bgp=reflector the host reflects routes between others and does nothing
else: there is no agent, and no workload can be on it. With bird-reflector it does
so by BIRD, which takes a tenth of the time and of the memory where hundreds of
hosts have thousands of routes.`,
		Example: `  twill node                                    # one host, its own datastore
  twill node --etcd http://192.0.2.10:2379      # a host of a cluster
  twill node --etcd-listen http://0.0.0.0:2379  # a datastore for others too
  twill node --ip-autodetection-method interface=bond0 --ip6 autodetect
  twill node --log-dir /var/log/twill           # also write log files
  twill node --dhcp --etcd http://192.0.2.10:2379 # a compute host of OpenStack
  twill node --etcd-proxy --etcd https://192.0.2.10:2379,https://192.0.2.11:2379
  DATASTORE_TYPE=kubernetes twill node          # a node of a Kubernetes cluster
  twill node --bgp=reflector --cluster-id 244.0.0.1 --etcd http://192.0.2.10:2379`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(o.local.Read(), o.readDHCP()); err != nil {
				return err
			}
			return c.runNode(cmd.Context(), o)
		},
	}
	cmd.AddCommand(bgp.NodeStatus(c.Env), c.nodeAddressCmd(), diags.Command(c.Env), c.installCmd(), c.uninstallCmd(), c.cleanupCmd(), c.bootCmd(), packaging.Command(c.Env))
	o.local.AddNodeFlags(cmd)
	cmd.Flags().StringVar(&o.bgp, "bgp", conn.Speaker(), "on: run the BGP speaker; bird: run BIRD instead; reflector: be a dedicated route reflector; bird-reflector: be one by BIRD; off: no BGP (TWILL_BGP)")
	_ = cmd.RegisterFlagCompletionFunc("bgp", cobra.FixedCompletions(speakers, cobra.ShellCompDirectiveNoFileComp)) // there is such a flag
	o.registration.AddFlags(cmd.Flags())
	o.addrs.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&o.addrs.as, "as", os.Getenv("AS"), "this node's AS number, written into its Node; default: what is there (AS)")
	cmd.Flags().StringVar(&o.dhcpText, "dhcp", os.Getenv("TWILL_DHCP"), "true: also run twill dhcp, for virtual machines of OpenStack, in the region of FELIX_OPENSTACKREGION (TWILL_DHCP)")
	cmd.Flags().Lookup("dhcp").NoOptDefVal = "true"
	o.proxy.addFlag(cmd)
	cmd.Flags().StringVar(&o.logDir, "log-dir", os.Getenv("TWILL_LOG_DIR"), "directory of log files, one for each daemon: NAME/current, and ten older ones of 10 MB; standard error has all of it as well; default: no files (TWILL_LOG_DIR)")
	cmd.Flags().StringSliceVar(&o.listen, "etcd-listen", nil, "run an embedded etcd member that listens on these URLs, too; whoever reaches them needs no password")
	return cmd
}

// nodeOptions are the options of `twill node`.
type nodeOptions struct {
	local        conn.Local
	bgp          string
	listen       []string // where our own etcd listens; empty: there is none
	alone        bool     // our own etcd is for nobody but this host
	addrs        addressing
	dhcpText     string // what is said of dhcp
	dhcp         bool   // also serve DHCP to machines of OpenStack
	proxy        etcdProxy
	logDir       string // of files with what daemons write; empty: none
	registration bgp.Registration
}

// runNode runs the daemons of a host until the context ends.
func (c *command) runNode(ctx context.Context, o nodeOptions) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	cfg := o.local.Direct(&c.Conn)
	own, err := o.ownStore(cfg, c.Conn.Endpoints)
	if err != nil {
		return err
	}
	if err := cmp.Or(o.check(), conn.NotOfALab("node", cfg.Endpoints)); err != nil {
		return err
	}
	keeps, err := o.addrs.config()
	if err != nil {
		return err
	}
	if _, err := node.FirstPools(); err != nil {
		return console.Usage("node: %v", err)
	}
	if err := conn.KeepName(o.local.Dir, o.local.Node); err != nil {
		return fmt.Errorf("write down this node's name: %w", err)
	}
	log, files, err := c.logFiles(o.logDir)
	if err != nil {
		return err
	}
	if files != nil {
		defer files.Close()
	}
	if cfg, err = o.proxy.begin(ctx, cfg, o.listen, log); err != nil {
		return err
	}
	keeps.Node, keeps.Log = o.local.Node, log
	fill := unlessFrozen(o.local, node.Fill(log))
	if !own && o.reflector() { // which has no need of it where it is another's
		fill = nil
	}
	if o.local.Kubernetes() {
		keeps.NodeRef = "" // a Node is that of Kubernetes
	}
	go node.Prepare(ctx, o.local.Follow(cfg), keeps, reads(o.local.Settings.Relay), fill)
	children := o.children(own, storeArgs(cfg))
	return node.Run(ctx, node.Config{Children: children, Signals: signals, Stdout: c.Stdio.Out, Stderr: c.Stdio.Err, Files: files, Log: log})
}

// unlessFrozen is fill of a datastore that is not locked, and was not lost, as far as this host can know. An API server is not lost while its cluster goes on.
func unlessFrozen(l conn.Local, fill func(context.Context, datastore.Store) error) func(context.Context, datastore.Store) error {
	if l.Kubernetes() {
		return node.UnlessFrozen(nil, fill)
	}
	return node.UnlessFrozen(func() (bool, error) {
		if daemon.Remains(l.Dir, l.Node) {
			return true, nil
		}
		return node.RoutesRemain(cmp.Or(l.Settings.Routes.Protocol, kernel.RouteProtocolAgent))
	}, fill)
}

// logFiles are those of daemons, and the log of their supervisor, which has a file among them. Without a directory there are none.
func (c *command) logFiles(dir string) (*slog.Logger, *node.LogFiles, error) {
	if dir == "" {
		return c.Log(), nil, nil
	}
	files, err := node.NewLogFiles(dir, c.Log())
	if err != nil {
		return nil, nil, fmt.Errorf("--log-dir: %w", err)
	}
	return slog.New(slog.NewTextHandler(files.Tee("node", c.Err), &slog.HandlerOptions{Level: &c.Level})), files, nil
}

// ownStore says whether the host has an etcd member of its own. If no datastore is named, that one is it, and it listens
// where clients look by default, whatever else was asked for. With Kubernetes there is none.
func (o *nodeOptions) ownStore(cfg datastore.Config, flag string) (bool, error) {
	if cfg.Type == "kubernetes" {
		if len(o.listen) > 0 || flag != "" {
			return false, console.Usage("node: DATASTORE_TYPE is kubernetes: its API server is the datastore, and no etcd has a part in it; leave out --etcd and --etcd-listen")
		}
		if o.dhcp {
			return false, console.Usage("node: --dhcp is for virtual machines of OpenStack, and Kubernetes has no place for Neutron's subnets; set DATASTORE_TYPE=etcdv3")
		}
		return false, nil
	}
	if named := flag != "" || os.Getenv(conn.EndpointsFileVariable) != "" || cfg.DiscoverySRV != "" || len(o.local.Settings.Etcd.Endpoints) > 0; named {
		return len(o.listen) > 0, nil
	}
	o.alone = len(o.listen) == 0
	if !slices.Contains(o.listen, conn.DefaultEndpoint) {
		o.listen = append([]string{conn.DefaultEndpoint}, o.listen...)
	}
	return true, nil
}

func (o *nodeOptions) reflector() bool { return o.bgp == "reflector" || o.bgp == "bird-reflector" }

// readDHCP reads what a flag or the environment says of DHCP.
func (o *nodeOptions) readDHCP() (err error) {
	if o.dhcpText == "" {
		return nil
	}
	if o.dhcp, err = strconv.ParseBool(o.dhcpText); err != nil {
		return console.Usage("node: --dhcp=%s (TWILL_DHCP): want true or false", o.dhcpText)
	}
	return nil
}

func (o *nodeOptions) check() error {
	if _, known := speakersOf[o.bgp]; !known {
		return console.Usage("node: --bgp=%s: want one of %s", o.bgp, strings.Join(speakers, ", "))
	}
	if o.reflector() && o.alone {
		return console.Usage("node: --bgp=%s: a datastore of its own would know no peers; name the others' with --etcd, or have it here for them with --etcd-listen", o.bgp)
	}
	if o.dhcp && o.reflector() {
		return console.Usage("node: --dhcp is for hosts with virtual machines, and with --bgp=%s this one has none", o.bgp)
	}
	return o.registration.Check(o.reflector())
}

// children are what the host runs, in the order of their start.
func (o *nodeOptions) children(own bool, store []string) []node.Child {
	// TWILL_NODENAME, which wins over FELIX_FELIXHOSTNAME and NODENAME: all children have the name that was found here.
	env := []string{"NODENAME=" + o.local.Node, "TWILL_NODENAME=" + o.local.Node}
	if o.local.File != "" {
		env = append(env, "TWILL_CONFIG="+o.local.File)
	}
	env = append(env, o.proxy.env()...)
	var out []node.Child
	if own {
		out = append(out, ownStoreChild(o.local.Dir, o.listen))
	}
	if p := o.proxy.child; p != nil {
		p.Env = env
		out = append(out, *p)
	}
	if !o.reflector() {
		out = append(out, node.Child{Name: "agent", Args: append([]string{"agent"}, store...), Env: env})
	}
	if o.dhcp {
		out = append(out, node.Child{Name: "dhcp", Args: append([]string{"dhcp"}, store...), Env: env})
	}
	for _, s := range speakersOf[o.bgp] {
		if s.Env = env; s.Name == "bfd" {
			s.Args = []string{s.Name, "--data-dir", o.local.Dir}
		} else if s.Name != "bird" {
			s.Args = append([]string{s.Name, "--data-dir", o.local.Dir}, store...)
		}
		if o.reflector() && s.Name != "bfd" {
			s.Args = append(slices.Clone(s.Args), "--reflector")
		}
		if s.Name == "bgp" || s.Name == "confd" {
			s.Args = append(s.Args, o.registration.Args()...)
		}
		out = append(out, s)
	}
	return out
}

// ownStoreChild is an embedded member of etcd.
func ownStoreChild(dir string, listen []string) node.Child {
	args := []string{"etcd", "--data-dir", filepath.Join(dir, "etcd")}
	for _, l := range listen {
		args = append(args, "--listen", l)
	}
	return node.Child{Name: "etcd", Args: args}
}

// speakersOf are the daemons that speak BGP, by --bgp. BIRD is killed: asked to end, it would tell peers to forget its
// routes. It has a BFD of its own.
var speakersOf = map[string][]node.Child{
	"on":             {{Name: "bfd"}, {Name: "bgp"}},
	"bird":           {{Name: "confd"}, {Name: "bird", Args: []string{"bird"}, Quit: syscall.SIGKILL}},
	"reflector":      {{Name: "bfd"}, {Name: "bgp"}},
	"bird-reflector": {{Name: "confd"}, {Name: "bird", Args: []string{"bird"}, Quit: syscall.SIGKILL}},
	"off":            nil,
}

// speakers are the values of --bgp.
var speakers = []string{"on", "bird", "reflector", "bird-reflector", "off"}

// storeArgs hand the connection on to a child; what no flag says, such as a password, goes by the environment, or the file of settings.
func storeArgs(cfg datastore.Config) []string {
	var args []string
	if len(cfg.Endpoints) > 0 && cfg.Type != "kubernetes" {
		args = []string{"--etcd=" + strings.Join(cfg.Endpoints, ",")}
	}
	for _, f := range []struct{ name, value string }{
		{"--kubeconfig", cfg.Kubeconfig},
		{"--context", cfg.Context},
		{"--etcd-user", cfg.Username},
		{"--etcd-cert", cfg.CertFile},
		{"--etcd-key", cfg.KeyFile},
		{"--etcd-ca", cfg.CAFile},
	} {
		if f.value != "" {
			args = append(args, f.name+"="+f.value)
		}
	}
	return args
}
