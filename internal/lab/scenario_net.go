package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/lab/script"
)

// scenarioPatience is how long what should come may take, on a busy machine.
const scenarioPatience = 2 * time.Minute

// apartAddr is the store's on the hosts' link, unless it is on a host: it has a namespace of its own,
// so that each host may be cut from it, and it from all.
var apartAddr = netip.MustParseAddr("172.30.0.250")

const storeName = "store"

// storeNS is the namespace that has the store, and storeAddr its address.
func (c *scenario) storeNS() string {
	if h, is := c.Spec.host(c.storeOn); is {
		return c.Spec.hostNS(*h)
	}
	return c.Spec.Prefix + storeName
}

func (c *scenario) storeAddr() netip.Addr {
	if h, is := c.Spec.host(c.storeOn); is {
		return h.V4
	}
	return apartAddr
}

func (c *scenario) logFile(who string) string {
	return filepath.Join(c.Dir, who, "node.log")
}

// hosts makes hosts, the store, and a twill node in each host.
func (c *scenario) hosts(ctx context.Context, h script.Hosts) error {
	c.Spec.Hosts, c.storeOn = plan(h.Names...), h.Store
	for i := range c.Spec.Hosts {
		c.Spec.Hosts[i].Reflector = slices.Contains(h.Reflectors, c.Spec.Hosts[i].Name)
	}
	for _, name := range c.bird {
		if name != AllHosts && !slices.Contains(h.Names, name) {
			return fmt.Errorf("BIRD is wanted on %s, which is no host of this scenario", name)
		}
	}
	if err := errors.Join(c.makeHosts(), c.makeStore()); err != nil {
		return err
	}
	if err := c.startStore(ctx); err != nil {
		return err
	}
	if err := c.startRelay(); err != nil {
		return err
	}
	for _, h := range c.Spec.Hosts {
		if err := errors.Join(c.kept.node(h), c.startNodeOf(h.Name)); err != nil {
			return err
		}
	}
	return c.applyText(ctx, c.Spec.infrastructure())
}

// makeStore makes the store's namespace, on the hosts' link.
func (c *scenario) makeStore() error {
	if c.storeOn != "" {
		return nil
	}
	sw, err := open(c.Spec.switchNS())
	if err != nil {
		return err
	}
	defer sw.close()
	bridge, err := sw.nl.Link(switchBridge)
	if err != nil {
		return err
	}
	return c.attach(sw, bridge.Index, port{c.storeNS(), true, storeName, uplink, []netip.Prefix{netip.PrefixFrom(apartAddr, 24)}})
}

// port is a namespace's connection to a bridge of the switch.
type port struct {
	ns    string
	isNew bool
	name  string // in the switch
	link  string // in the namespace
	addrs []netip.Prefix
}

func (c *scenario) attach(sw *place, bridge int, p port) error {
	enter := open
	if p.isNew {
		enter = create
	}
	there, err := enter(p.ns)
	if err != nil {
		return err
	}
	defer there.close()
	if err := sw.nl.AddVeth(rtnl.Veth{Name: p.name, Peer: p.link, PeerIn: there.ns}); err != nil {
		return err
	}
	l, err := sw.nl.Link(p.name)
	if err != nil {
		return err
	}
	return errors.Join(sw.nl.SetMaster(l.Index, bridge), sw.up(p.name), there.up(p.link), there.address(p.link, p.addrs...))
}

// link makes a bridge in the switch with a port for each end.
func (c *scenario) link(a script.Link) error {
	c.links[a.Name] = a
	n := len(c.links)
	sw, err := open(c.Spec.switchNS())
	if err != nil {
		return err
	}
	defer sw.close()
	if err := errors.Join(sw.nl.AddBridge(a.Name), sw.up(a.Name)); err != nil {
		return err
	}
	bridge, err := sw.nl.Link(a.Name)
	if err != nil {
		return err
	}
	for i, name := range []string{a.A, a.B} {
		h, _ := c.Spec.host(name)
		err = errors.Join(err, c.attach(sw, bridge.Index, port{c.Spec.hostNS(*h), false, portName(a.Name, i), a.Name, []netip.Prefix{
			netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("172.31.%d.%d", n, i+1)), 24),
			netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fd31:0:0:%d::%d", n, i+1)), 64),
		}}))
	}
	return err
}

// portName is a link's port in the switch for its end 0 or 1.
func portName(link string, end int) string { return fmt.Sprintf("%s.%d", link, end) }

// cutOrHeal takes a connection away, without a word to those who use it, or gives it back.
func (c *scenario) cutOrHeal(a script.Cut) error {
	if a.Link != "" {
		return c.cutLink(a)
	}
	store, err := open(c.storeNS())
	if err != nil {
		return err
	}
	defer store.close()
	// What the host sends arrives; the answers are lost. That leaves the host's own kernel alone.
	h, _ := c.Spec.host(a.Host)
	lost := rtnl.Route{Dst: netip.PrefixFrom(h.V4, 32), Kind: rtnl.Blackhole, Protocol: protocolStatic}
	if a.Heal == !c.cut[a.Host] {
		return fmt.Errorf("%s is cut from the store: %v already", a.Host, !a.Heal)
	}
	c.cut[a.Host] = !a.Heal
	if a.Heal {
		return store.nl.DeleteRoute(lost)
	}
	return store.nl.AddRoute(lost)
}

// cutLink takes the carrier off a link's ends, or off a host's uplink; silently it takes the ports from their bridge.
func (c *scenario) cutLink(a script.Cut) error {
	sw, err := open(c.Spec.switchNS())
	if err != nil {
		return err
	}
	defer sw.close()
	ports, on := []string{a.Link}, switchBridge
	if l, ok := c.links[a.Link]; ok {
		ports, on = []string{portName(l.Name, 0), portName(l.Name, 1)}, l.Name
	}
	bridge, err := sw.nl.Link(on)
	if err != nil {
		return err
	}
	for _, p := range ports {
		l, e := sw.nl.Link(p)
		switch {
		case e != nil:
		case a.Heal:
			e = errors.Join(sw.nl.SetMaster(l.Index, bridge.Index), sw.nl.SetUp(l.Index, true))
		case a.Silent:
			e = sw.nl.SetMaster(l.Index, 0)
		default:
			e = sw.nl.SetUp(l.Index, false)
		}
		err = errors.Join(err, e)
	}
	return err
}

// busy keeps all processors busy, by a process for each, as other programs on a host do.
func (c *scenario) busy(ctx context.Context, a script.Busy) error {
	ctx, cancel := context.WithTimeout(ctx, a.For)
	defer cancel()
	group, each := errgroup.WithContext(ctx)
	for range runtime.NumCPU() {
		group.Go(func() error {
			cmd := exec.CommandContext(each, "/bin/sh", "-c", "while :; do :; done")
			if err := cmd.Run(); each.Err() == nil {
				return fmt.Errorf("it ended too soon: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// startStore starts the store and waits until it answers.
func (c *scenario) startStore(ctx context.Context) error {
	err := c.kept.start(ctx)
	c.runs = err == nil
	return err
}

// store waits until the store answers.
func (c *scenario) store(ctx context.Context) (datastore.Client, error) {
	return answering(ctx, c.kept.config())
}

// startRelay runs a relay beside the store, if there is to be one. Nobody waits for it: hosts try again.
func (c *scenario) startRelay() (err error) {
	if !c.relayed {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, relayName), 0o700); err != nil {
		return err
	}
	args := append([]string{"relay", "--listen", c.relayAt(), "--health", "", "--socket", "", "--drain", "1s"}, c.kept.nodeArgs()...)
	c.relay, err = launch(c.storeNS(), c.Exe, c.logFile(relayName), c.kept.hostEnv(), args)
	return err
}

// relayName is where the relay's files are.
const relayName = "relay"

func (c *scenario) relayAt() string { return "unix://" + filepath.Join(c.Dir, relayName, "relay.sock") }

// hostEnv is the environment of programs on a host: its node name, the agent's socket, and the relay.
func (c *scenario) hostEnv(name string) []string {
	env := c.kept.hostEnv()
	if c.relayed {
		env = append(env, "FELIX_TYPHAADDR="+c.relayAt())
	}
	if c.proxied {
		env = append(env, "TWILL_ETCD_PROXY=true")
	}
	return append(append(env, c.settings...),
		"NODENAME="+name, "TWILL_SOCKET="+c.agentSocket(name),
		"TWILL_BIRD_CONF="+filepath.Join(c.Dir, name, "bird.conf"), "TWILL_BIRD_SOCKET="+filepath.Join(c.Dir, name, "bird.ctl"), "TWILL_CONFDIR="+filepath.Join(c.Dir, name, "confd"))
}

// speaks says who speaks BGP for a host, in the words of `twill node --bgp`.
func (c *scenario) speaks(host string) string {
	if mode := c.bgp[host]; mode != "" {
		return mode
	}
	bird := slices.Contains(c.bird, host) || slices.Contains(c.bird, AllHosts)
	h, _ := c.Spec.host(host)
	switch {
	case h.Reflector && bird:
		return "bird-reflector"
	case h.Reflector:
		return "reflector"
	case bird:
		return "bird"
	}
	return "on"
}

// keepsBIRD reports whether BIRD speaks BGP for a host.
func (c *scenario) keepsBIRD(host string) bool { return strings.HasPrefix(c.speaks(host), "bird") }

// switchBGP has another speak BGP for a host.
func (c *scenario) switchBGP(a script.BGP) error {
	c.bgp[a.Host] = a.Mode
	if c.nodes[a.Host] == nil {
		return nil
	}
	if err := c.stopNodeOf(a.Host); err != nil {
		return err
	}
	return c.startNodeOf(a.Host)
}

func (c *scenario) agentSocket(host string) string { return filepath.Join(c.Dir, host, "agent.sock") }

// startNodeOf starts a host's node with additional environment variables.
func (c *scenario) startNodeOf(name string, env ...string) error {
	h, _ := c.Spec.host(name)
	dir := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := []string{"node", "--node", name, "--data-dir", dir, "--bgp", c.speaks(name)}
	args = append(args, c.kept.nodeArgs()...)
	if h.Reflector {
		args = append(args, "--cluster-id=244.0.0.1", fmt.Sprintf("--ip=%s/24", h.V4), fmt.Sprintf("--ip6=%s/64", h.V6))
	}
	p, err := launch(c.Spec.hostNS(*h), c.Exe, c.logFile(name), slices.Concat(c.hostEnv(name), nodeEnv, env), args)
	if err != nil {
		return err
	}
	c.nodes[name], h.PID = p, p.cmd.Process.Pid
	return nil
}

func (c *scenario) stopNodeOf(name string) error {
	p, ok := c.nodes[name]
	if !ok {
		return fmt.Errorf("%s is stopped already", name)
	}
	delete(c.nodes, name)
	return p.stop()
}

func (c *scenario) stopStore() error {
	if !c.runs {
		return errors.New("the store is stopped already")
	}
	c.runs = false
	return c.kept.stop()
}

func (c *scenario) power(ctx context.Context, a script.Power) error {
	switch {
	case a.Who == storeName && !a.On:
		return c.stopStore()
	case !a.On:
		return c.stopNodeOf(a.Who)
	case a.Who == storeName && c.runs, c.nodes[a.Who] != nil:
		return fmt.Errorf("%s runs already", a.Who)
	case a.Who == storeName:
		return c.startStore(ctx)
	}
	return c.startNodeOf(a.Who, a.Env...)
}

func (c *scenario) restart(ctx context.Context, a script.Restart) error {
	switch {
	case a.Who == storeName:
		if err := c.stopStore(); err != nil {
			return err
		}
		return c.startStore(ctx)
	case a.What == "node":
		if err := c.stopNodeOf(a.Who); err != nil {
			return err
		}
		if err := c.startNodeOf(a.Who); err != nil {
			return err
		}
	default:
		old, err := c.signalDaemon(ctx, a.Who, "agent", syscall.SIGTERM)
		if err != nil {
			return err
		}
		err = until(ctx, func(context.Context) error {
			if pid := c.agent(a.Who); pid == 0 || pid == old {
				return errors.New("no other agent runs")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if frozen, err := c.frozen(ctx); frozen || err != nil || !c.knows(a.Who) {
		return err
	}
	return c.waitAgent(ctx, a.Who)
}

// agent is the process id of a host's agent, 0 if none runs.
func (c *scenario) agent(host string) int { return c.daemon(host, "agent") }

// daemon finds a child of a host's node; 0 if there is none.
func (c *scenario) daemon(host, what string) int {
	h, _ := c.Spec.host(host)
	if what == "bgp" && c.keepsBIRD(host) {
		what = "bird"
	}
	if c.nodes[host] == nil {
		return 0
	}
	return childOf(h.PID, what)
}

func (c *scenario) signalDaemon(ctx context.Context, host, what string, sig syscall.Signal) (pid int, err error) {
	err = until(ctx, func(context.Context) error {
		if pid = c.daemon(host, what); pid == 0 {
			return fmt.Errorf("no %s runs on %s", what, host)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return pid, syscall.Kill(pid, sig)
}

func (c *scenario) kill(ctx context.Context, a script.Kill) error {
	sig := syscall.SIGTERM
	if a.Hard || a.What == "bgp" && c.keepsBIRD(a.Host) { // as twill node ends BIRD
		sig = syscall.SIGKILL
	}
	pid, err := c.signalDaemon(ctx, a.Host, a.What, sig)
	if err != nil {
		return err
	}
	return until(ctx, func(context.Context) error {
		if c.daemon(a.Host, a.What) == pid {
			return fmt.Errorf("%s of %s, pid %d, lives", a.What, a.Host, pid)
		}
		return nil
	})
}
