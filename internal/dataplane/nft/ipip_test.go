package nft

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestIPIPIsTakenFromHostsOfTheTunnelAlone: from these whatever the policy of the host's endpoint says, as what the host sends to them. A
// raw socket gets what a tunnel's device would.
func TestIPIPIsTakenFromHostsOfTheTunnelAlone(t *testing.T) {
	h := newHosted(t)
	up := hep("up0") // without policy or profile: it denies
	peers := intent.IPSet{ID: intent.SetIPIPPeers, Members: []intent.Member{{Prefix: netip.PrefixFrom(netip.MustParseAddr(addrs["out"][0]), 32)}}}
	settings := intent.HostSettings{EndpointToHost: intent.ToHostAccept, AllowIPIP: true, Tunnels: intent.Tunnels{
		intent.IPIP: {Host: netip.MustParseAddr(addrs["host"][0]), Addr: netip.MustParseAddr("10.65.1.1")},
	}}
	b := pair(nil)
	b.IPSets, b.Endpoints, b.Host = append(b.IPSets, intent.IPSet{ID: peers.ID}), append(b.Endpoints, up), &settings
	h.d.Merge(b)
	apply(t, h.d)

	listen := func(party string) (c *net.IPConn) {
		h.party(party).Do(func() {
			var err error
			if c, err = net.ListenIP("ip4:4", &net.IPAddr{IP: net.ParseIP(addrs[party][0])}); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	host, out, workload := listen("host"), listen("out"), listen("a")
	send := func(from *net.IPConn, to string) {
		t.Helper()
		if _, err := from.WriteToIP(make([]byte, 20), &net.IPAddr{IP: net.ParseIP(addrs[to][0])}); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(at *net.IPConn, from string) {
		t.Helper()
		_ = at.SetReadDeadline(time.Now().Add(netnstest.Patience))
		if _, a, err := at.ReadFromIP(make([]byte, 64)); err != nil || a.IP.String() != addrs[from][0] {
			t.Fatalf("from %v, %v; want from %s", a, err, from)
		}
	}
	const stranger = "IPIP of no host of the tunnel"
	isDropped := func(what string, from *net.IPConn) { // what is sent to the host
		t.Helper()
		before := h.dropped(t, stranger)
		send(from, "host")
		for began := time.Now(); h.dropped(t, stranger) != before+1; runtime.Gosched() {
			if time.Since(began) > netnstest.Patience {
				t.Fatalf("%s: %d packets were dropped, want 1", what, h.dropped(t, stranger)-before)
			}
		}
	}
	isDropped("there is no other host", out)
	h.d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: peers.ID, Added: peers.Members}}})
	apply(t, h.d)
	send(out, "host")
	arrives(host, "out")
	send(host, "out")
	arrives(out, "host")
	isDropped("a workload, which a setting lets send it", workload)

	h.d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: peers.ID, Removed: peers.Members}}})
	apply(t, h.d)
	isDropped("no host of the tunnel any more, of a flow that conntrack knows", out)

	settings.Tunnels = intent.Tunnels{}
	h.d.Merge(intent.Batch{Host: &settings, Removed: []intent.Key{peers.ID, up.ID}})
	apply(t, h.d)
	send(workload, "host")
	arrives(host, "a") // nobody is asked: there is no tunnel
}
