package sim

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// Packet is a packet at the node.
type Packet struct {
	In, Out            string // interfaces; empty: from or to a process of the host
	Src, Dst           netip.Addr
	Proto              uint8
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8

	Established, Invalid, Revoked bool // state of conntrack, and whether the flow is revoked
	Reply                         bool // it goes against the direction in which its flow began
	Spoofed                       bool // its source is not routed to In
	Marked                        bool // it bears the marks of what an early stage of host endpoints allowed
	OwnSource                     bool // its source is an address of the host, though it came by In
}

// Verdict is the result for a packet.
type Verdict struct {
	Allowed  bool
	Rejected bool            // the sender gets an answer
	Reset    bool            // which is a TCP reset
	By       intent.Decision // the decision that dropped it
}

// Judge evaluates a packet at all stages.
func (d *Dataplane) Judge(p Packet) Verdict {
	points := []desired.Point{desired.Prerouting, desired.Forward, desired.Postrouting}
	switch {
	case p.In == "":
		points = []desired.Point{desired.Output, desired.Postrouting}
	case p.Out == "":
		points = []desired.Point{desired.Prerouting, desired.Input}
	}
	w := &walk{Dataplane: d, Packet: p, early: p.Marked, untracked: p.Marked}
	for _, at := range points {
		for _, stage := range d.stages(at) {
			w.passed = false
			if w.chain(stage) == dropped {
				return Verdict{Rejected: w.rejected, Reset: w.reset, By: w.by}
			}
		}
	}
	return Verdict{Allowed: true}
}

// stages returns the stages of a hook that decide, in their order.
func (d *Dataplane) stages(at desired.Point) []desired.Chain {
	var out []desired.Chain
	for _, c := range d.chains {
		if c.Hook != nil && c.Hook.At == at && !c.Hook.NAT {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b desired.Chain) int {
		if a.Hook.Priority != b.Hook.Priority {
			return a.Hook.Priority - b.Hook.Priority
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// end is the result of a chain for a packet.
type end uint8

const (
	undecided end = iota // no rule ended it
	passing              // the packet passed the stage
	dropped
)

// walk is the evaluation of one packet.
type walk struct {
	*Dataplane
	Packet
	passed           bool // to the next tier
	early, untracked bool // allowed at an early stage
	rejected, reset  bool
	by               intent.Decision
}

func (w *walk) chain(c desired.Chain) end {
	if c.Guards != nil {
		return w.guards(c)
	}
	for _, r := range c.Rules {
		of, applies := r.ForFamily(w.family())
		if !applies || !w.terms(of.Terms) {
			continue
		}
		if e := w.act(r); e != undecided {
			return e
		}
	}
	return undecided
}

// act applies the action of a rule; undecided: the next rule is asked.
func (w *walk) act(r rules.Rule) end {
	switch r.Action {
	case rules.Allow, rules.Accept:
		return passing
	case rules.AllowUntracked:
		w.early, w.untracked = true, true
		return passing
	case rules.AllowEarly:
		w.early = true
		return passing
	case rules.Pass:
		// A pass returns from the policy's chain; the rules after it are not asked.
		w.passed = true
		return returned
	case rules.Log:
		return undecided
	case rules.Jump:
		if e := w.chain(w.chains[r.Target]); e != returned {
			return e
		}
		return undecided
	case rules.Begin, rules.Next:
		w.passed = false
		return undecided
	case rules.Reset, rules.Reject:
		w.rejected, w.reset = true, r.Action == rules.Reset
	}
	w.by = r.By
	return dropped
}

// returned ends a chain, but not its caller.
const returned end = dropped + 1

func (w *walk) guards(c desired.Chain) end {
	for _, g := range c.Guards {
		r, applies := rules.Rule{Terms: g.Terms}.ForFamily(w.family())
		if !applies || !w.terms(r.Terms) || slices.ContainsFunc(g.If, func(x desired.Cond) bool { return w.holds(x) == x.Not }) {
			continue
		}
		switch g.Do {
		case desired.Drop, desired.Refuse:
			w.by, w.rejected = g.By, g.Do == desired.Refuse
			return dropped
		case desired.Pass, desired.Skip:
			return passing
		case desired.Call:
			if e := w.chain(w.chains[g.Target]); e == passing || e == dropped {
				return e
			}
		case desired.Goto:
			return w.last(c, w.chain(w.chains[g.Target]))
		case desired.Dispatch:
			if to := w.links[w.link(g.Map.Side())].Chain(g.Map); to != "" {
				return w.last(c, w.chain(w.chains[to]))
			}
		case desired.Return:
			return w.last(c, undecided)
		case desired.Unmark:
			w.early, w.untracked = false, false
		case desired.Untrack:
			w.Established, w.Invalid, w.Revoked = false, false, false
			return passing
		}
	}
	return w.last(c, undecided)
}

// last is the result of a chain of which no rule is left to ask.
func (w *walk) last(c desired.Chain, e end) end {
	if (e == undecided || e == returned) && c.Hook != nil && c.Hook.Closed {
		return dropped
	}
	return e
}

func (w *walk) family() intent.Family {
	if w.Src.Is6() {
		return intent.IPv6
	}
	return intent.IPv4
}

func (w *walk) link(s rules.Side) string {
	if s == rules.Dst {
		return w.Out
	}
	return w.In
}

// holds reports whether a condition matches, not counting its negation.
func (w *walk) holds(c desired.Cond) bool {
	link := w.link(c.Side)
	switch c.Kind {
	case desired.OnLink:
		begins, any := strings.CutSuffix(c.Link, "*")
		return link == c.Link || any && strings.HasPrefix(link, begins)
	case desired.OfWorkload:
		return w.links[link].Open
	case desired.OfClosed:
		return w.links[link].Closed
	case desired.Established:
		return w.Established && !w.untracked
	case desired.Beginning:
		return !w.Established && !w.Invalid
	case desired.Invalid:
		return w.Invalid
	case desired.Revoked:
		return w.Revoked
	case desired.Rechecked:
		return w.Established && !w.Reply && !w.untracked && w.links[link].Rechecked
	case desired.AllowedEarly:
		return w.early
	case desired.Untracked:
		return w.untracked
	case desired.Routed:
		return !w.Spoofed
	case desired.Forwarded:
		return w.In != "" && !w.OwnSource
	case desired.ICMPTypes:
		return slices.ContainsFunc(c.Types, func(t [2]uint8) bool { return t[0] <= w.ICMPType && w.ICMPType <= t[1] })
	}
	panic("sim: no such condition")
}

func (w *walk) terms(ts []rules.Term) bool {
	p := match.Packet{Src: w.Src, Dst: w.Dst, Proto: w.Proto, SrcPort: w.SrcPort, DstPort: w.DstPort, ICMPType: w.ICMPType, ICMPCode: w.ICMPCode}
	for i := range ts {
		switch t := &ts[i]; {
		case t.Kind == rules.Passed:
			if w.passed == t.Not {
				return false
			}
		case !t.Holds(p, w.Dataplane): // nor is anything Allowed: that has passed the stage already
			return false
		}
	}
	return true
}

// Has looks up each prefix that may contain an address.
func (d *Dataplane) Has(id intent.SetID, a netip.Addr) bool {
	is := d.members[id]
	for bits := a.BitLen(); bits >= 0; bits-- {
		if p, err := a.Prefix(bits); err == nil && is[intent.Member{Prefix: p}] {
			return true
		}
	}
	return false
}

// HasPort reports whether a port of an address is a member.
func (d *Dataplane) HasPort(id intent.SetID, a netip.Addr, proto uint8, port uint16) bool {
	return d.members[id][intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Proto: proto, Port: port}]
}
