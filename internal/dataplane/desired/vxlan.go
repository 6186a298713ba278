package desired

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Stages of packets that VXLAN tunnels carry between hosts. They exist while this host has a tunnel.
const (
	// baseVXLAN is the one in which what was encapsulated is taken from hosts at the other ends of the tunnels, and from nobody else: a packet
	// that it passes may say of itself that it comes from any workload. It asks conntrack nothing.
	baseVXLAN = "input-vxlan"

	// In these, what goes between the hosts gets no connection.
	baseVXLANIn  = "prerouting-vxlan"
	baseVXLANOut = "output-vxlan"
)

// vxlan makes those stages desired. Until the source is in sync they stay as an earlier agent left them: the set of hosts is not complete.
func (s *State) vxlan() {
	if !s.inSync {
		return
	}
	s.newSets[intent.SetVXLANPeers] = struct{}{}
	if !s.tunnelled() {
		for _, name := range []string{baseVXLAN, baseVXLANIn, baseVXLANOut} {
			s.drop(name, nil)
		}
		return
	}
	stranger := Guard{Terms: portOf(protoUDP, rules.Dst, s.host.PortVXLAN()), Comment: "VXLAN of no host of the tunnel", By: always(intent.ReasonNoPeer)}
	s.own(baseVXLAN, &Hook{At: Input, Priority: -1}, append(s.encapsulated(intent.Ingress), stranger))
	s.own(baseVXLANIn, &Hook{At: Prerouting, Priority: -300}, s.untracked(intent.Ingress))
	s.own(baseVXLANOut, &Hook{At: Output, Priority: -300}, s.untracked(intent.Egress))
}

// tunnelled reports whether this host has a VXLAN tunnel.
func (s *State) tunnelled() bool {
	none := intent.Tunnel{}
	return s.inSync && (s.host.Tunnels[intent.VXLAN] != none || s.host.Tunnels[intent.VXLAN6] != none)
}

// encapsulated passes what goes between this host and others through the tunnels.
func (s *State) encapsulated(dir intent.Direction) []Guard {
	if !s.tunnelled() {
		return nil
	}
	peer := rules.Term{Kind: rules.Addrs, Side: sideOf(dir), Set: intent.SetVXLANPeers}
	return []Guard{{Terms: append(portOf(protoUDP, rules.Dst, s.host.PortVXLAN()), peer), Do: Skip, Comment: "VXLAN"}}
}

// untracked has conntrack make no entry for the same packets: it would have one for each of their source ports, of which the kernel takes
// one for each flow inside. What is for another than the host, such as a workload, is tracked whoever sent it.
func (s *State) untracked(dir intent.Direction) []Guard {
	own := rules.Term{Kind: rules.Nets, Side: rules.Dst}
	if dir == intent.Egress {
		own.Side = rules.Src
	}
	for _, t := range s.host.Tunnels[:intent.VXLAN6+1] {
		if t.Host.IsValid() {
			own.Nets = append(own.Nets, netip.PrefixFrom(t.Host, t.Host.BitLen()))
		}
	}
	gs := s.encapsulated(dir)
	for i := range gs {
		gs[i].Terms, gs[i].Do = append([]rules.Term{own}, gs[i].Terms...), Untrack
	}
	return gs
}
