package desired

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseIPIP is the stage in which packets in IPv4 packets are taken from hosts at the other ends of the tunnel, and from nobody else, as
// baseVXLAN's.
const baseIPIP = "input-ipip"

// tunnelStages makes desired what decides about encapsulated packets.
func (s *State) tunnelStages() {
	s.vxlan()
	s.ipip()
	s.tunnelNAT()
	s.accepted()
	if s.inSync {
		s.newSets[intent.SetWireGuardPeers] = struct{}{}
	}
}

// looksInto reports whether a stage of tunnels looks into a set.
func (s *State) looksInto(id intent.SetID) bool {
	return id == intent.SetVXLANPeers && s.tunnelled() || id == intent.SetIPIPPeers && s.byIPIP() || id == intent.SetWireGuardPeers && len(s.byWireGuard(intent.Ingress)) > 0
}

// byWireGuard passes what goes between this host and others in WireGuard tunnels. Whoever it is from, without a key of a peer nothing is taken.
func (s *State) byWireGuard(dir intent.Direction) (gs []Guard) {
	for f, k := range []intent.TunnelKind{intent.WireGuard, intent.WireGuard6} {
		if !s.inSync || s.host.Tunnels[k] == (intent.Tunnel{}) {
			continue
		}
		peer := rules.Term{Kind: rules.Addrs, Side: sideOf(dir), Set: intent.SetWireGuardPeers}
		gs = append(gs, Guard{Terms: append(portOf(protoUDP, rules.Dst, s.host.WireGuard.Port[f]), peer), Do: Skip, Comment: k.String()})
	}
	return gs
}

// withDecrypted are the host endpoints of interfaces, with those of WireGuard's devices while what hosts send to each other is encrypted: what comes out
// of such a device, or goes into it, and is of this host itself, is judged as it is in clear, by the endpoint of the interface that has the host's
// address. A device that an endpoint names has that one.
func (s *State) withDecrypted(links map[string]intent.EndpointID) map[string]intent.EndpointID {
	out := maps.Clone(links)
	for f, k := range []intent.TunnelKind{intent.WireGuard, intent.WireGuard6} {
		device := cmp.Or(s.host.WireGuard.Link[f], k.Link())
		if _, own := links[device]; own || !s.host.WireGuard.Hosts[f] {
			continue
		}
		for _, link := range slices.Sorted(maps.Keys(s.hosts.addrs)) {
			if id, is := links[link]; is && slices.Contains(s.hosts.addrs[link], s.host.Tunnels[k].Host) {
				out[device] = id
			}
		}
	}
	return out
}

// betweenHosts passes what goes between this host and others through tunnels.
func (s *State) betweenHosts(dir intent.Direction) []Guard {
	return append(append(s.encapsulated(dir), s.inIPIP(dir)...), s.byWireGuard(dir)...)
}

// ipip makes that stage desired. Until the source is in sync it stays as an earlier agent left it: the set of hosts is not complete.
func (s *State) ipip() {
	if !s.inSync {
		return
	}
	s.newSets[intent.SetIPIPPeers] = struct{}{}
	if !s.byIPIP() {
		s.drop(baseIPIP, nil)
		return
	}
	stranger := Guard{Terms: ofIPIP(), Comment: "IPIP of no host of the tunnel", By: always(intent.ReasonNoPeer)}
	s.own(baseIPIP, &Hook{At: Input, Priority: -1}, append(s.inIPIP(intent.Ingress), stranger))
}

// byIPIP reports whether this host has an IPIP tunnel.
func (s *State) byIPIP() bool { return s.inSync && s.host.Tunnels[intent.IPIP] != intent.Tunnel{} }

// inIPIP passes what goes between this host and others through that tunnel.
func (s *State) inIPIP(dir intent.Direction) []Guard {
	if !s.byIPIP() {
		return nil
	}
	peer := rules.Term{Kind: rules.Addrs, Side: sideOf(dir), Set: intent.SetIPIPPeers}
	return []Guard{{Terms: append(ofIPIP(), peer), Do: Skip, Comment: "IPIP"}}
}

// ofIPIP matches IPv4 packets that carry packets (RFC 2003).
func ofIPIP() []rules.Term {
	return ofFamily(intent.IPv4, []rules.Term{{Kind: rules.Protocol, Number: protoIPIP}})
}
