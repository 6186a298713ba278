package nft

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Sets and maps of the skeleton, keyed by the name of an interface.
const (
	setLinks  = kernel.SetWorkloads // of workloads whose policy is in force
	setClosed = kernel.SetClosed    // of workloads that must carry nothing
	mapIn     = "wl-in"             // to the chain through which a workload receives
	mapOut    = "wl-out"            // to the chain through which it sends
	mapSource = "wl-source"         // to the chain of addresses it may send from besides its own
)

// Chains of the skeleton. The base chains are the stages; to accept means that a packet has passed this stage.
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

// reasonNoChain is a state of the table that should not be.
const reasonNoChain = "workload without a chain"

const (
	protoIPIP   = 4
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// skeleton wants what does not depend on any intent.
func (d *Driver) skeleton() {
	for _, name := range []string{setLinks, setClosed} {
		d.want(d.kset(nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname}, intent.Key{}), true)
	}
	for _, name := range []string{mapIn, mapOut, mapSource} {
		spec := nftables.Set{Table: d.cfg.Table, Name: name, Key: nftables.TypeIfname, Data: nftables.TypeVerdict}
		d.want(d.kset(spec, intent.Key{}), true)
	}
	base := func(name string, hook nftables.HookNum, priority int32, rs []nftables.Rule) {
		// Somebody who flushes the rules of a stage that forwards leaves it closed, until they are back. The host itself
		// must stay within reach, so its stages are open then.
		policy := nftables.VerdictAccept
		if hook == nftables.HookForward {
			policy = nftables.VerdictDrop
			rs = append(rs, rule("not a workload's", nftables.Accept()))
		}
		d.setChain(nftables.Chain{Name: name, Base: &nftables.Hook{
			Type: nftables.TypeFilter, Hook: hook, Priority: priority, Policy: policy,
		}}, rs, intent.Key{})
	}
	base(baseSource, nftables.HookPrerouting, -300, []nftables.Rule{
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Goto(chainSource)),
	})
	base(baseForwardOut, nftables.HookForward, -2, append(d.stage(nftables.MetaIIFName),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Jump(chainGuard)),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.LookupVerdict{Map: mapOut}),
		d.dropLinks(nftables.MetaIIFName)))
	base(baseForwardIn, nftables.HookForward, -1, slices.Concat(d.stage(nftables.MetaOIFName),
		d.invalid(nftables.Meta{Key: nftables.MetaOIFName}, nftables.Lookup{Set: setLinks}), []nftables.Rule{
			rule("", nftables.Meta{Key: nftables.MetaOIFName}, nftables.LookupVerdict{Map: mapIn}),
			d.dropLinks(nftables.MetaOIFName),
		}))
	base(baseInput, nftables.HookInput, 0, append(d.stage(nftables.MetaIIFName),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Goto(chainToHost))))
	base(baseHost, nftables.HookInput, 1, []nftables.Rule{
		rule("", join(nftables.MatchCTState(nftables.StateEstablished|nftables.StateRelated), exprs{nftables.Accept()})...),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Jump(chainServices)),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}, nftables.Goto(chainHostAction)),
	})
	own := func(name string, rs []nftables.Rule) {
		d.setChain(nftables.Chain{Name: name}, rs, intent.Key{})
	}
	own(chainSource, d.sourceCheck())
	own(chainGuard, d.invalid())
	own(chainServices, services())
	own(chainToHost, d.toHost())
	d.hostAction()
}

// configure takes over settings. What of the skeleton follows from them changes in the next transaction.
func (d *Driver) configure(h intent.HostSettings) {
	if !d.configured || d.host.Log != h.Log || d.host.ReportAllowed != h.ReportAllowed { // until then, logs have a limit of our own
		for id := range d.policies {
			d.dirtyPolicies[id] = struct{}{}
		}
	}
	d.host, d.configured, d.hosts.dirty, d.hosts.exclude = h, true, true, exclusions(h.Exclude)
	d.natOutgoing()
	if h.Prefixes != nil {
		d.cfg.Prefixes = h.Prefixes
	}
	d.skeleton()
}

// pin leaves what follows from settings as an earlier agent made it, until the source is in sync.
func (d *Driver) pin() {
	for _, name := range []string{chainHostAction, chainGuard, baseForwardOut, baseForwardIn, baseInput} {
		d.chains[name].pinned = true
	}
}

// rule is a rule of the skeleton.
func rule(comment string, xs ...nftables.Expr) nftables.Rule {
	return nftables.Rule{Exprs: xs, Comment: comment}
}

func join(parts ...[]nftables.Expr) []nftables.Expr {
	var out []nftables.Expr
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func count(v nftables.Verdict) exprs { return exprs{nftables.Counter{}, v} }

// stage begins every stage of workloads, seen through the incoming or outgoing interface. What nobody programmed is
// dropped before established flows are accepted, and so are revoked flows.
func (d *Driver) stage(key nftables.MetaKey) []nftables.Rule {
	rs := []nftables.Rule{rule("closed endpoint", join(
		exprs{nftables.Meta{Key: key}, nftables.Lookup{Set: setClosed}}, d.drop(intent.ReasonClosed))...)}
	for _, p := range d.cfg.Prefixes {
		match := nftables.MatchIIFName
		if key == nftables.MetaOIFName {
			match = nftables.MatchOIFName
		}
		rs = append(rs, rule("interface that nobody programmed", join(match(p+"*"),
			exprs{nftables.Meta{Key: key}, nftables.Lookup{Set: setLinks, Not: true}}, d.drop(intent.ReasonUnknownLink))...))
	}
	rs = append(rs, rule("revoked", join(nftables.MatchCTMark(kernel.ConntrackRevoked, kernel.ConntrackRevoked), d.drop(intent.ReasonRevoked))...))
	if key == nftables.MetaIIFName {
		rs = append(rs, d.tunnels()...)
	}
	return append(rs, rule("", join(nftables.MatchCTState(nftables.StateEstablished|nftables.StateRelated), exprs{nftables.Accept()})...))
}

// dropLinks ends a stage for a workload that no map leads anywhere. The sets and maps change together, so this is for
// the day on which they do not.
func (d *Driver) dropLinks(key nftables.MetaKey) nftables.Rule {
	return rule("workload without a chain", join(
		exprs{nftables.Meta{Key: key}, nftables.Lookup{Set: setLinks}}, d.drop(reasonNoChain))...)
}

// sourceCheck drops what a workload sends from an address that is not routed to it.
func (d *Driver) sourceCheck() []nftables.Rule {
	anywhere := netip.MustParsePrefix("0.0.0.0/32")
	return []nftables.Rule{
		rule("", nftables.Fib{Flags: nftables.FibSaddr | nftables.FibIIF | nftables.FibPresent, Result: nftables.FibResultOIF},
			nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(1)}, nftables.Return()),
		rule("DHCP", join(nftables.MatchSrc(anywhere, false), ports(protoUDP, 68, 67), exprs{nftables.Return()})...),
		rule("neighbour discovery, multicast listeners", join(nftables.MatchNFProto(nftables.FamilyIPv6),
			icmpv6Types(130, 136), exprs{nftables.Return()})...),
		rule("link-local", join(nftables.MatchSrc(netip.MustParsePrefix("fe80::/10"), false), exprs{nftables.Return()})...),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.LookupVerdict{Map: mapSource}),
		rule("spoofed source", d.drop(intent.ReasonSpoofed)...),
	}
}

func ports(proto uint8, src, dst uint16) exprs {
	return join(nftables.MatchL4Proto(proto), nftables.MatchPorts(nftables.SrcPort(), [][2]uint16{{src, src}}, false),
		nftables.MatchPorts(nftables.DstPort(), [][2]uint16{{dst, dst}}, false))
}

// icmpv6Types matches a range of types, and version 2 of the multicast listener report, which came later.
func icmpv6Types(first, last uint8) exprs {
	return join(nftables.MatchL4Proto(protoICMPv6), exprs{nftables.ICMPType(), nftables.In{
		Set:      nftables.Set{Key: nftables.TypeICMPv6Type, Interval: true},
		Elements: []nftables.Element{nftables.RangeElement([]byte{first}, []byte{last}), nftables.RangeElement([]byte{143}, []byte{143})},
	}})
}

// invalid drops what conntrack calls so, unless the settings leave it to policy.
func (d *Driver) invalid(match ...nftables.Expr) []nftables.Rule {
	if d.host.AllowInvalid {
		return nil
	}
	return []nftables.Rule{rule("invalid", join(match, nftables.MatchCTState(nftables.StateInvalid), d.drop(intent.ReasonInvalid))...)}
}

// tunnels drop what no policy may allow to a workload that sends. They come before established flows are accepted: one that was
// allowed must not outlive the setting that allowed it. The interface is looked up last, since few packets are of such a protocol.
func (d *Driver) tunnels() []nftables.Rule {
	drop := func(comment string, match exprs) nftables.Rule {
		return rule(comment, join(match, exprs{nftables.Meta{Key: nftables.MetaIIFName}, nftables.Lookup{Set: setLinks}}, d.drop(intent.ReasonTunnel))...)
	}
	var rs []nftables.Rule
	if !d.host.AllowVXLAN {
		rs = append(rs, drop("VXLAN from a workload", join(nftables.MatchL4Proto(protoUDP),
			nftables.MatchPorts(nftables.DstPort(), [][2]uint16{{4789, 4789}}, false))))
	}
	if !d.host.AllowIPIP {
		rs = append(rs, drop("IPIP from a workload", nftables.MatchL4Proto(protoIPIP)))
	}
	return rs
}

// services lets through what a workload needs of its host.
func services() []nftables.Rule {
	return []nftables.Rule{
		rule("DHCP", join(nftables.MatchNFProto(nftables.FamilyIPv4), ports(protoUDP, 68, 67), count(nftables.Accept()))...),
		rule("DHCPv6", join(nftables.MatchNFProto(nftables.FamilyIPv6), ports(protoUDP, 546, 547), count(nftables.Accept()))...),
		rule("neighbour discovery, multicast listeners", join(nftables.MatchNFProto(nftables.FamilyIPv6),
			icmpv6Types(130, 136), count(nftables.Accept()))...),
	}
}

// toHost asks a workload's policy about what it sends to its host, services apart.
func (d *Driver) toHost() []nftables.Rule {
	return []nftables.Rule{
		rule("", nftables.Jump(chainServices)),
		rule("", nftables.Jump(chainGuard)),
		rule("", nftables.Meta{Key: nftables.MetaIIFName}, nftables.LookupVerdict{Map: mapOut}),
		rule("workload without a chain", d.drop(reasonNoChain)...),
	}
}

// hostAction wants what becomes of packets to the host that policy let through. Return and accept differ only for
// host endpoints, whose stage comes after this one.
func (d *Driver) hostAction() {
	r := rule("workload to its host: drop", d.drop(intent.ReasonToHost)...)
	switch {
	case !d.inSync: // the setting may yet change; see pinned
	case d.host.EndpointToHost == intent.ToHostReturn:
		r = rule("workload to its host: return", count(nftables.Accept())...)
	case d.host.EndpointToHost == intent.ToHostAccept:
		r = rule("workload to its host: accept", count(nftables.Accept())...)
	}
	d.setChain(nftables.Chain{Name: chainHostAction}, []nftables.Rule{r}, intent.Key{})
}

// unpin lets go of what had to stay as it was until the source was in sync.
func (d *Driver) unpin() {
	for _, c := range d.chains {
		c.pinned = false
	}
	d.hostAction()
	d.natOutgoing()
}
