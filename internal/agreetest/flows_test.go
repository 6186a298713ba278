package agreetest

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/calc/calctest"
	"github.com/twillnet/twill/internal/kernel/packet"
	"github.com/twillnet/twill/internal/verdict/world"
)

// flow is a connection that was allowed once, and has been answered.
type flow struct {
	question
	// kept: its ends have not moved since, so that the kernel still has it. Of one that has moved, the kernel may have forgotten it.
	kept bool
	at   [2]string // the links of its ends
	cut  bool      // when it was seen last
}

const (
	flagACK    = 0x10
	flagSYNACK = 0x12
	mostFlows  = 12
)

// ask sends new flows, and packets of those that live, and compares what becomes of them.
func (p *path) ask(seen *calctest.Coverage) bool {
	p.t.Helper()
	oracle := world.New(p.good.State())
	asker := asker{node: p.node, world: p.world, rng: p.rng, oracle: oracle, links: p.links, contested: contested(p.good)}
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool { return asker.contested[f.Src] || asker.contested[f.Dst] })
	ok := p.askFlows(oracle)
	qs := asker.questions(stepAsks)
	ps := make([]sending, len(qs))
	for i := range qs {
		ps[i] = qs[i].sending
	}
	f := p.deliver(ps)
	for i, q := range qs {
		q.sending = ps[i]
		ok = p.same(q, f, &p.verdict, p.links) && ok
		seen.Count(q.allowed, q.tags())
	}
	return ok && p.establish(qs, oracle)
}

// establish answers some of the questions that were allowed, so that they are connections.
func (p *path) establish(qs []question, oracle *world.World) bool {
	p.t.Helper()
	var opened []*flow
	for _, q := range qs {
		if q.allowed && len(p.flows)+len(opened) < mostFlows && answerable(q) && !p.untracked(q, oracle) && (ofWorkload(q) || p.rng.IntN(4) == 0) {
			opened = append(opened, &flow{question: q, kept: true, at: [2]string{p.links[q.Src], p.links[q.Dst]}})
		}
	}
	fates := p.exchange(opened, flagSYNACK, true)
	fates = append(fates, p.exchange(opened, flagACK, false)...)
	p.met["established"] += len(opened)
	p.flows = append(p.flows, opened...)
	for i, came := range fates {
		if f := opened[i%len(opened)]; !came {
			p.t.Errorf("%+v, in by %q, out by %q, was allowed, and then did not pass (answer: %v): %+v", f.query, f.link, f.out, i < len(opened), f.answer.Hops)
			return false
		}
	}
	return true
}

// ofWorkload reports whether one of this node's workloads is at an end: most of what may change concerns such flows.
func ofWorkload(q question) bool {
	return slices.ContainsFunc(q.answer.Hops, func(h world.Hop) bool { return h.Node == nodeName && h.Stage == world.StageWorkload })
}

// answerable reports whether we can make an answer to a packet that conntrack takes for one. What is for the host's own processes
// ends in the chain that reports it, before conntrack takes it for a connection.
func answerable(q question) bool {
	if q.out == "" {
		return false
	}
	switch q.Proto {
	case 6, 17:
		return true
	case 1:
		return q.ICMPType == 8
	case 58:
		return q.ICMPType == 128
	}
	return false
}

// untracked reports whether one of a flow's packets, there or back, may be decided before conntrack.
func (p *path) untracked(q question, oracle *world.World) bool {
	src, err1 := oracle.Resolve(q.query.Dst)
	dst, err2 := oracle.Resolve(q.query.Src)
	if err1 != nil || err2 != nil {
		return true
	}
	back := answerTo(q.sending)
	answer := oracle.Judge(world.Query{
		Src: src, Dst: dst, Uplink: uplink, Via: nodeName, Family: q.query.Family, Proto: back.Proto,
		SrcPort: back.SrcPort, DstPort: back.DstPort, ICMPType: back.ICMPType, ICMPCode: back.ICMPCode,
	})
	return slices.ContainsFunc(slices.Concat(q.answer.Hops, answer.Hops), func(h world.Hop) bool {
		return h.Node == nodeName && h.Stage == world.StageUntracked
	})
}

// askFlows compares what becomes of all connections with what the resources say of their first packets now.
func (p *path) askFlows(oracle *world.World) bool {
	p.t.Helper()
	// What a flow's first packet would meet now. Host endpoints cut no flow (package revoke), and of one that has moved, a new
	// one may have been begun: where this leaves it open what becomes of a flow, it is let go.
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool {
		q, ok := put(f.query, oracle, p.links)
		q.query = f.query
		if !ok || p.untracked(q, oracle) {
			return true
		}
		f.question = q
		return !f.kept && !q.allowed && !f.denied()
	})
	ok := p.compare(p.exchange(p.flows, flagACK, false), false)
	// Of a flow that the kernel has forgotten, what was an answer is the begin of another.
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool { return !f.kept && f.denied() })
	ok = p.compare(p.exchange(p.flows, flagACK, true), true) && ok
	for _, f := range p.flows {
		switch was := f.cut; {
		case f.denied() && !was:
			p.met["cut"]++
		case was && !f.denied():
			p.met["lives again"]++
		case !f.denied() && !f.allowed:
			p.met["goes on though new ones are denied"]++
		case !f.denied():
			p.met["goes on"]++
		}
		f.cut = f.denied()
		f.kept, f.at = true, [2]string{p.links[f.Src], p.links[f.Dst]}
	}
	return ok
}

// askAtOnce sends a packet of each live flow, as it began, before anybody has looked at the kernel's connections: what policy of workloads denies does not
// pass, and what is allowed does. After several changes some flow may be cut by what was in force in between. In iptables what is denied passes until
// somebody has looked.
func (p *path) askAtOnce(several bool) bool {
	p.t.Helper()
	oracle := world.New(p.good.State())
	var flows []*flow
	for _, f := range p.flows {
		now := *f
		q, ok := put(f.query, oracle, p.links)
		if q.query, now.question = f.query, q; ok && f.kept && !p.untracked(q, oracle) {
			flows = append(flows, &now)
		}
	}
	ok := true
	for i, came := range p.exchange(flows, flagACK, false) {
		f := flows[i]
		denied := slices.ContainsFunc(f.answer.Hops, func(h world.Hop) bool {
			return h.Node == nodeName && !h.Allowed && h.Stage == world.StageWorkload
		})
		if denied && !f.cut {
			p.met["is denied before it is judged"]++
		}
		if came && denied && !p.onIPTables() || !came && !f.denied() && !f.cut && !several {
			p.t.Errorf("live flow %+v, in by %q, out by %q, before it was judged: passed %v; world: %+v", f.query, f.link, f.out, came, f.answer.Hops)
			ok = false
		}
	}
	return ok
}

// denied reports whether policy of workloads, or the setting of what they may send to their host, denies the flow.
func (f *flow) denied() bool {
	return slices.ContainsFunc(f.answer.Hops, func(h world.Hop) bool {
		return h.Node == nodeName && !h.Allowed && (h.Stage == world.StageWorkload || h.Decided.Reason == world.ReasonToHost)
	})
}

func (p *path) compare(came []bool, answer bool) bool {
	p.t.Helper()
	ok := true
	for i, f := range p.flows {
		if came[i] == f.denied() {
			p.t.Errorf("live flow %+v, kept %v, answer %v, in by %q, out by %q: passed %v; world: %+v", f.query, f.kept, answer, f.link, f.out, came[i], f.answer.Hops)
			ok = false
		}
	}
	return ok
}

// exchange sends a packet of each flow, there or back, and reports which came through.
func (p *path) exchange(flows []*flow, flags uint8, back bool) []bool {
	p.t.Helper()
	ps, outs := make([]sending, len(flows)), make([]string, len(flows))
	for i, f := range flows {
		ps[i], outs[i] = f.sending, f.out
		if f.Proto == 6 {
			ps[i].TCPFlags = flags
		}
		if back {
			ps[i].Packet, outs[i] = answerTo(ps[i]), f.link
			if ps[i].link = f.out; f.out == "cali" {
				ps[i].link = place(f.Dst, p.links)
			}
		}
	}
	f := p.deliver(ps)
	came := make([]bool, len(flows))
	for i := range ps {
		link, passed := f.out[ps[i].Mark]
		came[i] = passed && (link == outs[i] || outs[i] == "cali" && strings.HasPrefix(link, "cali"))
	}
	return came
}

// answerTo is the packet the other way round.
func answerTo(s sending) (p packet.Packet) {
	p = s.Packet
	p.Src, p.Dst, p.SrcPort, p.DstPort = s.Dst, s.Src, s.DstPort, s.SrcPort
	switch p.Proto {
	case 1:
		p.ICMPType = 0
	case 58:
		p.ICMPType = 129
	}
	return p
}
