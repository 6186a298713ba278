package fib_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/probe"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

const gateway = "169.254.1.1"

// pair is a host with a driver, and its workload, 10.65.0.5 behind wl1, which has the gateway's address as the agent gives it.
type pair struct {
	*rig
	pod *netnstest.NS
}

func newPair(t *testing.T) pair {
	host, pod := netnstest.New(t), netnstest.New(t)
	host.VethTo(pod, "wl1", "eth0")
	host.Veth("eth0", "peer")
	host.Forward()
	for _, is := range []string{"rp_filter", "route_localnet"} {
		host.Sysctl("ipv4/conf/wl1/"+is, "1")
	}
	host.Run("ip", "addr", "add", gateway+"/32", "dev", "wl1", "scope", "link")
	host.Route("203.0.113.0/24 dev peer")
	pod.Addr("eth0", "10.65.0.5/32")
	pod.Route(gateway + " dev eth0 scope link")
	pod.Route("default via " + gateway + " dev eth0")
	p := pair{newRig(t, host), pod}
	p.tbl.Merge(both("wl1"))
	p.untilUp("wl1")
	return p
}

// TestWorkloadsKnowTheirHostByItsOwnAddress: whatever the protocol, and so that who asked takes the answer. The gateway's address is the same on each host.
func TestWorkloadsKnowTheirHostByItsOwnAddress(t *testing.T) {
	for _, tt := range []struct {
		name  string
		addrs []string // of the host: interface, address, and perhaps a scope
		want  string
	}{
		{"an address", []string{"eth0 192.0.2.1/24"}, "192.0.2.1"},
		{"several: the kernel takes the first", []string{"eth0 192.0.2.1/24", "eth0 192.0.2.2/24", "gone 198.51.100.1/24"}, "192.0.2.1"},
		{"one on lo, as with BGP on links without one", []string{"lo 198.51.100.1/32", "eth0 169.254.9.9/16 scope link"}, "198.51.100.1"},
		{"one on an interface that is down", []string{"gone 192.0.2.1/24"}, "192.0.2.1"},
		{"none that is good elsewhere: the gateway's, since none at all would be worse", []string{"eth0 192.0.2.1/24 scope link"}, gateway},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t)
			p.ns.Run("ip", "link", "add", "gone", "type", "veth", "peer", "name", "gonep")
			for _, a := range tt.addrs {
				dev, addr, _ := strings.Cut(a, " ")
				p.ns.Run("ip", append(append([]string{"addr", "add"}, strings.Fields(addr)...), "dev", dev)...)
			}
			p.until("lo", func(ifmon.Link, bool) bool { return p.sources() > 0 == (tt.want != gateway) })
			p.apply()
			p.wantSource(tt.want)
		})
	}
}

// sources counts the interfaces of which the monitor has seen an address that may be a source.
func (p pair) sources() (n int) {
	for _, l := range p.now {
		if l.Source {
			n++
		}
	}
	return n
}

// wantSource has the host and its workload talk, each by any address of its own, and wants the host's to be this one.
func (p pair) wantSource(want string) {
	p.t.Helper()
	host := netip.MustParseAddr(want)
	pod := netip.MustParseAddrPort("10.65.0.5:9000")
	if got := p.answerOverUDP(host); got != want {
		p.t.Errorf("a server of the host that is bound to no address answers over UDP from %s, want %s", got, want)
	}
	l, err := p.pod.ListenTCP(pod)
	if err != nil {
		p.t.Fatal(err)
	}
	defer l.Close()
	c, err := p.ns.DialTCP(netip.AddrPort{}, pod, time.Now().Add(netnstest.Patience))
	if err != nil {
		p.t.Fatal(err)
	}
	if got := netip.MustParseAddrPort(c.LocalAddr().String()).Addr(); got != host {
		p.t.Errorf("TCP of the host is from %s, want %s", got, want)
	}
	for _, try := range []netnstest.Probe{
		{Proto: "tcp", From: p.pod, To: p.ns, Dst: netip.AddrPortFrom(host, 8080)},
		{Proto: "icmp", From: p.pod, To: p.ns, Dst: netip.AddrPortFrom(host, 0)},
		{Proto: "icmp", From: p.ns, To: p.pod, Dst: pod},
	} {
		try.WantReach(p.t)
	}
	var hop probe.Hop
	p.pod.Do(func() { hop, err = probe.Trace(netip.MustParseAddr("203.0.113.1"), 64, 1, 0, netnstest.Patience) })
	if err != nil || hop.From != host {
		p.t.Errorf("an error of the host's comes from %s, %v; want %s", hop.From, err, want)
	}
}

// answerOverUDP is from where a server of the host answers which is bound to no address, if the workload asks it at one.
func (p pair) answerOverUDP(at netip.Addr) string {
	p.t.Helper()
	server, err := p.ns.ListenUDP(netip.MustParseAddrPort("0.0.0.0:9000"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := p.pod.ListenUDP(netip.MustParseAddrPort("10.65.0.5:9001"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, c := range []net.PacketConn{server, client} {
		_ = c.SetReadDeadline(time.Now().Add(netnstest.Patience))
	}
	_, err = client.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 9000)))
	word := make([]byte, 1)
	var from net.Addr
	if err == nil {
		_, from, err = server.ReadFrom(word)
	}
	if err == nil {
		_, err = server.WriteTo([]byte("!"), from)
	}
	if err == nil {
		_, from, err = client.ReadFrom(word)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return netip.MustParseAddrPort(from.String()).Addr().String()
}

// TestARouteIsThereWhileItsScopeChanges: by one step in the kernel, also where an earlier agent left it, or somebody else changed it.
func TestARouteIsThereWhileItsScopeChanges(t *testing.T) {
	const global, link = "10.65.0.5 dev wl1 proto 80", "10.65.0.5 dev wl1 proto 80 scope link"
	p := newPair(t)
	p.ns.Route(link)
	p.ns.Route("2001:db8::5 dev wl1 proto 80")
	p.ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	w, err := p.ns.Rtnl().Watch(rtnl.WatchRoutes)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	agent := *p.rig // a new one
	agent.tbl = fib.New(p.ns.Rtnl())
	p.rig = &agent
	p.resync()
	p.tbl.Merge(both("wl1"))
	for _, l := range p.now {
		p.tbl.Links([]ifmon.Change{{Link: l}})
	}
	for _, tt := range []struct {
		name, do string
		sources  int
		want     string
	}{
		{"an earlier agent's", "true", 1, global},
		{"the last address goes", "ip addr del 192.0.2.1/24 dev eth0", 0, link},
		{"one comes", "ip addr add 198.51.100.1/32 dev lo", 1, global},
		{"another comes", "ip addr add 192.0.2.1/24 dev eth0", 2, global},
		{"the first goes", "ip addr del 198.51.100.1/32 dev lo", 1, global},
		{"somebody changes it", "ip route replace 10.65.0.5 dev wl1 proto 80 scope link", 1, global},
		{"an interface goes with the last one", "ip link del eth0", 0, link},
	} {
		p.ns.Run("sh", "-c", tt.do)
		p.until("lo", func(ifmon.Link, bool) bool { return p.sources() == tt.sources })
		p.resync()
		p.tbl.Withdraw(t.Context())
		p.apply()
		if got := p.ns.Run("ip", "-N", "route", "show", "10.65.0.5"); strings.Count(got, "\n") != 1 {
			t.Errorf("%s: routes are\n%s", tt.name, got)
		}
		p.ns.WantRoute(t, tt.want)
		if is := strings.Contains(p.ns.Run("ip", "route", "show", "10.65.0.5"), "scope link"); is != (tt.want == link) {
			t.Errorf("%s: of scope link: %t", tt.name, is)
		}
		if out, err := p.tbl.Differences(t.Context()); err != nil || len(out) > 0 {
			t.Errorf("%s: differences %q, %v", tt.name, out, err)
		}
	}
	p.ns.Run("ip", "route", "add", "198.51.100.0/24", "dev", "wl1", "proto", "17") // the last event
	for last := false; !last; {
		events, err := w.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			last = last || e.Route.Protocol == 17
			if e.Gone && e.Route.Protocol == 80 {
				t.Errorf("%s was away", e.Route.Dst)
			}
		}
	}
}

// TestARouteOfAnotherScopeIsADifference, which a read-back says.
func TestARouteOfAnotherScopeIsADifference(t *testing.T) {
	p := newPair(t)
	p.ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	p.until("eth0", func(l ifmon.Link, _ bool) bool { return l.Source })
	p.apply()
	p.ns.Run("ip", "route", "replace", "10.65.0.5", "dev", "wl1", "proto", "80", "scope", "link")
	if got, err := p.tbl.Differences(t.Context()); err != nil || len(got) != 1 || got[0] != "route 10.65.0.5/32 differs: of scope link, want global" {
		t.Errorf("differences: %q, %v", got, err)
	}
}

// TestARouteThroughAWorkloadSaysThatItIsOnTheLink: by a route of global scope the kernel takes no gateway, unless it is told so.
func TestARouteThroughAWorkloadSaysThatItIsOnTheLink(t *testing.T) {
	p := newPair(t)
	p.ns.Run("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0")
	p.until("eth0", func(l ifmon.Link, _ bool) bool { return l.Source })
	p.apply()
	hop, err := p.ns.Rtnl().Lookup(netip.MustParseAddr("10.65.0.5"))
	if err != nil || hop != (rtnl.Hop{Link: p.now["wl1"].Index, OnLink: true}) {
		t.Errorf("the hop is %+v, %v", hop, err)
	}
	r := rtnl.Route{Dst: netip.MustParsePrefix("10.123.0.0/26"), Link: hop.Link, Gateway: netip.MustParseAddr("10.65.0.5"), Protocol: 186}
	if err := p.ns.Rtnl().AddRoute(r); err == nil || errors.Is(err, rtnl.ErrExists) {
		t.Errorf("the kernel takes a gateway behind a route of global scope: %v", err)
	}
	r.OnLink = hop.OnLink
	if err := p.ns.Rtnl().AddRoute(r); err != nil {
		t.Error(err)
	}
}

// TestARouteReturnsWithItsSource: the kernel deletes a route of IPv4 with the address from which it says to send, and takes that from one of IPv6, without an event.
func TestARouteReturnsWithItsSource(t *testing.T) {
	p := newPair(t)
	p.ns.Addr("eth0", "192.0.2.1/24", "192.0.2.2/24", "2001:db8:1::1/64")
	four, six := netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8:1::1/64")
	has := func(a netip.Prefix, want bool) {
		p.until("eth0", func(l ifmon.Link, _ bool) bool { return slices.Contains(l.Addrs, a) == want })
	}
	has(four, true)
	has(six, true)
	p.tbl.Merge(settings(intent.RouteSettings{Source: [2]netip.Addr{four.Addr(), six.Addr()}}))
	p.resync()
	p.apply()
	for _, back := range []string{"the address is away for a moment", "the agent has seen that it is away"} {
		for _, a := range []netip.Prefix{four, six} {
			p.ns.Run("ip", "addr", "del", a.String(), "dev", "eth0")
			has(a, false)
			if back != "the address is away for a moment" {
				p.tbl.Withdraw(t.Context())
				p.apply()
			}
			p.ns.Run("ip", "addr", "add", a.String(), "dev", "eth0", "nodad")
			has(a, true)
		}
		p.tbl.Withdraw(t.Context())
		for dst, o := range p.apply() {
			if o.Err != nil {
				t.Errorf("%s: %s: %v", back, dst, o.Err)
			}
		}
		p.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 src 192.0.2.2")
		p.ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80 src 2001:db8:1::1 metric 1024")
	}
}
