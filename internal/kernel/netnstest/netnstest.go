// Package netnstest makes network namespaces for a test, and sends packets between them.
//
// In: a test, and the links, addresses and routes that it wants.
// Out: real kernel state, and probes whose result is awaited up to a deadline.
//
// Namespaces have no name: they go with the last thing in them, even if the test is killed. They need root, see
// machinetest.
package netnstest

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// NS is a namespace of a test.
type NS struct {
	t    testing.TB
	ns   *netns.Handle
	rtnl *rtnl.Handle
}

// New makes a namespace with lo up, no router, and for IPv6 without duplicate address detection, which takes a second.
func New(t testing.TB) *NS {
	t.Helper()
	machinetest.Root(t)
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	n := &NS{t: t, ns: ns}
	t.Cleanup(func() { _ = ns.Close() })
	n.Sysctl("ipv4/ip_forward", "0") // a new one takes IPv4's settings of the machine's first, where Docker may run
	for _, path := range []string{"all", "default", "lo"} {
		n.Sysctl("ipv6/conf/"+path+"/accept_dad", "0")
		n.Sysctl("ipv6/conf/"+path+"/dad_transmits", "0")
	}
	if n.rtnl, err = rtnl.OpenIn(ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.rtnl.Close)
	n.Up("lo")
	return n
}

// Rtnl is a handle in the namespace, closed at the end of the test.
func (n *NS) Rtnl() *rtnl.Handle { return n.rtnl }

// Handle is the namespace itself.
func (n *NS) Handle() *netns.Handle { return n.ns }

// Do runs f on a thread in the namespace. Goroutines that f starts are elsewhere.
func (n *NS) Do(f func()) {
	n.t.Helper()
	n.must(n.ns.Do(func() error { f(); return nil }))
}

// Run runs a program in the namespace and returns what it wrote; its failure fails the test.
func (n *NS) Run(program string, args ...string) string {
	n.t.Helper()
	out, err := n.ns.Output(n.t.Context(), program, args...)
	if err != nil {
		n.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// Sysctl writes a value under /proc/sys/net.
func (n *NS) Sysctl(path, value string) {
	n.t.Helper()
	n.must(n.ns.Do(func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644) }))
}

// SysctlValue reads a value under /proc/sys/net.
func (n *NS) SysctlValue(path string) string {
	n.t.Helper()
	var b []byte
	n.must(n.ns.Do(func() (err error) { b, err = os.ReadFile("/proc/sys/net/" + path); return err }))
	return strings.TrimSpace(string(b))
}

// Forward makes the namespace a router for both families.
func (n *NS) Forward() {
	n.t.Helper()
	n.Sysctl("ipv4/ip_forward", "1")
	n.Sysctl("ipv6/conf/all/forwarding", "1")
}

// KeepFlows has the kernel remember flows for an hour in which nothing comes: some of them it forgets within seconds, amid the test on a busy machine.
func (n *NS) KeepFlows() {
	n.t.Helper()
	for _, of := range []string{"icmp", "icmpv6", "udp"} {
		n.Sysctl("netfilter/nf_conntrack_"+of+"_timeout", "3600")
	}
	n.Sysctl("netfilter/nf_conntrack_udp_timeout_stream", "3600")
	for _, state := range []string{"syn_sent", "syn_recv", "unacknowledged", "max_retrans", "fin_wait", "close_wait", "last_ack", "time_wait", "close"} {
		n.Sysctl("netfilter/nf_conntrack_tcp_timeout_"+state, "3600")
	}
}

// Veth makes a pair of links, both here and up.
func (n *NS) Veth(a, b string) {
	n.t.Helper()
	n.must(n.rtnl.AddVeth(rtnl.Veth{Name: a, Peer: b}))
	n.Up(a)
	n.Up(b)
}

// VethTo makes a pair of links, one here and one in other, both up.
func (n *NS) VethTo(other *NS, here, there string) {
	n.t.Helper()
	n.must(n.rtnl.AddVeth(rtnl.Veth{Name: here, Peer: there, PeerIn: other.ns}))
	n.Up(here)
	other.Up(there)
}

// Link is the present state of a link; the test fails if there is none.
func (n *NS) Link(name string) rtnl.Link {
	n.t.Helper()
	l, err := n.rtnl.Link(name)
	n.must(err)
	return l
}

// Addr adds addresses, such as 192.0.2.1/24 or fe80::1/64, to a link, and if that is up, waits until the kernel takes what is sent to them.
func (n *NS) Addr(link string, prefixes ...string) {
	n.t.Helper()
	on := n.Link(link)
	missing := map[netip.Addr]bool{}
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		n.must(n.rtnl.AddAddr(rtnl.Addr{Link: on.Index, Prefix: p}))
		if p.Addr().Is6() && on.Up {
			missing[p.Addr()] = true
		}
	}
	n.awaitLocal(on, missing)
}

// awaitLocal waits for the routes of addresses in the table local. Those of IPv6 the kernel makes in a task of its own: until then it loses what
// is sent to them without a word, although sockets can be bound.
func (n *NS) awaitLocal(on rtnl.Link, missing map[netip.Addr]bool) {
	n.t.Helper()
	if len(missing) == 0 {
		return
	}
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	for end := time.Now().Add(Patience); ; <-look.C {
		routes, err := n.rtnl.Routes(rtnl.RouteFilter{Table: unix.RT_TABLE_LOCAL, Link: on.Index})
		n.must(err)
		for _, r := range routes {
			if r.Dst.IsSingleIP() {
				delete(missing, r.Dst.Addr())
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("%s does not take what is sent to %v", on.Name, slices.Collect(maps.Keys(missing)))
		}
	}
}

// Up turns a link on.
func (n *NS) Up(link string) {
	n.t.Helper()
	n.must(n.rtnl.SetUp(n.Link(link).Index, true))
}

// Down turns a link off; the kernel drops its IPv4 routes without a word.
func (n *NS) Down(link string) {
	n.t.Helper()
	n.must(n.rtnl.SetUp(n.Link(link).Index, false))
}

// Flap turns a link off and on.
func (n *NS) Flap(link string) {
	n.t.Helper()
	n.Down(link)
	n.Up(link)
}

// Delete removes a link.
func (n *NS) Delete(link string) {
	n.t.Helper()
	n.must(n.rtnl.DeleteLink(n.Link(link).Index))
}

// Route adds a route in the words of ip-route, such as "default via 192.0.2.1" or "10.65.0.5 dev wl1 proto 3".
func (n *NS) Route(words string) {
	n.t.Helper()
	n.Run("ip", append([]string{familyFlag(words), "route", "add"}, strings.Fields(words)...)...)
}

// WantRoute fails the test unless ip-route shows a route of main that begins with these words.
func (n *NS) WantRoute(t testing.TB, words string) {
	t.Helper()
	if routes := n.Run("ip", "-N", familyFlag(words), "route", "show"); !showsRoute(routes, words) {
		t.Errorf("there is no route %q in:\n%s", words, routes)
	}
}

// WantNoRoute fails the test if ip-route shows a route of main that begins with these words.
func (n *NS) WantNoRoute(t testing.TB, words string) {
	t.Helper()
	if routes := n.Run("ip", "-N", familyFlag(words), "route", "show"); showsRoute(routes, words) {
		t.Errorf("there is a route %q in:\n%s", words, routes)
	}
}

func showsRoute(routes, words string) bool {
	want := normal(words)
	for line := range strings.Lines(routes) {
		if strings.HasPrefix(normal(line)+" ", want+" ") {
			return true
		}
	}
	return false
}

// normal has one space between words, and names for what ip -N shows as numbers.
func normal(line string) string {
	line = "^" + strings.Join(strings.Fields(line), " ")
	return strings.NewReplacer("^6 ", "^blackhole ", "^7 ", "^unreachable ", "scope 253", "scope link", "scope 0", "scope global").Replace(line)
}

func familyFlag(words string) string {
	if strings.Contains(words, "::") {
		return "-6"
	}
	return "-4"
}

func (n *NS) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
