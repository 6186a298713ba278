package desired

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Stages of floating addresses. They exist only while a workload has one.
const (
	baseFloatingIn   = "prerouting-floating"  // what comes by an interface
	baseFloatingHost = "output-floating"      // what processes of the host send
	baseFloatingBack = "postrouting-floating" // what a workload sends to itself
)

const priorityDestinationNAT = -100 // NF_IP_PRI_NAT_DST

// floating wants destination NAT for what is sent to floating addresses. A workload that sends to itself gets its packets from its floating
// address: it would drop packets that come from its own. Whatever else it sends leaves as if it had none.
//
// Until the source is in sync the stages stay as an earlier agent left them.
func (s *State) floating() {
	if !s.inSync {
		return
	}
	var nats []intent.NAT
	for id := range s.floats {
		nats = append(nats, s.endpoints[id].NATs...)
	}
	slices.SortFunc(nats, func(a, b intent.NAT) int {
		return cmp.Or(a.External.Compare(b.External), a.Internal.Compare(b.Internal))
	})
	if len(nats) == 0 {
		for _, name := range []string{baseFloatingIn, baseFloatingHost, baseFloatingBack} {
			s.drop(name, nil)
		}
		return
	}
	var to, back []Guard
	for _, n := range nats {
		is := func(side rules.Side, a netip.Addr) rules.Term {
			return rules.Term{Kind: rules.Nets, Side: side, Nets: []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}}
		}
		f := intent.IPv6
		if n.External.Is4() {
			f = intent.IPv4
		}
		to = append(to, Guard{Terms: ofFamily(f, []rules.Term{is(rules.Dst, n.External)}), Do: Deliver, To: n.Internal, Comment: "floating address"})
		back = append(back, Guard{
			Terms: ofFamily(f, []rules.Term{is(rules.Src, n.Internal), is(rules.Dst, n.Internal)}),
			Do:    Translate, Source: Source{Addr: n.External}, Comment: "floating address, to itself",
		})
	}
	s.own(baseFloatingIn, &Hook{At: Prerouting, Priority: priorityDestinationNAT, NAT: true}, to)
	s.own(baseFloatingHost, &Hook{At: Output, Priority: priorityDestinationNAT, NAT: true}, to)
	s.own(baseFloatingBack, &Hook{At: Postrouting, Priority: prioritySourceNAT - 1, NAT: true}, back)
}

// natsOf returns the floating addresses of an endpoint.
func (s *State) natsOf(id intent.EndpointID) []intent.NAT {
	if e := s.endpoints[id]; e != nil {
		return e.NATs
	}
	return nil
}

// refloat notes that an endpoint has other floating addresses than before.
func (s *State) refloat(id intent.EndpointID, was, is []intent.NAT) {
	if slices.Equal(was, is) {
		return
	}
	if s.floats[id] = struct{}{}; len(is) == 0 {
		delete(s.floats, id)
	}
	s.dirtyFloats = true
}
