package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

type exprs = []nftables.Expr

// renderRules renders neutral rules as kernel rules, and returns for each the name of what decides there.
func (d *Driver) renderRules(rs []rules.Rule, generation uint16) (out []nftables.Rule, names []attribution.Name, err error) {
	out = make([]nftables.Rule, 0, len(rs))
	for _, r := range rs {
		if r.Action == rules.Return {
			continue // a packet that was allowed has left the stage already: see actionExprs
		}
		var name attribution.Name
		if r.By.Reason != "" {
			name = d.cfg.Names.Name(r.By, generation)
		}
		for _, f := range familiesOf(r) {
			fr, ok := r, true
			if f != intent.AnyFamily {
				fr, ok = r.ForFamily(f)
			}
			if !ok {
				continue
			}
			if out, err = d.renderRule(out, fr, f, r.Action == rules.Log, d.actionExprs(fr, name)); err != nil {
				return nil, nil, err
			}
		}
		for len(names) < len(out) {
			names = append(names, name)
		}
	}
	return out, names, nil
}

// familiesOf returns the families for which a rule is rendered separately.
func familiesOf(r rules.Rule) []intent.Family {
	if r.ByFamily() {
		return families[:]
	}
	return []intent.Family{intent.AnyFamily}
}

// renderRule appends the kernel rules for the terms of a rule in one family, each followed by end. With exclusive, no packet matches two of them.
func (d *Driver) renderRule(out []nftables.Rule, r rules.Rule, f intent.Family, exclusive bool, end exprs) ([]nftables.Rule, error) {
	alts := []exprs{nil}
	if f != intent.AnyFamily {
		alts = []exprs{nftables.MatchNFProto(nfFamily(f))}
	}
	for _, t := range r.Terms {
		ways, err := d.renderTerm(t, f, exclusive)
		if err != nil {
			return nil, err
		}
		next := make([]exprs, 0, len(alts)*len(ways))
		for _, a := range alts {
			for _, w := range ways {
				next = append(next, append(a[:len(a):len(a)], w...))
			}
		}
		alts = next
	}
	for _, a := range alts {
		out = append(out, nftables.Rule{Exprs: append(a, end...), Comment: comment(r.Comment)})
	}
	return out, nil
}

func nfFamily(f intent.Family) nftables.Family {
	if f == intent.IPv6 {
		return nftables.FamilyIPv6
	}
	return nftables.FamilyIPv4
}

// logSnaplen bounds what a rule with action Log reports of a packet, in bytes: a flood of packets must not become a flood of copies. A packet
// over the rate limit goes on, as any logged packet does.
const logSnaplen = 128 // bytes: the headers

// log reports a packet, within the rate limit of the settings: to the agent in one group, to any other reader in another, since a
// group has one reader.
func (d *Driver) log(r rules.Rule, name attribution.Name) exprs {
	set := d.state.Logs()
	out := exprs{nftables.Counter{}}
	if set.Rate > 0 {
		out = append(out, nftables.Limit{Rate: uint64(set.Rate), Per: uint64(set.Per / time.Second), Burst: set.Burst})
	}
	return append(out, nftables.NFLog{Group: kernel.NFLogUser, Prefix: comment(r.Comment), Snaplen: logSnaplen},
		nftables.NFLog{Group: kernel.NFLogLogged, Prefix: name.Prefix(), Snaplen: logSnaplen})
}

// count returns what comes before a verdict: a counter, and a report under the name of what decides, if the settings ask for it.
func (d *Driver) count(by intent.Decision, name attribution.Name) exprs {
	count := exprs{nftables.Counter{}}
	if !d.state.Reports(by) {
		return count
	}
	return append(count, nftables.NFLog{Group: kernel.NFLogVerdicts, Prefix: name.Prefix()})
}

// actionExprs counts what was matched and acts on it.
func (d *Driver) actionExprs(r rules.Rule, name attribution.Name) exprs {
	count := d.count(r.By, name)
	switch r.Action {
	case rules.Allow:
		return append(count, nftables.Accept())
	case rules.AllowUntracked:
		return slices.Concat(count, d.noteUntracked(), exprs{nftables.Accept()})
	case rules.AllowEarly:
		return slices.Concat(count, d.noteEarly(), exprs{nftables.Accept()})
	case rules.Pass:
		return append(append(count, d.setMark(kernel.MarkPassed)...), nftables.Return())
	case rules.Log:
		return d.log(r, name)
	case rules.Jump:
		return exprs{nftables.Jump(r.Target)}
	case rules.Begin, rules.Next:
		return nftables.SetMarkBits(0, d.marks().Of(kernel.MarkPassed))
	case rules.Permit:
		return append(count, nftables.Return())
	case rules.PermitUntracked:
		return slices.Concat(count, d.noteUntracked(), exprs{nftables.Return()})
	case rules.PermitEarly:
		return slices.Concat(count, d.noteEarly(), exprs{nftables.Return()})
	case rules.Accept:
		return append(count, nftables.Accept())
	case rules.Reset:
		return append(count, nftables.Reject{Type: nftables.RejectReset})
	case rules.Reject:
		return append(count, nftables.Reject{Type: nftables.RejectICMPX, Code: nftables.ProhibitedICMPX})
	}
	return append(count, nftables.Drop())
}

// noteUntracked has a packet without a connection, and later stages know that the untracked stage allowed it.
func (d *Driver) noteUntracked() exprs {
	return append(exprs{nftables.NoTrack{}}, d.setMark(kernel.MarkUntracked|kernel.MarkHostPassed)...)
}

// noteEarly has later stages know that an early stage allowed a packet.
func (d *Driver) noteEarly() exprs { return d.setMark(kernel.MarkHostPassed) }

// renderTerm returns the alternatives by which a term may match: one for each set of the kernel that must be asked, and each range of ports.
// With exclusive, no packet matches two of them.
func (d *Driver) renderTerm(t rules.Term, f intent.Family, exclusive bool) ([]exprs, error) {
	switch t.Kind {
	case rules.Protocol:
		return []exprs{{nftables.Meta{Key: nftables.MetaL4Proto}, compare(t.Not, t.Number)}}, nil
	case rules.ICMPType:
		return []exprs{{nftables.ICMPType(), compare(t.Not, t.Number)}}, nil
	case rules.ICMPCode:
		return []exprs{{nftables.ICMPCode(), compare(t.Not, t.Number)}}, nil
	case rules.Ports:
		return matchPorts(t), nil
	case rules.Nets:
		return nftables.MatchAddrs(address(t.Side, f), t.Nets, t.Not), nil
	case rules.Passed:
		return []exprs{d.matchMark(kernel.MarkPassed, t.Not)}, nil
	case rules.Addrs, rules.PortSet:
		return d.renderSet(t, f, exclusive)
	}
	return nil, fmt.Errorf("term %s has no form in nftables", t)
}

func compare(not bool, n uint8) nftables.Cmp {
	if not {
		return nftables.Cmp{Op: nftables.Neq, Data: []byte{n}}
	}
	return nftables.Cmp{Op: nftables.Eq, Data: []byte{n}}
}

// marks are the bits of packets' marks that the settings leave to us.
func (d *Driver) marks() kernel.Marks { return kernel.Marks(d.host.MarkMask) }

// setMark sets bits of the mark of packets.
func (d *Driver) setMark(marks uint32) exprs {
	return nftables.SetMarkBits(d.marks().Of(marks), 0)
}

func (d *Driver) matchMark(mark uint32, not bool) exprs {
	bit := d.marks().Of(mark)
	if not {
		return nftables.MatchMark(0, bit)
	}
	return nftables.MatchMark(bit, bit)
}

func port(s rules.Side) nftables.Payload {
	if s == rules.Dst {
		return nftables.DstPort()
	}
	return nftables.SrcPort()
}

func address(s rules.Side, f intent.Family) nftables.Payload {
	if s == rules.Dst {
		return nftables.Dst(nfFamily(f))
	}
	return nftables.Src(nfFamily(f))
}

// matchPorts returns the alternatives by which a port may be one of a term.
func matchPorts(t rules.Term) []exprs {
	ranges := make([][2]uint16, len(t.Ports))
	for i, p := range t.Ports {
		ranges[i] = [2]uint16{p.Min, p.Max}
	}
	return nftables.MatchPorts(port(t.Side), ranges, t.Not)
}

// renderSet looks an address up in the kernel sets of one set: a member is in any of them, a negated term wants it in none. Without a
// kernel set, nothing is a member.
func (d *Driver) renderSet(t rules.Term, f intent.Family, exclusive bool) ([]exprs, error) {
	s := d.sets[t.Set]
	if s == nil || (s.kind == intent.SetPorts) != (t.Kind == rules.PortSet) || f == intent.AnyFamily {
		return nil, fmt.Errorf("no such set as %s", t)
	}
	i := slot(netip.IPv4Unspecified())
	if f == intent.IPv6 {
		i = slot(netip.IPv6Unspecified())
	}
	load := exprs{address(t.Side, f)}
	if s.kind == intent.SetPorts {
		words := nftables.Reg(s.exact[i].spec.Key.Fields()[0].Len() / 4)
		load = append(load, nftables.Meta{Key: nftables.MetaL4Proto, Reg: nftables.R1 + words},
			port(t.Side).In(nftables.R1+words+1))
	}
	var ways []exprs
	var none exprs
	for _, name := range d.kinds(s, i) {
		in := slices.Concat(load, exprs{nftables.Lookup{Set: name}})
		if exclusive {
			in = slices.Concat(none, in)
		}
		ways = append(ways, in)
		none = append(append(none, load...), nftables.Lookup{Set: name, Not: true})
	}
	if t.Not {
		return []exprs{none}, nil
	}
	return ways, nil
}
