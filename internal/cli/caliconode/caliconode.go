// Package caliconode is the binary under the names of upstream's daemons: calico-node with its arguments, calico-felix, calico-typha,
// kube-controllers, and calico with the names of components.
//
// In: arguments as upstream's manifests, units and probes have them, and the environment. Out: the daemon of ours that does it, or
// a probe's answer, and upstream's exit codes: 0 done, 1 not. Nothing is decided here (decision 057).
package caliconode

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/node"
	first "github.com/twillnet/twill/internal/node"
)

// daemons are the names of one daemon each, and the command of ours that it is.
var daemons = map[string][]string{
	"calico-felix": {"agent"}, "felix": {"agent"}, "calico-typha": {"relay"}, "typha": {"relay"},
	"kube-controllers": {"kube-controllers"}, "calico-kube-controllers": {"kube-controllers"}, "confd": {"confd"},
}

// Called reports whether the program was called by one of these names. As a plugin of CNI, which has two of them too, it is called
// with CNI_COMMAND, and that comes first.
func Called(argv0 string) bool {
	name := filepath.Base(argv0)
	return slices.Contains([]string{"calico-node", "calico", "calico-ipam"}, name) || name != "confd" && daemons[name] != nil
}

// FelixConfig is the file of settings that upstream's agent reads.
var FelixConfig = "/etc/calico/felix.cfg"

// ConfdDir is where templates of users are, unless -confd-confdir says where.
const ConfdDir = "/etc/calico/confd"

// Twill runs one of twill's own commands, or calicoctl's, and returns its exit code.
type Twill func(ctx context.Context, e *conn.Env, args []string) int

// command is one call.
type command struct {
	*conn.Env
	twill, calicoctl Twill
}

// Run runs what a name and its arguments mean, and returns the exit code.
func Run(ctx context.Context, e *conn.Env, twill, calicoctl Twill, args []string) int {
	if _, err := os.Stat(FelixConfig); err == nil && os.Getenv("TWILL_CONFIG") == "" {
		_ = os.Setenv("TWILL_CONFIG", FelixConfig) // a name without = or NUL can be set
	}
	if os.Getenv(conn.OrderVariable) == "" {
		_ = os.Setenv(conn.OrderVariable, conn.LocalLast) // as above
	}
	c := &command{e, twill, calicoctl}
	idle, err := prepare()
	if err != nil {
		return c.refuse("%v", err)
	}
	for _, what := range idle {
		fmt.Fprintln(c.Err, "warning: "+what)
	}
	name, rest := filepath.Base(args[0]), args[1:]
	switch {
	case name == "calico-node":
		return c.node(ctx, rest)
	case name == "calico" && len(rest) > 0:
		return c.component(ctx, rest)
	case daemons[name] != nil && len(rest) > 0 && isVersion(rest[0]):
		return c.version()
	case daemons[name] != nil:
		return c.called(ctx, name, rest)
	case len(rest) > 0 && isVersion(rest[0]):
		return c.version()
	case name == "calico-ipam" && len(rest) > 0 && slices.Contains([]string{"-upgrade", "--upgrade"}, rest[0]):
		return c.upgrade()
	}
	return c.refuse("%s: a runtime calls it as a plugin, with CNI_COMMAND; twill cni install puts it where runtimes look", name)
}

func isVersion(arg string) bool { return slices.Contains([]string{"-v", "--version", "version"}, arg) }

func (c *command) version() int {
	fmt.Fprintln(c.Out, conn.Version)
	return 0
}

func (c *command) refuse(format string, args ...any) int {
	fmt.Fprintf(c.Out, format+"\n", args...)
	return 1
}

// called runs a daemon that was called by its own name. The file of settings of upstream's agent or fan-out proxy is read; any other argument has no effect, and is named.
func (c *command) called(ctx context.Context, name string, args []string) int {
	felix, relay := slices.Equal(daemons[name], daemons["felix"]), slices.Equal(daemons[name], daemons["typha"])
	file := ""
	for len(args) > 0 {
		flag, value, given := strings.Cut(args[0], "=")
		used := 1
		if !given && len(args) > 1 && !strings.HasPrefix(args[1], "-") {
			value, used = args[1], 2
		}
		switch named := value != "" && slices.Contains([]string{"-c", "--config-file"}, flag); {
		case relay && named:
			file = value
		case felix && named:
			if err := os.Setenv("TWILL_CONFIG", value); err != nil {
				return c.refuse("%s: %v", flag, err)
			}
		default:
			fmt.Fprintf(c.Err, "warning: %s: %s has no effect\n", name, strings.Join(args[:used], " "))
		}
		args = args[used:]
	}
	if relay {
		flags, idle, err := typha(file)
		if err != nil {
			return c.refuse("%v", err)
		}
		for _, what := range idle {
			fmt.Fprintln(c.Err, "warning: "+what)
		}
		return c.daemon(ctx, name, flags...)
	}
	if name == "confd" {
		return c.daemon(ctx, name, "--confdir="+ConfdDir)
	}
	return c.daemon(ctx, name)
}

// daemon runs a daemon.
func (c *command) daemon(ctx context.Context, name string, more ...string) int {
	return c.twill(ctx, c.Env, append(slices.Clone(daemons[name]), more...))
}

// component is calico component NAME, calico cni install, calico ctl.
func (c *command) component(ctx context.Context, args []string) int {
	switch what := args[0]; {
	case isVersion(what):
		return c.version()
	case what == "ctl":
		return c.calicoctl(ctx, c.Env, args[1:])
	case what == "cni" && len(args) > 1 && args[1] == "install":
		return c.twill(ctx, c.Env, []string{"cni", "install"})
	case what == "component" && len(args) > 1 && daemons[args[1]] != nil:
		return c.called(ctx, args[1], args[2:])
	case what == "component" && len(args) > 2 && args[1] == "node":
		return c.nodePart(ctx, args[2], args[3:])
	}
	return c.refuse("calico %s: Twill has no such part; there are component felix, typha, kube-controllers, confd and node, cni install and ctl", strings.Join(args, " "))
}

// nodePart is calico component node NAME: the words that calico-node has as flags.
func (c *command) nodePart(ctx context.Context, part string, more []string) int {
	switch part {
	case "health":
		return c.node(ctx, more)
	case "status":
		return c.node(ctx, []string{"-status-reporter"})
	}
	return c.node(ctx, append([]string{"-" + part}, more...))
}

// flags are calico-node's.
type flags struct {
	set                                                        *flag.FlagSet
	felixLive, birdLive, bird6Live, felixReady, birdReady, six *bool
	threshold                                                  *time.Duration
	once, keep                                                 *bool
	confDir                                                    *string
	flows                                                      *int
	bestEffort                                                 *bool
}

// actions are what one call does, by flag: in their order the first that is given is done.
var actions = []string{"v", "felix", "bpf", "init", "startup", "shutdown", "monitor-addresses", "complete-startup", "confd", "allocate-tunnel-addrs", "monitor-token", "node-services", "hostpath-init", "status-reporter", "show-status"}

func newFlags(w io.Writer) flags {
	s := flag.NewFlagSet("calico-node", flag.ContinueOnError)
	s.SetOutput(w)
	no := func(name, help string) *bool { return s.Bool(name, false, help) }
	for _, a := range actions {
		no(a, meanings[a])
	}
	no("allocate-tunnel-addrs-run-once", "end at once: the agent assigns them")
	return flags{
		set: s, felixLive: no("felix-live", "is the agent alive?"), felixReady: no("felix-ready", "is the agent ready?"),
		birdLive: no("bird-live", "is BGP alive?"), bird6Live: no("bird6-live", "is BGP alive?"), birdReady: no("bird-ready", "is BGP ready?"), six: no("bird6-ready", "is BGP ready?"),
		threshold: s.Duration("threshold-time", 30*time.Second, "accepted: how long a restart may take is the speaker's to know"),
		once:      no("confd-run-once", "write BIRD's configuration once"), keep: no("confd-keep-stage-file", "keep a configuration that BIRD refuses"),
		confDir: s.String("confd-confdir", "", "templates of users are below it, in conf.d and templates, and BIRD's configuration is config/bird.cfg"), flows: s.Int("flows", 0, "print so many flows; less than 0: go on"),
		bestEffort: no("best-effort", "with -init: a failure is no error"),
	}
}

// meanings say what the flags do here.
var meanings = map[string]string{
	"v": "print the version", "felix": "run the agent", "bpf": "refused: there is no BPF dataplane", "init": "close this host until its agent has programmed it",
	"startup": "make the datastore ready and write this node's addresses", "shutdown": "nothing: policy stays in force", "monitor-addresses": "keep this node's addresses in its Node",
	"complete-startup": "wait until the agent is ready, say in Kubernetes that the node has a network, and go on until it is stopped; an error if the agent is not ready within five minutes", "confd": "keep BIRD's configuration, and render templates of users", "allocate-tunnel-addrs": "wait: the agent assigns them",
	"monitor-token": "wait: the plugin needs no token", "node-services": "keep this node's addresses: the rest is the agent's and the speaker's", "hostpath-init": "nothing: the daemons run as root",
	"status-reporter": "wait: the speaker writes CalicoNodeStatus", "show-status": "print what runs on this host",
}

// node is calico-node.
func (c *command) node(ctx context.Context, args []string) int {
	f := newFlags(c.Out)
	if err := f.set.Parse(args); err != nil {
		return c.refuse("%v", err)
	}
	given := map[string]bool{}
	f.set.Visit(func(g *flag.Flag) { given[g.Name] = g.Value.String() != "false" })
	alone := 0
	for _, a := range []string{"v", "felix", "startup", "confd", "monitor-addresses"} {
		if given[a] {
			alone++
		}
	}
	if alone > 1 {
		return c.refuse("More than one incompatible argument provided")
	}
	if *f.felixLive || *f.felixReady || *f.birdLive || *f.bird6Live || *f.birdReady || *f.six {
		return c.probe(ctx, f)
	}
	for _, a := range actions {
		if given[a] {
			return c.act(ctx, a, f)
		}
	}
	if *f.flows != 0 {
		return c.flows(ctx, *f.flows)
	}
	fmt.Fprintln(c.Out, "No valid options provided. Usage:")
	f.set.PrintDefaults()
	return 1
}

// act does what one flag says.
func (c *command) act(ctx context.Context, action string, f flags) int {
	switch action {
	case "v":
		return c.version()
	case "felix":
		return c.daemon(ctx, "felix")
	case "confd":
		return c.confd(ctx, f)
	case "bpf":
		return c.refuse("calico-node -bpf: Twill has no BPF dataplane; nft list table inet twill shows what is in the kernel, twill why says why a packet passes")
	case "init":
		if code := c.twill(ctx, c.Env, []string{"node", "boot"}); !*f.bestEffort {
			return code
		}
	case "startup":
		if level := os.Getenv("CALICO_STARTUP_LOGLEVEL"); level != "" {
			if err := c.SetLevel(level); err != nil {
				return c.refuse("CALICO_STARTUP_LOGLEVEL is %q: %v", level, err)
			}
		}
		return c.ended(node.Register(ctx, c.Env, func(l conn.Local) (first.Startup, error) { return startup(ctx, c.Env, l) }))
	case "complete-startup":
		return c.ended(c.completeStartup(ctx))
	case "monitor-addresses", "node-services":
		return c.ended(node.KeepAddresses(ctx, c.Env))
	case "show-status":
		return c.calicoctl(ctx, c.Env, []string{"node", "status"})
	case "allocate-tunnel-addrs", "monitor-token", "status-reporter":
		if once := f.set.Lookup("allocate-tunnel-addrs-run-once"); once.Value.String() == "true" {
			break
		}
		c.Log().Info("calico-node -"+action+": another daemon does this; waiting for the signal to end", "why", meanings[action])
		<-ctx.Done()
	}
	return 0 // there is nothing to do
}

func (c *command) ended(err error) int {
	if err != nil {
		return c.refuse("%v", err)
	}
	return 0
}

func (c *command) confd(ctx context.Context, f flags) int {
	var args []string
	if *f.once {
		args = append(args, "--onetime")
	}
	if *f.keep {
		args = append(args, "--keep-stage-file")
	}
	if dir := *f.confDir; dir != "" {
		args = append(args, "--output="+filepath.Join(dir, "config", "bird.cfg"))
	}
	args = append(args, "--confdir="+cmp.Or(*f.confDir, ConfdDir))
	return c.daemon(ctx, "confd", args...)
}

func (c *command) flows(ctx context.Context, n int) int {
	args := []string{"flows", "--follow"}
	if n > 0 {
		args = []string{"flows", "--last", strconv.Itoa(n)}
	}
	return c.twill(ctx, c.Env, args)
}

// probe answers kubelet's questions, all that are asked.
func (c *command) probe(ctx context.Context, f flags) int {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	l, err := node.Local()
	if err != nil {
		return c.refuse("calico/node check error: %v", err)
	}
	at := healthOf(l)
	if *f.felixLive && !answers(ctx, at, "liveness") {
		return c.refuse("calico/node is not ready: Felix is not live: http://%s/liveness", at)
	}
	if *f.felixReady && !answers(ctx, at, "readiness") {
		return c.refuse("calico/node is not ready: felix is not ready: http://%s/readiness", at)
	}
	if !(*f.birdReady || *f.six || *f.birdLive || *f.bird6Live) || conn.Speaker() == "off" {
		return 0
	}
	if report, err := daemon.Report(ctx, conn.BgpSocket()); err != nil {
		return c.refuse("calico/node is not ready: BIRD is not live: %v", err)
	} else if why := nodestatus.NotReady(report); len(why) > 0 && (*f.birdReady || *f.six) {
		return c.refuse("calico/node is not ready: BIRD is not ready: %s", strings.Join(why, "; "))
	}
	return 0
}

// probeTime is how long a probe waits.
const probeTime = 5 * time.Second

// answers reports whether the agent answers a probe with 200.
func answers(ctx context.Context, at, what string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/"+what, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close() // only the status counts
	return res.StatusCode == http.StatusOK
}
