package desired

import (
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseVXLAN is the stage in which what was encapsulated is taken from hosts at the other ends of the tunnels, and from nobody else: a packet
// that it passes may say of itself that it comes from any workload. It exists while this host has a tunnel.
const baseVXLAN = "input-vxlan"

// vxlan makes that stage desired. Until the source is in sync it stays as an earlier agent left it: the set of hosts is not complete.
func (s *State) vxlan() {
	if !s.inSync {
		return
	}
	s.newSets[intent.SetVXLANPeers] = struct{}{}
	if !s.tunnelled() {
		s.drop(baseVXLAN, nil)
		return
	}
	stranger := Guard{Terms: portOf(protoUDP, rules.Dst, intent.PortVXLAN), Comment: "VXLAN of no host of the tunnel", By: always(intent.ReasonNoPeer)}
	s.own(baseVXLAN, &Hook{At: Input, Priority: -1}, append(s.encapsulated(intent.Ingress), stranger))
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
	return []Guard{{Terms: append(portOf(protoUDP, rules.Dst, intent.PortVXLAN), peer), Do: Skip, Comment: "VXLAN"}}
}
