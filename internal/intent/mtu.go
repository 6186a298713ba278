package intent

import "net/netip"

// MTUSettings say how large packets may be, in bytes.
type MTUSettings struct {
	// Links is a regular expression (RE2) of the names of interfaces that lead to other hosts: the smallest MTU of those that are up counts. The
	// interface with one of this host's own addresses counts, too.
	Links   string
	Own     [2]netip.Addr     // this host's addresses, of IPv4 and of IPv6, as its Node has them; the zero Addr: none
	Tunnels [TunnelKinds]int  // the largest packets in tunnels, as settings say; zero: what the interfaces carry less the kind's overhead
	Wanted  [TunnelKinds]bool // kinds of which this host is to have a tunnel, also while it has no address for its end yet
}

// What a link must carry, in bytes, for IPv4 (RFC 791) and for IPv6 (RFC 8200): without it, Linux has no IPv6 on the link. A host whose interfaces carry less sends larger
// encapsulated packets in fragments.
const (
	smallestMTU   = 68
	SmallestMTUV6 = 1280
)

// In returns the largest packet in a tunnel of a kind, between hosts whose interfaces carry packets of carried bytes.
func (s MTUSettings) In(k TunnelKind, carried int) int {
	if s.Tunnels[k] != 0 {
		return s.Tunnels[k]
	}
	if k.Family() == IPv6 {
		return max(carried-k.Overhead(), SmallestMTUV6)
	}
	return max(carried-k.Overhead(), smallestMTU)
}

// Workloads returns the largest packet that reaches workloads of other hosts in each way that this host is to have: the smallest of its tunnels', and never more than the
// interfaces carry.
func (s MTUSettings) Workloads(carried int) int {
	least := carried
	for k, wanted := range s.Wanted {
		if wanted {
			least = min(least, s.In(TunnelKind(k), carried))
		}
	}
	return least
}
