package iptables

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestAMarkThatAnotherSetAllowsNothing: a process that may set marks sends what policy denies, with the bits of what an early stage allowed.
func TestAMarkThatAnotherSetAllowsNothing(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		host := oneHost("eth0", intent.HostSettings{})
		ssh := intent.Policy{ID: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "out"}, Egress: []intent.Rule{onPort(6, 22)}}
		host.Policies = append(host.Policies, ssh)
		intenttest.Normal(&host.Endpoints[0], intent.Tier{Name: "default", Default: intent.Deny, Egress: []intent.PolicyID{ssh.ID}})
		b.apply(host)
		for _, a := range atOutside {
			p := netnstest.Probe{From: k.NS, To: b.outside, Proto: "tcp", Dst: netip.AddrPortFrom(netip.MustParseAddr(a), 22), Mark: kernel.MarkUntracked | kernel.MarkHostPassed}
			p.WantReach(t)
			p.Dst = netip.AddrPortFrom(p.Dst.Addr(), 80)
			p.WantBlocked(t)
		}
	})
}

// onPort allows one destination port.
func onPort(proto uint8, port uint16) intent.Rule {
	return intent.Rule{Action: intent.Allow, Protocol: proto, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

// TestWhatIsInAnAllowedPacketIsNotAllowedWithIt: the mark of what a policy allowed before conntrack goes over to the packet that a tunnel's device takes
// out of it.
func TestWhatIsInAnAllowedPacketIsNotAllowedWithIt(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, k tools) {
		t.Parallel()
		b := newBetween(t, k)
		b.tunnel(b.outside, atOutside[0], atHost[0], "10.99.0.2/24")
		b.tunnel(k.NS, atHost[0], atOutside[0], "10.99.0.1/24")
		b.outside.Route(atWorkload[0] + " via 10.99.0.1")
		host := oneHost("*", intent.HostSettings{Prefixes: []string{"tap"}})
		vxlan := intent.Policy{ID: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "vxlan"}, Ingress: []intent.Rule{onPort(17, 4789)}, Egress: []intent.Rule{onPort(17, 4789)}}
		host.Policies = append(host.Policies, vxlan)
		up := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "up"}, Link: "eth0"}
		intenttest.Untracked(&up, intent.Tier{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{vxlan.ID}, Egress: []intent.PolicyID{vxlan.ID}})
		host.Endpoints = append(host.Endpoints, up)
		b.apply(host)
		inner := [2]string{"10.99.0.1", "10.99.0.1"}
		b.check(b.outside, k.NS, inner, 80, true)
		b.check(b.outside, k.NS, inner, 81, false)
		b.check(b.outside, b.workload, [2]string{atWorkload[0], atWorkload[0]}, 80, true)
		b.check(b.outside, b.workload, [2]string{atWorkload[0], atWorkload[0]}, 81, false)
	})
}

// tunnel makes one end of a VXLAN tunnel.
func (b *between) tunnel(at *netnstest.NS, local, peer, inner string) {
	at.Run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "local", local, "remote", peer, "dstport", "4789")
	at.Addr("vx0", inner)
	at.Up("vx0")
}
