package desired

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Chains of the skeleton. Those with a hook are the stages; a packet that passes one is asked about at later ones.
const (
	baseSource     = "prerouting-source"
	baseInput      = "input-from-workload"
	baseHost       = "input-after-workload"
	baseForwardOut = "forward-from-workload"
	baseForwardIn  = "forward-to-workload"

	chainSource     = "wl-source-check"
	chainGuard      = "wl-guard"
	chainToHost     = "wl-to-host"
	chainServices   = "wl-services"
	chainHostAction = "wl-host-action"
)

// pinned are the chains that follow from settings: as an earlier agent made them they stay, until the source is in sync.
var pinned = []string{chainHostAction, baseAcceptedIn, baseAcceptedOut, chainGuard, chainToHost, baseForwardOut, baseForwardIn, baseInput, baseHost}

// Reasons for states of the backend that should not occur.
const (
	reasonNoChain = "workload without a chain"
	reasonNoForm  = "could not be rendered"
)

const (
	protoIPIP   = 4
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// skeleton makes desired what depends on no intent but the settings.
func (s *State) skeleton() {
	from, to := rules.Src, rules.Dst
	stage := func(name string, hook Hook, gs []Guard) {
		// A stage that forwards is closed if somebody flushes its rules, until they are back. The host itself
		// must stay reachable, so its stages are open then.
		if hook.At == Forward {
			hook.Closed = true
			gs = append(gs, Guard{Do: Skip, Comment: "not a workload's"})
		}
		s.own(name, &hook, gs)
	}
	stage(baseSource, Hook{At: Prerouting, Priority: -300}, []Guard{{If: fromWorkload(), Do: Goto, Target: chainSource}})
	stage(baseForwardOut, Hook{At: Forward, Priority: -2}, append(s.stage(from),
		Guard{If: fromWorkload(), Do: Call, Target: chainGuard}, Guard{Do: Dispatch, Map: Sends}, dropLinks(from)))
	stage(baseForwardIn, Hook{At: Forward, Priority: -1}, slices.Concat(s.stage(to),
		s.invalid(Cond{Kind: OfWorkload, Side: to}), []Guard{{Do: Dispatch, Map: Receives}, dropLinks(to)}))
	stage(baseInput, Hook{At: Input, Priority: 0}, append(s.stage(from), Guard{If: fromWorkload(), Do: Goto, Target: chainToHost}))
	stage(baseHost, Hook{At: Input, Priority: 1}, slices.Concat([]Guard{
		{If: []Cond{{Kind: Established}}, Do: Skip},
		{If: fromWorkload(), Do: Call, Target: chainServices},
	}, s.served(), []Guard{
		{If: fromWorkload(), Do: Goto, Target: chainHostAction},
	}))
	s.own(chainSource, nil, sourceCheck())
	s.own(chainGuard, nil, s.invalid())
	s.own(chainServices, nil, services())
	s.own(chainToHost, nil, s.toHost())
	s.hostAction()
}

// own makes a chain of the skeleton desired.
func (s *State) own(name string, hook *Hook, gs []Guard) {
	s.want(Chain{Name: name, Hook: hook, Guards: gs, Pinned: slices.Contains(pinned, name)})
}

// configure takes the settings. What of the skeleton follows from them changes in the next transaction.
func (s *State) configure(h intent.HostSettings) {
	if s.host.MarkMask != h.MarkMask { // chains of both have bits of it
		for id := range s.endpoints {
			s.dirtyEndpoints[id] = struct{}{}
		}
	}
	if !s.configured || s.host.Log != h.Log || s.host.ReportAllowed != h.ReportAllowed || s.host.MarkMask != h.MarkMask { // see Logs and Reports
		for id := range s.policies {
			s.dirtyPolicies[id] = struct{}{}
		}
		if s.tables != nil {
			for c := range s.tables.outcomes {
				s.tables.again[c] = struct{}{}
			}
		}
	}
	s.host, s.configured, s.hosts.dirty, s.hosts.exclude = h, true, true, exclusions(h.Exclude)
	s.natOutgoing()
	s.metadata()
	s.serviceLoops()
	s.codePoints()
	s.tunnelStages()
	s.setCompiled(h.Compiled && s.cfg.Members != nil)
	if h.Prefixes != nil {
		s.cfg.Prefixes = h.Prefixes
	}
	s.skeleton()
}

// always is a decision for a reason, without a rule.
func always(reason string) intent.Decision {
	return intent.Decision{Reason: reason, Rule: intent.RuleID{Index: intent.NoRule}}
}

// fromWorkload matches packets from a workload whose policy is in force.
func fromWorkload() []Cond { return []Cond{{Kind: OfWorkload, Side: rules.Src}} }

// stage returns the first guards of every stage of workloads, seen through the incoming or outgoing interface. Unknown workload interfaces
// are dropped before established flows are accepted, and so are revoked flows.
func (s *State) stage(side rules.Side) []Guard {
	gs := []Guard{{If: []Cond{{Kind: OfClosed, Side: side}}, Comment: "closed endpoint", By: always(intent.ReasonClosed)}}
	for _, p := range s.cfg.Prefixes {
		gs = append(gs, Guard{
			If:      []Cond{{Kind: OnLink, Side: side, Link: p + everyLink}, {Kind: OfWorkload, Side: side, Not: true}},
			Comment: "interface that nobody programmed", By: always(intent.ReasonUnknownLink),
		})
	}
	gs = append(gs, Guard{If: []Cond{{Kind: Revoked}}, Comment: "revoked", By: always(intent.ReasonRevoked)})
	if side == rules.Src {
		gs = append(gs, s.tunnels()...)
	}
	return append(gs, Guard{If: []Cond{{Kind: Established}}, Do: Skip})
}

// dropLinks ends a stage for a workload that no map leads anywhere. The elements of an interface change in one transaction, so this is
// only a second line of defence.
func dropLinks(side rules.Side) Guard {
	return Guard{If: []Cond{{Kind: OfWorkload, Side: side}}, Comment: "workload without a chain", By: always(reasonNoChain)}
}

// sourceCheck drops what a workload sends from an address that is not routed to it.
func sourceCheck() []Guard {
	from := func(net string) rules.Term {
		return rules.Term{Kind: rules.Nets, Side: rules.Src, Nets: []netip.Prefix{netip.MustParsePrefix(net)}}
	}
	return []Guard{
		{If: []Cond{{Kind: Routed}}, Do: Return},
		{Terms: append([]rules.Term{from("0.0.0.0/32")}, ports(protoUDP, 68, 67)...), Do: Return, Comment: "DHCP"},
		neighbours(discovery, Return),
		{Terms: []rules.Term{from("fe80::/10")}, Do: Return, Comment: "link-local"},
		{Do: Dispatch, Map: Sources},
		{Comment: "spoofed source", By: always(intent.ReasonSpoofed)},
	}
}

// portOf matches one port of a protocol.
func portOf(proto uint8, side rules.Side, port uint16) []rules.Term {
	return []rules.Term{{Kind: rules.Protocol, Number: proto}, {Kind: rules.Ports, Side: side, Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

func ports(proto uint8, src, dst uint16) []rules.Term {
	return append(portOf(proto, rules.Src, src), portOf(proto, rules.Dst, dst)[1:]...)
}

func ofFamily(f intent.Family, terms []rules.Term) []rules.Term {
	return append([]rules.Term{{Kind: rules.Family, Number: uint8(f)}}, terms...)
}

// Types of ICMPv6 messages of neighbour discovery and of multicast listeners, version 2 of which has a type of its own (RFC 4861, RFC 3810).
var (
	discovery = [][2]uint8{{130, 136}, {143, 143}}
	noRouters = [][2]uint8{{130, 133}, {135, 136}, {143, 143}} // without advertisements of routers
)

// neighbours passes messages of such types.
func neighbours(types [][2]uint8, do Step) Guard {
	return Guard{
		Terms: ofFamily(intent.IPv6, []rules.Term{{Kind: rules.Protocol, Number: protoICMPv6}}),
		If:    []Cond{{Kind: ICMPTypes, Types: types}}, Do: do, Comment: "neighbour discovery, multicast listeners",
	}
}

// invalid drops what conntrack calls invalid, unless the settings leave it to policy.
func (s *State) invalid(cond ...Cond) []Guard {
	if s.host.AllowInvalid {
		return nil
	}
	return []Guard{{If: append(cond, Cond{Kind: Invalid}), Comment: "invalid", By: always(intent.ReasonInvalid)}}
}

// tunnels drop encapsulated packets that no policy may allow to a workload that sends. They come before established flows are accepted: one that was
// allowed must not outlive the setting that allowed it. The interface is looked up last, since few packets are of such a protocol.
func (s *State) tunnels() []Guard {
	drop := func(comment string, terms []rules.Term) Guard {
		return Guard{Terms: terms, If: fromWorkload(), Comment: comment, By: always(intent.ReasonTunnel)}
	}
	var gs []Guard
	if !s.host.AllowVXLAN {
		gs = append(gs, drop("VXLAN from a workload", portOf(protoUDP, rules.Dst, s.host.PortVXLAN())))
	}
	if !s.host.AllowIPIP {
		gs = append(gs, drop("IPIP from a workload", []rules.Term{{Kind: rules.Protocol, Number: protoIPIP}}))
	}
	return gs
}

// services passes what a workload needs of its host.
func services() []Guard {
	return []Guard{
		{Terms: ofFamily(intent.IPv4, ports(protoUDP, 68, 67)), Do: Pass, Comment: "DHCP"},
		{Terms: ofFamily(intent.IPv6, ports(protoUDP, 546, 547)), Do: Pass, Comment: "DHCPv6"},
		neighbours(noRouters, Pass), // a workload is not its host's router
	}
}

// toHost asks a workload's policy about what it sends to its host, except services.
func (s *State) toHost() []Guard {
	return slices.Concat([]Guard{
		{Do: Call, Target: chainServices},
		{Do: Call, Target: chainGuard},
	}, s.served(), []Guard{
		{Do: Dispatch, Map: Sends},
		{Comment: "workload without a chain", By: always(reasonNoChain)},
	})
}

// hostAction makes desired the host's action for packets to it that workload policy allowed. Return and accept are one here: no host endpoint's normal
// policy is asked about a workload's packets, and what others decide in tables of their own comes after either.
func (s *State) hostAction() {
	g := Guard{Comment: "workload to its host: drop", By: always(intent.ReasonToHost)}
	switch {
	case !s.inSync: // the setting may still change; see pinned
	case s.host.EndpointToHost == intent.ToHostReturn:
		g = Guard{Do: Pass, Comment: "workload to its host: return"}
	case s.host.EndpointToHost == intent.ToHostAccept:
		g = Guard{Do: Pass, Comment: "workload to its host: accept"}
	}
	s.own(chainHostAction, nil, []Guard{g})
}
