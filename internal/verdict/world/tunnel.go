package world

import "github.com/twillnet/twill/api"

// tunnels are what one FelixConfiguration lets workloads send; nil says nothing.
type tunnels struct{ vxlan, ipip *bool }

const (
	protoIPIP = 4 // RFC 2003
	protoUDP  = 17
	portVXLAN = 4789 // RFC 7348
)

// fromWorkload is the hop of a workload that sends: what encapsulates is dropped before any policy is asked, unless the settings
// of its node allow it.
func (w *World) fromWorkload(e *endpoint, p packet) Hop {
	encapsulates := p.proto == protoIPIP && !w.may(e.spec.Node, func(t tunnels) *bool { return t.ipip }) ||
		p.proto == protoUDP && p.dstPort == portVXLAN && !w.may(e.spec.Node, func(t tunnels) *bool { return t.vxlan })
	if !encapsulates || e.closed != "" {
		return w.hop(e, api.Egress, p)
	}
	return newHop(e, api.Egress, StageWorkload).end(Decision{Reason: ReasonTunnel, RuleIndex: -1, Action: string(api.Deny)})
}

// may is a setting of a node that allows something: its own, else everybody's, else no.
func (w *World) may(node string, of func(tunnels) *bool) bool {
	for _, name := range []string{"node." + node, "default"} {
		if found := of(w.tunnels[name]); found != nil {
			return *found
		}
	}
	return false
}
