package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// bed is a host between a client, which has the addresses of all other endpoints, and the host's workloads, which share a namespace.
type bed struct {
	client, host, workload *netns.Handle
	links, ends            *rtnl.Handle // of host, of workload
	agent                  *process     // nil: a script does it, or nothing
	dir                    string       // of the agent
}

// newBed makes one without workloads.
func newBed(ctx context.Context) (b *bed, err error) {
	b = &bed{}
	defer func() {
		if err != nil {
			b.close()
			b = nil
		}
	}()
	for _, ns := range []**netns.Handle{&b.client, &b.host, &b.workload} {
		if *ns, err = netns.New(); err != nil {
			return b, err
		}
		if err := quiet(*ns); err != nil {
			return b, err
		}
	}
	if b.links, err = rtnl.OpenIn(b.host); err != nil {
		return b, err
	}
	if b.ends, err = rtnl.OpenIn(b.workload); err != nil {
		return b, err
	}
	if err := b.links.AddVeth(rtnl.Veth{Name: "up0", Peer: "eth0", PeerIn: b.client}); err != nil {
		return b, err
	}
	for _, c := range []struct {
		in    *netns.Handle
		words string
	}{
		{b.host, "addr add 172.31.0.1/30 dev up0"},
		{b.client, "addr add 172.31.0.2/30 dev eth0"},
		{b.host, "link set up0 up"},
		{b.client, "link set eth0 up"},
		{b.host, "route add default via 172.31.0.2"},
		{b.client, "route add default via 172.31.0.1"},
		{b.client, "route add local 10.66.0.0/15 dev lo"},
		{b.client, "route add local 10.68.0.0/14 dev lo"},
		{b.client, "route add local 10.100.0.0/16 dev lo"},
		{b.workload, "route add local 10.65.0.0/16 dev lo"},
	} {
		if out, err := c.in.Output(ctx, "ip", strings.Fields(c.words)...); err != nil {
			return b, fmt.Errorf("ip %s: %w: %s", c.words, err, out)
		}
	}
	return b, nil
}

// quiet is a namespace that forwards IPv4 and says nothing by itself.
func quiet(ns *netns.Handle) error {
	if err := ns.Do(func() error {
		for path, value := range map[string]string{
			"ipv6/conf/all/disable_ipv6": "1", "ipv6/conf/default/disable_ipv6": "1", "ipv4/ip_forward": "1",
			"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	h, err := rtnl.OpenIn(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.Link("lo")
	if err != nil {
		return err
	}
	return h.SetUp(lo.Index, true)
}

// plug makes the link of a workload. Its own route leads to the host; the way from the host to it is the agent's, see route.
func (b *bed) plug(i int) error {
	name := linkOf(i)
	if err := b.links.AddVeth(rtnl.Veth{Name: name, Peer: name, PeerIn: b.workload, PeerMAC: macOf(i)}); err != nil {
		return err
	}
	host, err := b.links.Link(name)
	if err != nil {
		return err
	}
	end, err := b.ends.Link(name)
	if err != nil {
		return err
	}
	for _, f := range []func() error{
		func() error { return b.ends.SetUp(end.Index, true) },
		func() error { return b.links.SetUp(host.Index, true) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	if first, err := b.ends.Links(); err != nil || len(first) > 2 { // lo and the first workload's
		return err // one way back is enough for all, since they share a namespace
	}
	gateway := netip.MustParseAddr("169.254.1.1")
	if err := b.ends.SetNeighbour(rtnl.Neighbour{Link: end.Index, Addr: gateway, MAC: host.MAC, Permanent: true}); err != nil {
		return err
	}
	return b.ends.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: end.Index, Gateway: gateway, OnLink: true, Protocol: 4})
}

// route leads to a workload where no agent does.
func (b *bed) route(i int, addr string) error {
	host, err := b.links.Link(linkOf(i))
	if err != nil {
		return err
	}
	to := netip.MustParseAddr(addr)
	if err := b.links.SetNeighbour(rtnl.Neighbour{Link: host.Index, Addr: to, MAC: macOf(i), Permanent: true}); err != nil {
		return err
	}
	return b.links.AddRoute(rtnl.Route{Dst: netip.PrefixFrom(to, 32), Link: host.Index, Protocol: 4})
}

// unplug removes the link of a workload.
func (b *bed) unplug(i int) error {
	l, err := b.links.Link(linkOf(i))
	if err != nil {
		return err
	}
	return b.links.DeleteLink(l.Index)
}

// startAgent starts an agent of a node in the host's namespace.
func (b *bed) startAgent(t Twill, e *etcd, node, rendering string) (err error) {
	if b.dir, err = os.MkdirTemp(e.dir, "agent-"); err != nil {
		return err
	}
	b.agent, err = t.start(b.host, []string{"TWILL_POLICYRENDERING=" + rendering}, "agent", "--node", node, "--etcd", e.address,
		"--socket", filepath.Join(b.dir, "agent.sock"), "--data-dir", b.dir, "--log-level", "warning")
	return err
}

// run runs a program in the host's namespace with a text as its input.
func (b *bed) run(text, program string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	if err := b.host.Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w: %.400s", program, strings.Join(args, " "), err, &out)
	}
	return nil
}

// died is an error if an agent should run and does not.
func (b *bed) died() error {
	if b.agent == nil {
		return nil
	}
	return b.agent.died()
}

// close ends the agent and takes all namespaces away.
func (b *bed) close() {
	if b.agent != nil {
		b.agent.kill()
	}
	for _, h := range []*rtnl.Handle{b.links, b.ends} {
		if h != nil {
			h.Close()
		}
	}
	for _, ns := range []*netns.Handle{b.client, b.host, b.workload} {
		_ = ns.Close() // nil is closed, too
	}
}
