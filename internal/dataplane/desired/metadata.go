package desired

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseMetadata is the stage in which requests of workloads for metadata get the address of the server. It exists only if settings name one.
const baseMetadata = "prerouting-metadata"

// metadata wants destination NAT for those requests. Until the source is in sync the stage stays as an earlier agent left it.
func (s *State) metadata() {
	if !s.inSync {
		return
	}
	to := s.host.Metadata
	if !to.IsValid() {
		s.drop(baseMetadata, nil)
		return
	}
	s.own(baseMetadata, &Hook{At: Prerouting, Priority: priorityDestinationNAT, NAT: true}, []Guard{
		{Terms: toServer(intent.MetadataService), If: fromWorkload(), Do: Hand, To: to.Addr(), Port: to.Port(), Comment: "metadata"},
	})
}

// served passes what a workload sends to services of its host that settings name.
func (s *State) served() []Guard {
	gs := s.forMetadata()
	if s.host.DNS { // after translation, for all addresses of the host: what is sent elsewhere does not come by these stages
		gs = append(gs, Guard{Terms: portOf(protoUDP, rules.Dst, 53), If: fromWorkload(), Do: Pass, Comment: "DNS"})
	}
	return gs
}

// forMetadata passes what goes from a workload to that server, if it is on this host: as upstream, a service of the host's that policy is not asked
// about. It is matched after translation.
func (s *State) forMetadata() []Guard {
	if !s.host.Metadata.IsValid() {
		return nil
	}
	return []Guard{{Terms: toServer(s.host.Metadata), If: fromWorkload(), Do: Pass, Comment: "metadata"}}
}

func toServer(at netip.AddrPort) []rules.Term {
	own := rules.Term{Kind: rules.Nets, Side: rules.Dst, Nets: []netip.Prefix{netip.PrefixFrom(at.Addr(), at.Addr().BitLen())}}
	return append(ofFamily(intent.IPv4, []rules.Term{own}), portOf(protoTCP, rules.Dst, at.Port())...)
}
