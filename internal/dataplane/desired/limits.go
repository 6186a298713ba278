package desired

import (
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Stages of what endpoints limit. They exist only while a workload limits something, and come after policy: what policy drops
// costs a workload nothing of its limits, and a packet that a limit drops was allowed. No stage is on the way from a host to its own workloads.
const (
	baseForwardSent     = "forward-limits-out" // what a workload sends
	baseForwardReceived = "forward-limits-in"  // what a workload receives
	baseInputSent       = "input-limits"       // what a workload sends to its host
)

// limitStages wants the stages, or not. Until the source is in sync they stay as an earlier agent left them.
func (s *State) limitStages() {
	if len(s.limited) == 0 {
		for _, name := range []string{baseForwardSent, baseForwardReceived, baseInputSent} {
			if s.inSync {
				s.drop(name, nil)
			}
		}
		return
	}
	s.own(baseForwardSent, &Hook{At: Forward, Priority: 1}, []Guard{{Do: Dispatch, Map: SendsWithin}})
	s.own(baseForwardReceived, &Hook{At: Forward, Priority: 2}, []Guard{{Do: Dispatch, Map: ReceivesWithin}})
	s.own(baseInputSent, &Hook{At: Input, Priority: 3}, []Guard{
		{If: fromWorkload(), Do: Call, Target: chainServices}, // neighbour discovery must not be dropped
		{Do: Dispatch, Map: SendsWithin},
	})
}

// relimit notes what an endpoint limits now.
func (s *State) relimit(id intent.EndpointID, q intent.QoS) {
	before := len(s.limited)
	if s.limited[id] = struct{}{}; q.In == (intent.Limits{}) && q.Out == (intent.Limits{}) {
		delete(s.limited, id)
	}
	s.dirtyLimits = s.dirtyLimits || (before == 0) != (len(s.limited) == 0)
}

// limitChains wants the chains of an endpoint that is open. Connections have a chain of their own, since the kernel counts them in the rule: it
// begins again when the rule is made again, so it stays as it is for as long as the number does.
func (s *State) limitChains(e intent.Endpoint) {
	key := intent.Key(e.ID)
	for i, l := range [2]intent.Limits{e.QoS.In, e.QoS.Out} {
		dir := directions[i]
		by := func(reason string) intent.Decision {
			return intent.Decision{Reason: reason, Endpoint: e.ID, Rule: intent.RuleID{Direction: dir, Index: intent.NoRule}}
		}
		main, count := rules.LimitChain(e.ID, dir), rules.ConnectionsChain(e.ID, dir)
		tcp := []rules.Term{{Kind: rules.Protocol, Number: protoTCP}}
		var gs []Guard
		if l.PacketRate > 0 {
			gs = append(gs, Guard{Do: LimitPackets, Most: l.PacketRate, Burst: l.PacketBurst, Comment: "packet rate", By: by(intent.ReasonPacketRate)})
		}
		if l.Connections > 0 {
			gs = append(gs, Guard{Terms: tcp, If: []Cond{{Kind: Beginning}}, Do: Call, Target: count})
			s.want(Chain{Name: count, Comment: e.Label, Owner: key, Guards: []Guard{
				{Terms: tcp, Do: LimitConnections, Most: l.Connections, Comment: "connections", By: by(intent.ReasonConnections)},
			}})
		} else {
			s.drop(count, key)
		}
		if len(gs) > 0 {
			s.want(Chain{Name: main, Comment: e.Label, Owner: key, Guards: gs})
		} else {
			s.drop(main, key)
		}
	}
}

// limitChain returns the chain to which an interface of an endpoint that is open leads; empty: it limits nothing there.
func limitChain(id intent.EndpointID, l intent.Limits, dir intent.Direction) string {
	if l.PacketRate == 0 && l.Connections == 0 {
		return ""
	}
	return rules.LimitChain(id, dir)
}
