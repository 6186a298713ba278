package desired

import (
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// baseLoops is the stage that ends what would be forwarded to an address of services. It exists only while the node advertises some.
const baseLoops = "forward-service-loops"

// serviceLoops wants the stage, or not. It is the last one of those that forward: policy has been asked, and whoever translates addresses of
// services, or rejects those that have no endpoint (kube-proxy, at priority 0), has had the packet. Until the source is in sync it stays as an
// earlier agent left it.
func (s *State) serviceLoops() {
	if !s.inSync {
		return
	}
	var gs []Guard
	do := Drop
	if s.host.ServiceLoops == intent.LoopsReject {
		do = Refuse
	}
	for _, f := range []intent.Family{intent.IPv4, intent.IPv6} {
		if to := netsOf(s.host.Services.All(), f); len(to) > 0 && s.host.ServiceLoops != intent.LoopsPass {
			gs = append(gs, Guard{
				Terms: ofFamily(f, []rules.Term{{Kind: rules.Nets, Side: rules.Dst, Nets: to}}),
				Do:    do, Comment: "no such service", By: always(intent.ReasonServiceLoop),
			})
		}
	}
	if len(gs) == 0 {
		s.drop(baseLoops, nil)
		return
	}
	s.own(baseLoops, &Hook{At: Forward, Priority: 3}, gs)
}
