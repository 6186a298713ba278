package speaker

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Verdict is why a route of the agent's is told, or is not.
type Verdict struct {
	Told bool
	Why  string
	Link string // the interface that it leads through
}

// Verdicts are those of all of the agent's routes on a host, and of the prefixes of services.
type Verdicts map[netip.Prefix]Verdict

// Judge reads the agent's routes, and says of each whether a plan has it told.
func Judge(h *rtnl.Handle, p plan.Plan) (Verdicts, error) {
	links, err := h.Links()
	if err != nil {
		return nil, err
	}
	e := exports{agent: map[routeKey]rtnl.Route{}, links: map[int]rtnl.Link{}}
	if err := e.read(h, links); err != nil {
		return nil, err
	}
	return e.verdicts(p), nil
}

// Explain begins an explanation with the narrowest of what is known that covers what is asked; false if that is all.
func (v Verdicts) Explain(asked netip.Prefix, learned iter.Seq[netip.Prefix]) (e Explanation, more bool) {
	e.Asked = asked
	narrower := func(dst netip.Prefix) {
		if plan.Covers(dst, asked) && (!e.Dst.IsValid() || dst.Bits() > e.Dst.Bits()) {
			e.Dst = dst
		}
	}
	for dst := range v {
		narrower(dst)
	}
	for dst := range learned {
		narrower(dst)
	}
	switch own, is := v[e.Dst]; {
	case is && !own.Told:
		e.Own = "not told by itself: " + own.Why
		return e, false
	case is:
		e.Own, e.Interface = "told to peers, as their rules say", own.Link
	}
	return e, e.Dst.IsValid()
}

// Because says why a peer is told of what is explained, or is not.
func Because(p plan.Plan, w plan.Session, up bool, e Explanation) string {
	i := slices.IndexFunc(e.Paths, func(r Route) bool { return r.Best })
	if i < 0 {
		return "there is no path"
	}
	best := e.Paths[i]
	marked := append(slices.Clone(best.Communities), p.CommunitiesOf(best.Dst)...)
	rule, matched := plan.Decide(w.Export, plan.Route{Dst: best.Dst, Learned: !best.Own, Link: e.Interface, Communities: marked, ASPath: best.ASPath})
	from, _ := p.Session(best.From)
	switch {
	case !up:
		return "the session is not up"
	case best.From == w.Peer:
		return "it is the one who told it"
	case !matched:
		return "no pool and no rule allows it"
	case !best.Own && rule.Accept && from.Internal() && w.Internal() && !w.Client && !from.Client:
		return "learned within the system, and this node does not reflect to it"
	}
	return rule.String()
}
