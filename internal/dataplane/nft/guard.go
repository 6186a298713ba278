package nft

import (
	"fmt"

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

// hookOf is where the kernel calls a stage.
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

// renderGuards turns the guards of a stage into rules of the kernel.
func (d *Driver) renderGuards(gs []desired.Guard) (out []nftables.Rule, names []attribution.Name, err error) {
	for _, g := range gs {
		if err := formless(g); err != nil {
			return nil, nil, err
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

// formless says what of a guard has no form here. A condition that were left out, or taken for its opposite, would open the stage.
func formless(g desired.Guard) error {
	if g.Do > desired.Translate {
		return fmt.Errorf("nft: no form for step %d", g.Do)
	}
	for _, c := range g.If {
		switch known := c.Kind >= desired.OnLink && c.Kind <= desired.ICMPTypes; {
		case !known:
			return fmt.Errorf("nft: no form for condition %d", c.Kind)
		case c.Not && c.Kind != desired.OfWorkload && c.Kind != desired.OfClosed:
			return fmt.Errorf("nft: no form for the negation of condition %d", c.Kind)
		}
	}
	return nil
}

// end is what a guard asks besides its terms, and what it does.
func (d *Driver) end(g desired.Guard, f intent.Family, name attribution.Name) (out exprs) {
	for _, c := range g.If {
		out = append(out, d.condition(c)...)
	}
	return append(out, d.does(g, f, name)...)
}

// does is what a guard does.
func (d *Driver) does(g desired.Guard, f intent.Family, name attribution.Name) exprs {
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
	}
	return append(d.tell(g.By, name), nftables.Drop())
}

// linkKey is the interface that a packet came by, or leaves by.
func linkKey(side rules.Side) nftables.MetaKey {
	if side == rules.Dst {
		return nftables.MetaOIFName
	}
	return nftables.MetaIIFName
}

// condition matches as a condition says that is not formless.
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
	case desired.Invalid:
		return nftables.MatchCTState(nftables.StateInvalid)
	case desired.Revoked:
		return nftables.MatchCTMark(kernel.ConntrackRevoked, kernel.ConntrackRevoked)
	case desired.AllowedEarly:
		return nftables.MatchMark(kernel.MarkHostPassed, kernel.MarkHostPassed)
	case desired.Untracked:
		return nftables.MatchMark(kernel.MarkUntracked, kernel.MarkUntracked)
	case desired.Routed:
		return exprs{
			nftables.Fib{Flags: nftables.FibSaddr | nftables.FibIIF | nftables.FibPresent, Result: nftables.FibResultOIF},
			nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(1)},
		}
	case desired.Forwarded:
		return forwarded()
	case desired.ICMPTypes:
		var els []nftables.Element
		for _, r := range c.Types {
			els = append(els, nftables.RangeElement([]byte{r[0]}, []byte{r[1]}))
		}
		return exprs{nftables.ICMPType(), nftables.In{Set: nftables.Set{Key: nftables.TypeICMPv6Type, Interval: true}, Elements: els}}
	}
	return exprs{nftables.Drop()}
}

// forwarded matches in postrouting what came in by an interface, and not from the host. A packet that a tunnel device made of one
// that was forwarded has an incoming interface, too, since ip_output takes that from skb->dev, which is the tunnel's; but its
// source is an address of the host. This is before source NAT, so what is forwarded has none.
func forwarded() exprs {
	const local = 2 // RTN_LOCAL of rtnetlink(7)
	return exprs{
		nftables.Meta{Key: nftables.MetaIIFName},
		nftables.Cmp{Op: nftables.Neq, Data: make([]byte, 16)},
		nftables.Fib{Flags: nftables.FibSaddr, Result: nftables.FibResultAddrType},
		nftables.Cmp{Op: nftables.Neq, Data: nftables.U32(local)},
	}
}

// translation gives a packet another source.
func translation(s desired.Source, f intent.Family) exprs {
	out := exprs{nftables.Counter{}}
	addr, first, last := nftables.R1, nftables.R2, nftables.R3
	var min, max *nftables.Reg
	if s.Ports != (intent.PortRange{}) {
		out = append(out, nftables.Load{Data: nftables.KeyPort(s.Ports.Min), Reg: first}, nftables.Load{Data: nftables.KeyPort(s.Ports.Max), Reg: last})
		min, max = &first, &last
	}
	if !s.Addr.IsValid() {
		return append(out, nftables.Masq{ProtoMin: min, ProtoMax: max})
	}
	return append(out, nftables.Load{Data: s.Addr.AsSlice(), Reg: addr}, nftables.NAT{Source: true, Family: nfFamily(f), AddrMin: &addr, ProtoMin: min, ProtoMax: max})
}
