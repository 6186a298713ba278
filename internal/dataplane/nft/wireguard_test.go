package nft

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestPolicyOfHostEndpointsIsNotAskedAboutWireGuard: what other ends of the tunnel send to its port, and what is sent to them.
func TestPolicyOfHostEndpointsIsNotAskedAboutWireGuard(t *testing.T) {
	h := newHosted(t)
	up := hep("up0") // without policy or profile: it denies
	peers := intent.IPSet{ID: intent.SetWireGuardPeers, Members: []intent.Member{{Prefix: netip.PrefixFrom(netip.MustParseAddr(addrs["out"][0]), 32)}}}
	settings := intent.HostSettings{EndpointToHost: intent.ToHostAccept, WireGuard: intent.WireGuardSettings{Port: [2]uint16{51820, 51821}}, Tunnels: intent.Tunnels{
		intent.WireGuard: {Host: netip.MustParseAddr(addrs["host"][0])},
	}}
	b := pair(nil)
	b.IPSets, b.Endpoints, b.Host = append(b.IPSets, intent.IPSet{ID: peers.ID}), append(b.Endpoints, up), &settings
	h.d.Merge(b)
	apply(t, h.d)
	probe := func(from, to string, port uint16) netnstest.Probe {
		return netnstest.Probe{From: h.party(from), To: h.party(to), Dst: netip.AddrPortFrom(netip.MustParseAddr(addrs[to][0]), port), Proto: "udp"}
	}
	probe("out", "host", 51820).WantBlocked(t)
	h.d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: peers.ID, Added: peers.Members}}})
	apply(t, h.d)
	probe("out", "host", 51820).WantReach(t)
	probe("host", "out", 51820).WantReach(t)
	probe("out", "host", 51821).WantBlocked(t) // there is none of IPv6
	settings.Tunnels = intent.Tunnels{}
	h.d.Merge(intent.Batch{Host: &settings, Removed: []intent.Key{peers.ID}})
	apply(t, h.d)
	probe("out", "host", 51820).WantBlocked(t)
}
