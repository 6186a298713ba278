package speaker

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// Verdict says whether a route of this host's is advertised, and why not.
type Verdict struct {
	Advertised bool
	Why        string
	Link       string // the route's interface
	Priority   uint32 // the route's, see plan.Rule
	Foreign    string // what it is if it is neither the agent's nor of services, and then it is advertised to those alone whose filters accept it
	Covered    bool   // it is advertised to those alone whose filters accept it: another route covers it
}

// Verdicts are those of all of the agent's routes on a host, of the prefixes of services, and of what others made, as far as a filter accepts it.
type Verdicts map[netip.Prefix]Verdict

// ReadVerdicts reads the agent's routes, and decides for each whether a plan has it advertised.
func ReadVerdicts(h *rtnl.Handle, p plan.Plan) (Verdicts, error) {
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

// Explain begins an explanation with the longest known prefix that covers asked; false if there is no more to say.
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
	own, is := v[e.Dst]
	switch e.Foreign = own.Foreign; {
	case own.Foreign != "" && !own.Advertised:
		e.Own = "not advertised: " + own.Why
		return e, false
	case own.Foreign != "":
		e.Own, e.Interface = "advertised to peers whose BGPFilters accept it", own.Link
	case is && !own.Advertised:
		e.Own = "not advertised by itself: " + own.Why
		return e, false
	case is:
		e.Own, e.Interface, e.Covered = "advertised to peers, as their export rules say", own.Link, own.Covered
	}
	return e, e.Dst.IsValid()
}

// ExplainPeer says why a route is advertised to a peer, or is not.
func ExplainPeer(p plan.Plan, w plan.Session, up bool, e Explanation) string {
	i := slices.IndexFunc(e.Paths, func(r Route) bool { return r.Best })
	if i < 0 {
		return "there is no path"
	}
	best := e.Paths[i]
	rule, matched := plan.Decide(w.Export, plan.Route{Dst: best.Dst, Learned: !best.Own, Covered: best.Own && e.Covered, Foreign: best.Own && e.Foreign != "", Link: e.Interface, Communities: best.Communities, ASPath: best.ASPath, Priority: best.Priority})
	from, _ := p.Session(best.From)
	switch {
	case !up:
		return "the session is not up"
	case best.From == w.Peer:
		return "the route was learned from it"
	case !matched:
		return "no pool and no rule allows it"
	case !best.Own && rule.Accept && from.Internal() && w.Internal() && !w.Client && !from.Client:
		return "learned from an internal peer, and this node does not reflect to it"
	}
	return rule.String()
}
