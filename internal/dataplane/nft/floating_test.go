package nft

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// floatingAddrs are two of both families.
var floatingAddrs = [2][2]string{{"198.51.100.1", "fd99::1"}, {"198.51.100.2", "fd99::2"}}

// float gives an endpoint one of them.
func float(e *intent.Endpoint, n int) {
	for i, own := range addrs[e.ID.Name] {
		e.NATs = append(e.NATs, intent.NAT{External: netip.MustParseAddr(floatingAddrs[n][i]), Internal: netip.MustParseAddr(own)})
	}
}

// reaches connects to a floating address, at which a party must be, and returns whom that party sees.
func (h *hosted) reaches(t *testing.T, from string, n, family int, to string) string {
	t.Helper()
	return h.seenAt(t, from, netip.MustParseAddr(floatingAddrs[n][family]), to, family).Addr().String()
}

// connects reports whether one party, at some address, is reached by another.
func (h *hosted) connects(t *testing.T, from string, addr netip.Addr, to string, family int) bool {
	t.Helper()
	l, err := h.party(to).ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(addrs[to][family]), 8080))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := h.party(from).DialTCP(netip.AddrPortFrom(netip.MustParseAddr(addrs[from][family]), 0), netip.AddrPortFrom(addr, 8080), time.Now().Add(netnstest.Silence))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// TestPacketsToAFloatingAddressArriveAtItsWorkload in both forms: from outside, from workloads of the host, the one itself among them, and from
// the host.
func TestPacketsToAFloatingAddressArriveAtItsWorkload(t *testing.T) {
	for _, compiled := range []bool{false, true} {
		h := newHosted(t)
		for _, f := range floatingAddrs {
			h.ns.Route(f[0] + " dev calia")
			h.ns.Route(f[1] + "/128 dev calia")
		}
		b := pair(nil)
		b.Host = &intent.HostSettings{Compiled: compiled}
		float(&b.Endpoints[0], 0)
		h.d.Merge(b)
		apply(t, h.d)
		for family := range 2 {
			for _, way := range []struct{ from, sees string }{
				{"out", addrs["out"][family]}, {"b", addrs["b"][family]}, {"a", floatingAddrs[0][family]}, {"host", ""},
			} {
				if got := h.reaches(t, way.from, 0, family, "a"); got != way.sees && way.sees != "" {
					t.Errorf("compiled %v: %s connects to the floating address: a sees %s, want %s", compiled, way.from, got, way.sees)
				}
			}
			if got := h.seenFrom(t, "a", "out", family); got != addrs["a"][family] {
				t.Errorf("compiled %v: a connects to the outside, which sees %s, want a's own address", compiled, got)
			}
		}
		b = pair(nil) // the address moves
		b.Endpoints[1].NATs = nil
		float(&b.Endpoints[1], 0)
		h.d.Merge(b)
		apply(t, h.d)
		for family := range 2 {
			h.reaches(t, "out", 0, family, "b")
			h.reaches(t, "a", 0, family, "b")
		}
		h.d.Merge(intent.Batch{Removed: []intent.Key{b.Endpoints[1].ID}})
		apply(t, h.d)
		if text := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(text, "floating") {
			t.Errorf("compiled %v: no workload has one, and there is a stage for it:\n%s", compiled, text)
		}
	}
}

// TestPolicyJudgesTheWorkloadBehindAFloatingAddress by its own address and port, and by what it asks.
func TestPolicyJudgesTheWorkloadBehindAFloatingAddress(t *testing.T) {
	h := newHosted(t)
	for i := range 2 {
		h.ns.Route(netip.PrefixFrom(netip.MustParseAddr(floatingAddrs[0][i]), []int{32, 128}[i]).String() + " dev calia")
	}
	web := pol("web", []intent.Rule{tcp(intent.Allow, 8080)}, nil)
	b := pair(ask(web, in), web)
	own := intent.Peer{Nets: []netip.Prefix{netip.MustParsePrefix("10.65.0.1/32"), netip.MustParsePrefix("fd65::a/128")}}
	onlyOwn := pol("own", nil, []intent.Rule{{Action: intent.Allow, Protocol: 6, Dst: own}})
	b.Policies = append(b.Policies, onlyOwn)
	intenttest.Normal(&b.Endpoints[1], ask(onlyOwn, out)...)
	float(&b.Endpoints[0], 0)
	h.d.Merge(b)
	apply(t, h.d)
	h.reaches(t, "b", 0, 0, "a") // b may send to a's own address alone
	h.reaches(t, "out", 0, 1, "a")
	deny := pol("web", []intent.Rule{tcp(intent.Allow, 80)}, nil)
	h.d.Merge(intent.Batch{Policies: []intent.Policy{deny}})
	apply(t, h.d)
	for family := range 2 {
		if h.connects(t, "out", netip.MustParseAddr(floatingAddrs[0][family]), "a", family) {
			t.Error("what policy denies to a comes to it by its floating address")
		}
	}
}

func TestFloatingAddressesStayAsTheyAreUntilAllIsKnown(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	float(&b.Endpoints[0], 0)
	h.d.Merge(b)
	apply(t, h.d)
	before := h.ns.Run("nft", "-s", "list", "table", "inet", "twill")
	if strings.Count(before, "dnat ip") != 4 || strings.Count(before, "snat ip") != 2 {
		t.Fatalf("want destination NAT twice and source NAT once for each family:\n%s", before)
	}
	again := New(h.kernelConn, Config{}) // the agent restarts, and knows nothing yet
	again.Merge(intent.Batch{})
	apply(t, again)
	if after := h.ns.Run("nft", "-s", "list", "table", "inet", "twill"); after != before {
		t.Errorf("changed before all was known:\n%s\nto\n%s", before, after)
	}
	again.Merge(pair(nil))
	apply(t, again)
	if after := h.ns.Run("nft", "-s", "list", "table", "inet", "twill"); strings.Contains(after, "nat ip") {
		t.Errorf("nobody has a floating address any more:\n%s", after)
	}
}
