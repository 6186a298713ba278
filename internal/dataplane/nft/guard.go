package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

var points = [...]nftables.HookNum{
	desired.Prerouting: nftables.HookPrerouting, desired.Input: nftables.HookInput, desired.Forward: nftables.HookForward,
	desired.Output: nftables.HookOutput, desired.Postrouting: nftables.HookPostrouting,
}

// hookOf returns the kernel's hook of a stage.
func hookOf(h *desired.Hook) *nftables.Hook {
	if h == nil {
		return nil
	}
	out := &nftables.Hook{Type: nftables.TypeFilter, Hook: points[h.At], Priority: int32(h.Priority), Policy: nftables.VerdictAccept}
	if h.NAT {
		out.Type = nftables.TypeNAT
	}
	if h.Closed {
		out.Policy = nftables.VerdictDrop
	}
	return out
}

// renderGuards renders the guards of a stage as kernel rules.
func (d *Driver) renderGuards(gs []desired.Guard) (out []nftables.Rule, names []attribution.Name, err error) {
	for _, g := range gs {
		if err := unsupported(g); err != nil {
			return nil, nil, err
		}
		if g.Do == desired.Classify {
			if d.state.GroupName(g.Group) == "" {
				return nil, nil, fmt.Errorf("nft: no group %d in the tables", g.Group)
			}
			out = append(out, d.classify(g)...)
			names = append(names, make([]attribution.Name, len(out)-len(names))...)
			continue
		}
		var name attribution.Name
		if g.By.Reason != "" {
			name = d.cfg.Names.Name(g.By, 0)
		}
		r := rules.Rule{Terms: g.Terms, Comment: g.Comment}
		for _, f := range familiesOf(r) {
			fr, ok := r, true
			if f != intent.AnyFamily {
				fr, ok = r.ForFamily(f)
			}
			if !ok {
				continue
			}
			if out, err = d.renderRule(out, fr, f, false, d.end(g, f, name)); err != nil {
				return nil, nil, err
			}
		}
		for len(names) < len(out) {
			names = append(names, name)
		}
	}
	return out, names, nil
}

// unsupported says which part of a guard cannot be rendered; nil: none. A condition that is dropped or inverted would open the stage.
func unsupported(g desired.Guard) error {
	if g.Do > desired.Classify {
		return fmt.Errorf("nft: no form for step %d", g.Do)
	}
	for _, c := range g.If {
		switch known := c.Kind >= desired.OnLink && c.Kind <= desired.OtherSource; {
		case !known:
			return fmt.Errorf("nft: no form for condition %d", c.Kind)
		case c.Not && c.Kind != desired.OfWorkload && c.Kind != desired.OfClosed:
			return fmt.Errorf("nft: no form for the negation of condition %d", c.Kind)
		}
	}
	return nil
}

// end renders the conditions of a guard, which follow its terms, and its step.
func (d *Driver) end(g desired.Guard, f intent.Family, name attribution.Name) (out exprs) {
	for _, c := range g.If {
		out = append(out, d.condition(c)...)
	}
	return append(out, d.stepExprs(g, f, name)...)
}

// stepExprs renders the step of a guard.
func (d *Driver) stepExprs(g desired.Guard, f intent.Family, name attribution.Name) exprs {
	switch g.Do {
	case desired.Pass:
		return exprs{nftables.Counter{}, nftables.Accept()}
	case desired.Skip:
		return exprs{nftables.Accept()}
	case desired.Call:
		return exprs{nftables.Jump(g.Target)}
	case desired.Goto:
		return exprs{nftables.Goto(g.Target)}
	case desired.Return:
		return exprs{nftables.Return()}
	case desired.Dispatch:
		return exprs{nftables.Meta{Key: linkKey(g.Map.Side())}, nftables.LookupVerdict{Map: mapNames[g.Map]}}
	case desired.Translate:
		return translation(g.Source, f)
	case desired.Deliver:
		return delivery(g.To)
	case desired.Mark:
		return dscp(g.DSCP, f)
	case desired.Hand:
		addr, port := nftables.R1, nftables.R2
		return exprs{
			nftables.Counter{},
			nftables.Load{Data: g.To.AsSlice(), Reg: addr},
			nftables.Load{Data: nftables.KeyPort(g.Port), Reg: port},
			nftables.NAT{Family: nfFamily(f), AddrMin: &addr, ProtoMin: &port},
		}
	case desired.LimitPackets:
		return slices.Concat(exprs{nftables.Limit{Rate: uint64(g.Most), Burst: g.Burst, Over: true}}, d.count(g.By, name), exprs{nftables.Drop()})
	case desired.LimitConnections:
		return slices.Concat(exprs{nftables.ConnLimit{Count: g.Most, Over: true}}, d.count(g.By, name), exprs{nftables.Reject{Type: nftables.RejectReset}})
	case desired.Untrack:
		return exprs{nftables.NoTrack{}, nftables.Accept()}
	case desired.Unmark:
		return nftables.SetMarkBits(0, d.marks().Of(kernel.MarkUntracked|kernel.MarkHostPassed))
	case desired.Refuse:
		return append(d.count(g.By, name), nftables.Reject{Type: nftables.RejectICMPX, Code: nftables.PortICMPX})
	}
	return append(d.count(g.By, name), nftables.Drop())
}

// linkKey returns the incoming (Src) or outgoing (Dst) interface.
func linkKey(side rules.Side) nftables.MetaKey {
	if side == rules.Dst {
		return nftables.MetaOIFName
	}
	return nftables.MetaIIFName
}

// condition renders a condition of a guard that is supported.
func (d *Driver) condition(c desired.Cond) exprs {
	switch c.Kind {
	case desired.OnLink:
		if c.Side == rules.Src {
			return nftables.MatchIIFName(c.Link)
		}
		return nftables.MatchOIFName(c.Link)
	case desired.OfWorkload:
		return exprs{nftables.Meta{Key: linkKey(c.Side)}, nftables.Lookup{Set: setLinks, Not: c.Not}}
	case desired.OfClosed:
		return exprs{nftables.Meta{Key: linkKey(c.Side)}, nftables.Lookup{Set: setClosed, Not: c.Not}}
	case desired.Established:
		return nftables.MatchCTState(nftables.StateEstablished | nftables.StateRelated)
	case desired.Beginning:
		return nftables.MatchCTState(nftables.StateNew)
	case desired.Invalid:
		return nftables.MatchCTState(nftables.StateInvalid)
	case desired.Revoked:
		return nftables.MatchCTMark(kernel.ConntrackRevoked, kernel.ConntrackRevoked)
	case desired.Rechecked:
		return rechecked(c.Side)
	case desired.AllowedEarly:
		return d.matchMark(kernel.MarkHostPassed, false)
	case desired.Untracked:
		return d.matchMark(kernel.MarkUntracked, false)
	case desired.Routed:
		return exprs{
			nftables.Fib{Flags: nftables.FibSaddr | nftables.FibIIF | nftables.FibPresent, Result: nftables.FibResultOIF},
			nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(1)},
		}
	case desired.Forwarded:
		return forwarded()
	case desired.OtherSource:
		return otherSource()
	case desired.ICMPTypes:
		var els []nftables.Element
		for _, r := range c.Types {
			for n := int(r[0]); n <= int(r[1]); n++ { // no intervals: see nftables.MatchAddrs
				els = append(els, nftables.Element{Key: []byte{byte(n)}})
			}
		}
		return exprs{nftables.ICMPType(), nftables.In{Set: nftables.Set{Key: nftables.TypeICMPv6Type}, Elements: els}}
	}
	return exprs{nftables.Drop()}
}

const local = 2 // RTN_LOCAL of rtnetlink(7)

// otherSource matches packets whose source is of the host, and not of the interface that they leave by: asked with an interface, the kernel calls
// addresses of others unicast.
func otherSource() exprs {
	return exprs{
		nftables.Fib{Flags: nftables.FibSaddr, Result: nftables.FibResultAddrType},
		nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(local)},
		nftables.Fib{Flags: nftables.FibSaddr | nftables.FibOIF, Result: nftables.FibResultAddrType},
		nftables.Cmp{Op: nftables.Neq, Data: nftables.U32(local)},
	}
}

// forwarded matches in postrouting packets that came in by an interface, and not from the host. A packet in which a tunnel device
// encapsulated a forwarded one has an incoming interface, too, since ip_output takes it from skb->dev, which is the tunnel's; but its
// source is an address of the host. This is before source NAT, so a forwarded packet has no source of the host.
func forwarded() exprs {
	return exprs{
		nftables.Meta{Key: nftables.MetaIIFName},
		nftables.Cmp{Op: nftables.Neq, Data: make([]byte, 16)},
		nftables.Fib{Flags: nftables.FibSaddr, Result: nftables.FibResultAddrType},
		nftables.Cmp{Op: nftables.Neq, Data: nftables.U32(local)},
	}
}

// translation renders source NAT.
func translation(s desired.Source, f intent.Family) exprs {
	out := exprs{nftables.Counter{}}
	addr, first, last := nftables.R1, nftables.R2, nftables.R3
	var min, max *nftables.Reg
	var flags uint32
	if s.Random {
		flags = nftables.NATFullyRandom
	}
	if s.Ports != (intent.PortRange{}) {
		out = append(out, nftables.Load{Data: nftables.KeyPort(s.Ports.Min), Reg: first}, nftables.Load{Data: nftables.KeyPort(s.Ports.Max), Reg: last})
		min, max = &first, &last
	}
	if !s.Addr.IsValid() {
		return append(out, nftables.Masq{ProtoMin: min, ProtoMax: max, Flags: flags})
	}
	return append(out, nftables.Load{Data: s.Addr.AsSlice(), Reg: addr}, nftables.NAT{Source: true, Family: nfFamily(f), AddrMin: &addr, ProtoMin: min, ProtoMax: max, Flags: flags})
}

// delivery renders destination NAT. The bit in the mark of the connection outlives the rule, so that a connection is known for one to a floating
// address when that is another workload's.
func delivery(to netip.Addr) exprs {
	f, addr := nftables.FamilyIPv6, nftables.R1
	if to.Is4() {
		f = nftables.FamilyIPv4
	}
	return slices.Concat(exprs{nftables.Counter{}}, nftables.SetCTMarkBits(kernel.ConntrackFloating),
		exprs{nftables.Load{Data: to.AsSlice(), Reg: addr}, nftables.NAT{Family: f, AddrMin: &addr}})
}

// dscp renders a new code point: six bits after the version and length of IPv4's header (RFC 791), or after the version of IPv6's (RFC 8200).
func dscp(value uint8, f intent.Family) exprs {
	mask, bits := []byte{0xff, 0x03}, []byte{0, value << 2}
	if f == intent.IPv6 {
		mask, bits = []byte{0xf0, 0x3f}, []byte{value >> 2, value << 6}
	}
	return exprs{
		nftables.Counter{},
		nftables.Payload{Base: nftables.NetworkHeader, Len: 2},
		nftables.Bitwise{Mask: mask, Xor: bits},
		nftables.Write{Base: nftables.NetworkHeader, Len: 2, Checksum: f == intent.IPv4},
	}
}
