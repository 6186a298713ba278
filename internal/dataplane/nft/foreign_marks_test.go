package nft

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// trusted are the bits of marks by which the stages of host endpoints know what an early one allowed.
const trusted = kernel.MarkUntracked | kernel.MarkHostPassed

// eachForm calls f with a batch as rules and as look-ups, one after the other.
func (h *hosted) eachForm(t *testing.T, b intent.Batch, f func()) {
	t.Helper()
	h.d.Merge(b)
	for _, compiled := range []bool{false, true} {
		h.d.Merge(intent.Batch{Host: &intent.HostSettings{Compiled: compiled}})
		apply(t, h.d)
		f()
	}
}

// TestAMarkThatAnotherSetAllowsNothing: a process that may set marks sends what policy denies, with the bits of what an early stage allowed.
func TestAMarkThatAnotherSetAllowsNothing(t *testing.T) {
	h := newHosted(t)
	e := hep("up0")
	ssh := pol("ssh", nil, []intent.Rule{tcp(intent.Allow, 22)})
	intenttest.Normal(&e, ask(ssh, out)...)
	b := pair(nil, ssh)
	b.Endpoints = append(b.Endpoints, e)
	h.eachForm(t, b, func() {
		for _, a := range addrs["out"] {
			p := netnstest.Probe{From: h.ns, To: h.out, Proto: "tcp", Dst: netip.AddrPortFrom(netip.MustParseAddr(a), 22), Mark: trusted}
			p.WantReach(t)
			p.Dst = netip.AddrPortFrom(p.Dst.Addr(), 80)
			p.WantBlocked(t)
		}
	})
}

// TestWhatIsInAnAllowedPacketIsNotAllowedWithIt: the mark of what a policy allowed before conntrack or DNAT goes over to the packet that a tunnel's
// device takes out of it.
func TestWhatIsInAnAllowedPacketIsNotAllowedWithIt(t *testing.T) {
	vxlan := intent.Rule{Action: intent.Allow, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 4789, Max: 4789}}}}
	for _, tt := range []struct {
		name string
		at   func(*intent.Endpoint, ...intent.Tier)
	}{{"before conntrack", intenttest.Untracked}, {"before DNAT", intenttest.PreDNAT}} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHosted(t)
			for _, end := range []struct {
				ns                 *netnstest.NS
				local, peer, inner string
			}{{h.ns, addrs["host"][0], addrs["out"][0], "10.99.0.1/24"}, {h.out, addrs["out"][0], addrs["host"][0], "10.99.0.2/24"}} {
				end.ns.Run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "local", end.local, "remote", end.peer, "dstport", "4789")
				end.ns.Addr("vx0", end.inner)
				end.ns.Up("vx0")
			}
			h.out.Route("10.65.0.0/24 via 10.99.0.1")
			up, tunnel := hep("up0"), hep("vx0")
			tunnel.ID.Name, tunnel.Label = "tunnel", "tunnel"
			early, web := pol("early", []intent.Rule{vxlan}, nil), pol("web", []intent.Rule{tcp(intent.Allow, 80)}, nil)
			tt.at(&up, ask(early, in)...)
			intenttest.Profiles(&up, intent.PolicyID{Kind: "Profile", Name: "open"})
			intenttest.Normal(&tunnel, ask(web, in)...)
			intenttest.Forward(&tunnel, ask(web, in)...)
			b := pair(nil, early, web)
			b.Endpoints = append(b.Endpoints, up, tunnel)
			h.eachForm(t, b, func() {
				for to, at := range map[*netnstest.NS]string{h.ns: "10.99.0.1", h.a: addrs["a"][0]} {
					p := netnstest.Probe{From: h.out, To: to, Proto: "tcp", Dst: netip.AddrPortFrom(netip.MustParseAddr(at), 80)}
					p.WantReach(t)
					p.Dst = netip.AddrPortFrom(p.Dst.Addr(), 81)
					p.WantBlocked(t)
				}
			})
		})
	}
}
