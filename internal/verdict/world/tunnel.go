package world

import "github.com/twillnet/twill/api"

// tunnels are the encapsulations that one FelixConfiguration allows to workloads, and the UDP port of VXLAN; nil: not set.
type tunnels struct {
	vxlan, ipip *bool
	port        *int
}

const (
	protoIPIP = 4 // RFC 2003
	protoUDP  = 17
	portVXLAN = 4789 // RFC 7348
)

// fromWorkload is the hop of a workload that sends: encapsulated packets are dropped before any policy is evaluated, unless the settings
// of its node allow them.
func (w *World) fromWorkload(e *endpoint, p packet) Hop {
	if !w.encapsulates(e, p) || e.closed != "" {
		return w.hop(e, api.Egress, p)
	}
	return newHop(e, api.Egress, StageWorkload).end(Decision{Reason: ReasonTunnel, RuleIndex: -1, Action: string(api.Deny)})
}

// encapsulates reports whether a workload's packet has another in it, in a way that settings do not allow.
func (w *World) encapsulates(e *endpoint, p packet) bool {
	return p.proto == protoIPIP && !w.may(e.spec.Node, func(t tunnels) *bool { return t.ipip }) ||
		p.proto == protoUDP && int(p.dstPort) == w.portVXLAN(e.spec.Node) && !w.may(e.spec.Node, func(t tunnels) *bool { return t.vxlan })
}

// portVXLAN is the port of a node: its own setting, else the default one, else that of RFC 7348. One that is none is no setting.
func (w *World) portVXLAN(node string) int {
	for _, name := range []string{"node." + node, "default"} {
		if p := w.tunnels[name].port; p != nil && *p > 0 && *p < 1<<16 {
			return *p
		}
	}
	return portVXLAN
}

// may returns a setting of a node that allows something: its own, else the default one, else false.
func (w *World) may(node string, of func(tunnels) *bool) bool {
	for _, name := range []string{"node." + node, "default"} {
		if found := of(w.tunnels[name]); found != nil {
			return *found
		}
	}
	return false
}
