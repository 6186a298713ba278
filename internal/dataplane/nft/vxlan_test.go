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

// TestWhatIsEncapsulatedIsTakenFromHostsOfTheTunnelAlone: from these whatever the policy of the host's endpoint says, as what the host
// sends to them.
func TestWhatIsEncapsulatedIsTakenFromHostsOfTheTunnelAlone(t *testing.T) {
	h := newHosted(t)
	up := hep("up0") // without policy or profile: it denies
	peers := intent.IPSet{ID: intent.SetVXLANPeers, Members: []intent.Member{{Prefix: netip.PrefixFrom(netip.MustParseAddr(addrs["out"][0]), 32)}}}
	here := netip.MustParseAddr(addrs["host"][0])
	settings := intent.HostSettings{EndpointToHost: intent.ToHostAccept, AllowVXLAN: true, Tunnels: intent.Tunnels{intent.VXLAN: {Host: here, Addr: netip.MustParseAddr("10.65.1.1"), MAC: "66:00:00:00:00:01"}}}
	b := pair(nil)
	b.IPSets, b.Endpoints, b.Host = append(b.IPSets, intent.IPSet{ID: peers.ID}), append(b.Endpoints, up), &settings
	h.d.Merge(b)
	apply(t, h.d)

	listen := func(party string) (c *net.UDPConn) {
		h.party(party).Do(func() {
			var err error
			if c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(addrs[party][0]), Port: intent.PortVXLAN}); err != nil {
				t.Fatal(err)
			}
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	host, out, workload := listen("host"), listen("out"), listen("a")
	send := func(from *net.UDPConn, to string) {
		t.Helper()
		if _, err := from.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.ParseIP(addrs[to][0]), Port: intent.PortVXLAN}); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(at *net.UDPConn, from string) {
		t.Helper()
		_ = at.SetReadDeadline(time.Now().Add(netnstest.Patience))
		if _, a, err := at.ReadFromUDP(make([]byte, 16)); err != nil || a.IP.String() != addrs[from][0] {
			t.Fatalf("from %v, %v; want from %s", a, err, from)
		}
	}
	const stranger = "VXLAN of no host of the tunnel"
	isDropped := func(what string, from *net.UDPConn) { // what is sent to the host
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
	h.d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: peers.ID, Added: peers.Members}}})
	apply(t, h.d)
	send(out, "host")
	arrives(host, "out")

	settings.Tunnels = intent.Tunnels{}
	h.d.Merge(intent.Batch{Host: &settings, Removed: []intent.Key{peers.ID, up.ID}})
	apply(t, h.d)
	send(workload, "host")
	arrives(host, "a") // nobody is asked: there is no tunnel
}
