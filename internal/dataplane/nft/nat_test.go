package nft

import (
	"math"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func nat(from, pool string) *intent.HostSettings {
	h := &intent.HostSettings{}
	for _, p := range strings.Fields(from) {
		h.NAT.From = append(h.NAT.From, netip.MustParsePrefix(p))
	}
	for _, p := range strings.Fields(pool) {
		h.NAT.Pool = append(h.NAT.Pool, netip.MustParsePrefix(p))
	}
	return h
}

// seenFrom is the address that one party sees when another connects.
func (h *hosted) seenFrom(t *testing.T, from, to string, family int) string {
	t.Helper()
	return h.seenAs(t, from, to, family).Addr().String()
}

func (h *hosted) seenAs(t *testing.T, from, to string, family int) netip.AddrPort {
	t.Helper()
	return h.seenAt(t, from, netip.MustParseAddr(addrs[to][family]), to, family)
}

// seenAt connects to an address at which a party must be.
func (h *hosted) seenAt(t *testing.T, from string, addr netip.Addr, to string, family int) netip.AddrPort {
	t.Helper()
	_, seen := h.ends(t, from, addr, to, family)
	return seen
}

// ports are the port of one party that connects to another, and which this sees.
func (h *hosted) ports(t *testing.T, from, to string, family int) (own, seen uint16) {
	t.Helper()
	a, b := h.ends(t, from, netip.MustParseAddr(addrs[to][family]), to, family)
	return a.Port(), b.Port()
}

// ends connects to an address at which a party must be, and returns whence, and what the party sees.
func (h *hosted) ends(t *testing.T, from string, addr netip.Addr, to string, family int) (own, seen netip.AddrPort) {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addrs[to][family]), 8080)
	l, err := h.party(to).ListenTCP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Addr, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(accepted)
			return
		}
		accepted <- c.RemoteAddr()
		c.Close()
	}()
	src := netip.AddrPortFrom(netip.MustParseAddr(addrs[from][family]), 0)
	c, err := h.party(from).DialTCP(src, netip.AddrPortFrom(addr, 8080), time.Now().Add(netnstest.Patience))
	if err != nil {
		t.Fatalf("%s to %s at %s: %v", from, to, addr, err)
	}
	defer c.Close()
	a, ok := <-accepted
	if !ok {
		t.Fatal("nothing was accepted")
	}
	return netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(a.String())
}

func TestPacketsToTheWorldLeaveWithTheHostsAddress(t *testing.T) {
	h := newHosted(t)
	const pools4, pools6 = "10.65.0.0/24 10.65.0.0/30 10.66.0.0/24", "fd65::/64"
	both := nat("10.65.0.0/24 fd65::/64", pools4+" "+pools6)
	for _, step := range []struct {
		name     string
		settings *intent.HostSettings
		out      [2]string // whom the outside sees when a connects, by family
	}{
		{"no pool asks for it", nat("", ""), addrs["a"]},
		{"of both families, with a pool within another", both, addrs["host"]},
		{"the outside is in a pool, too", nat("10.65.0.0/24 fd65::/64", pools4+" 192.0.2.0/24 "+pools6+" fd00::/64"), addrs["a"]},
		{"IPv4 alone", nat("10.65.0.0/24", pools4+" "+pools6), [2]string{addrs["host"][0], addrs["a"][1]}},
		{"a pool that is not a's", nat("10.66.0.0/24", pools4), addrs["a"]},
		{"again", both, addrs["host"]},
		{"not any more", nat("", ""), addrs["a"]},
	} {
		b := pair(nil)
		b.Host = step.settings
		h.d.Merge(b)
		if _, err := h.d.Apply(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for family := range 2 {
			if got := h.seenFrom(t, "a", "out", family); got != step.out[family] {
				t.Errorf("%s: the outside sees %s, want %s", step.name, got, step.out[family])
			}
			if got := h.seenFrom(t, "a", "b", family); got != addrs["a"][family] {
				t.Errorf("%s: another workload sees %s, want a's own address", step.name, got)
			}
			if got := h.seenFrom(t, "out", "a", family); got != addrs["out"][family] {
				t.Errorf("%s: a sees %s, want the outside's own address", step.name, got)
			}
		}
	}
	if got := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(got, "masquerade") || strings.Contains(got, baseNAT) {
		t.Errorf("nobody asks for it, and there is a stage for it:\n%s", got)
	}
}

// A connection leaves with a port that has nothing to do with the workload's: two that begin at once, on two processors, could both find
// one port free.
func TestPortsOfWhatLeavesAreRandom(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	b.Host = nat("10.65.0.0/24 fd65::/64", "10.65.0.0/24 fd65::/64")
	h.d.Merge(b)
	apply(t, h.d)
	for family := range 2 {
		var kept, tries int
		for ; tries < 3; tries++ {
			own, seen := h.ports(t, "a", "out", family)
			if own == seen {
				kept++
			}
		}
		if kept == tries { // by chance once in 10^14
			t.Errorf("family %d: %d connections left with their own ports", family, kept)
		}
	}
}

func TestNATIsAsSettingsSay(t *testing.T) {
	h := newHosted(t)
	h.ns.Addr("lo", "192.0.2.77/32")
	const pools = "10.65.0.0/24 fd65::/64"
	for _, step := range []struct {
		name string
		set  func(*intent.NATOutgoing)
		out  [2]string
		low  uint16 // the lowest port that the outside may see
	}{
		{"another address, which is of IPv4", func(n *intent.NATOutgoing) { n.Addr = netip.MustParseAddr("192.0.2.77") }, [2]string{"192.0.2.77", addrs["host"][1]}, 1},
		{"ports", func(n *intent.NATOutgoing) { n.Ports = intent.PortRange{Min: 61000, Max: 61999} }, addrs["host"], 61000},
		{"address and ports", func(n *intent.NATOutgoing) {
			n.Addr, n.Ports = netip.MustParseAddr("192.0.2.77"), intent.PortRange{Min: 62000, Max: 62000}
		}, [2]string{"192.0.2.77", addrs["host"][1]}, 62000},
		{"by an interface that is not theirs", func(n *intent.NATOutgoing) { n.Link = "nowhere0" }, addrs["a"], 1},
		{"by one whose name begins so", func(n *intent.NATOutgoing) { n.Link = "up*" }, addrs["host"], 1},
	} {
		b := pair(nil)
		b.Host = nat(pools, pools)
		step.set(&b.Host.NAT)
		h.d.Merge(b)
		apply(t, h.d)
		for family := range 2 {
			got := h.seenAs(t, "a", "out", family)
			high := max(b.Host.NAT.Ports.Max, step.low)
			if step.low == 1 { // any port
				high = math.MaxUint16
			}
			if got.Addr().String() != step.out[family] || got.Port() < step.low || got.Port() > high {
				t.Errorf("%s: the outside sees %s, want %s with a port from %d to %d", step.name, got, step.out[family], step.low, high)
			}
		}
	}
}

func TestNATStaysAsItIsUntilAllPoolsAreKnown(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	b.Host = nat("10.65.0.0/24 fd65::/64", "10.65.0.0/24 fd65::/64 fd66::/64")
	h.d.Merge(b)
	if _, err := h.d.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := h.ns.Run("nft", "-s", "list", "table", "inet", "twill")
	if strings.Count(before, "masquerade") != 2 {
		t.Fatalf("no masquerade:\n%s", before)
	}
	again := New(h.kernelConn, Config{}) // the agent restarts, and knows a part
	b = pair(nil)
	b.InSync, b.Host = false, nat("10.65.0.0/24", "10.65.0.0/24")
	again.Merge(b)
	if _, err := again.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := h.ns.Run("nft", "-s", "list", "table", "inet", "twill"); after != before {
		t.Errorf("changed before all was known:\n%s\nto\n%s", before, after)
	}
	again.Merge(intent.Batch{InSync: true})
	if _, err := again.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := h.ns.Run("nft", "-s", "list", "table", "inet", "twill"); strings.Count(after, "masquerade") != 1 {
		t.Errorf("in sync, and not as it should be:\n%s", after)
	}
}
