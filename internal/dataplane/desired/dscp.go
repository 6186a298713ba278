package desired

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseDSCP is the stage in which packets that leave the cluster get the code point of the endpoint that sends them. It exists only while an endpoint has one.
const baseDSCP = "postrouting-dscp"

// codePoints wants that stage. Addresses say whose a packet is, since this is before source NAT, and what a process of the host sends came by no interface.
// Until the source is in sync it stays as an earlier agent left it: a pool that is not known yet would count as outside.
func (s *State) codePoints() {
	if !s.inSync {
		return
	}
	var of, hosts []Guard
	for _, id := range s.marked() {
		e := s.endpoints[id]
		for _, f := range []intent.Family{intent.IPv4, intent.IPv6} {
			g := Guard{Terms: ofFamily(f, s.outside(f)), Do: Mark, DSCP: uint8(e.QoS.DSCP - 1), Comment: e.Label}
			named := id.Kind == intent.Host && e.Link != ""
			if own := netsOf(hostNets(e.Addrs), f); !named && len(own) > 0 {
				g.Terms = append(g.Terms, rules.Term{Kind: rules.Nets, Side: rules.Src, Nets: own})
			} else if !named {
				continue
			}
			switch {
			case id.Kind == intent.Workload:
				of = append(of, g)
				continue
			case named && e.Link != everyLink:
				g.If = onLink(intent.Egress, e.Link)
			}
			hosts = append(hosts, g)
		}
	}
	if len(of)+len(hosts) == 0 {
		s.drop(baseDSCP, nil)
		return
	}
	if len(hosts) > 0 {
		of = append(of, Guard{If: []Cond{{Kind: Forwarded}}, Do: Skip, Comment: "forwarded"})
	}
	s.own(baseDSCP, &Hook{At: Postrouting, Priority: priorityMangle + 1}, append(of, hosts...)) // after host endpoints decided
}

const priorityMangle = -150 // NF_IP_PRI_MANGLE

// marked returns the endpoints with a code point, in order.
func (s *State) marked() []intent.EndpointID {
	var out []intent.EndpointID
	for id := range s.coded {
		if s.endpoints[id].Closed == "" {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b intent.EndpointID) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// outside matches destinations of a family that are not of the cluster.
func (s *State) outside(f intent.Family) []rules.Term {
	in := netsOf(s.host.Inside, f)
	if len(in) == 0 {
		return nil
	}
	return []rules.Term{{Kind: rules.Nets, Side: rules.Dst, Nets: in, Not: true}}
}

func hostNets(as []netip.Addr) (out []netip.Prefix) {
	for _, a := range as {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// recode notes that an endpoint with a code point has changed, or has one, or none any more.
func (s *State) recode(id intent.EndpointID, q intent.QoS) {
	_, had := s.coded[id]
	if s.coded[id] = struct{}{}; q.DSCP == 0 {
		delete(s.coded, id)
	}
	s.dirtyCodes = s.dirtyCodes || had || q.DSCP != 0
}
