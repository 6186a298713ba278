package nft

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/ifmon"
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

// TestWhatIsDecryptedForTheHostIsJudged: what comes out of WireGuard's device for the host itself is judged by the host endpoint of the interface with the
// host's address, while what hosts send to each other is encrypted, unless an endpoint names the device. What is forwarded is not asked about.
func TestWhatIsDecryptedForTheHostIsJudged(t *testing.T) {
	h := newHosted(t)
	h.ns.VethTo(h.out, "wg0", "wg0") // in the place of the device
	h.ns.Addr("wg0", "198.51.100.1/24")
	h.out.Addr("wg0", "198.51.100.2/24")
	own := netip.MustParseAddr(addrs["host"][0])
	settings := intent.HostSettings{EndpointToHost: intent.ToHostAccept, Tunnels: intent.Tunnels{intent.WireGuard: {Host: own}}}
	settings.WireGuard.Link[0], settings.WireGuard.Port = "wg0", [2]uint16{51820, 51821}
	b := pair(nil)
	b.IPSets = append(b.IPSets, intent.IPSet{ID: intent.SetWireGuardPeers})
	b.Endpoints, b.Host = append(b.Endpoints, hep("up0")), &settings // without policy or profile: it denies
	h.d.Merge(b)
	h.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: "up0", Addrs: []netip.Prefix{netip.PrefixFrom(own, 24)}}}})
	apply(t, h.d)
	out := func(from, to *netnstest.NS, at string) netnstest.Probe {
		return netnstest.Probe{From: from, To: to, Dst: netip.AddrPortFrom(netip.MustParseAddr(at), 80), Proto: "tcp"}
	}
	clear := out(h.out, h.ns, addrs["host"][0])
	in, back := out(h.out, h.ns, "198.51.100.1"), out(h.ns, h.out, "198.51.100.2")
	clear.WantBlocked(t)
	in.WantReach(t) // what hosts send is not encrypted: nothing that was in clear is here

	settings.WireGuard.Hosts[0] = true
	h.d.Merge(intent.Batch{Host: &settings})
	apply(t, h.d)
	clear.WantBlocked(t)
	in.WantBlocked(t)
	back.WantBlocked(t)
	out(h.a, h.out, "198.51.100.2").WantReach(t) // forwarded

	device := hep("wg0")
	device.ID.Name = "device"
	device.Link = "wg0"
	h.d.Merge(intent.Batch{Endpoints: []intent.Endpoint{device}, Removed: []intent.Key{hep("up0").ID}})
	apply(t, h.d)
	clear.WantReach(t)
	in.WantBlocked(t)
	h.d.Merge(intent.Batch{Removed: []intent.Key{device.ID}})
	apply(t, h.d)
	in.WantReach(t)
}
