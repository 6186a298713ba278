package speaker

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

type routeKey struct {
	dst    netip.Prefix
	metric int
}

// exports holds the agent's routes and those of others that filters accept, and which of them are in the library's table.
type exports struct {
	agent      map[routeKey]rtnl.Route
	links      map[int]rtnl.Link
	protocol   int                     // of the agent's routes to workloads, if it is another than the agent's own
	originated map[netip.Prefix]string // to what is said of it, see origin.String
	plan       plan.Plan               // by which it was
	filters    []plan.Filter           // those of the plan
	foreign    foreign
	kinds      map[netip.Prefix]string // what those are that others made
}

// local reports whether a route is one that the agent made for addresses on this host. Those with a gateway are its
// routes to other hosts. Of the protocol that settings have for routes to workloads are single addresses alone.
func (e *exports) local(r rtnl.Route) bool {
	if r.Table != 0 || r.Gateway.IsValid() || r.Hops != (rtnl.Hops{}) {
		return false
	}
	return r.Protocol == kernel.RouteProtocolAgent && (r.Kind == rtnl.Unicast || r.Kind == rtnl.Blackhole) ||
		r.Protocol == e.protocol && r.Kind == rtnl.Unicast && r.Dst.IsSingleIP() && r.Link != 0
}

func (e *exports) read(h *rtnl.Handle, links []rtnl.Link) error {
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolAgent})
	if err != nil {
		return err
	}
	if e.protocol != 0 {
		others, err := h.Routes(rtnl.RouteFilter{Protocol: e.protocol})
		if err != nil {
			return err
		}
		routes = append(routes, others...)
	}
	clear(e.agent)
	for _, r := range routes {
		if e.local(r) {
			e.agent[routeKey{r.Dst, r.Metric}] = r
		}
	}
	clear(e.links)
	for _, l := range links {
		e.links[l.Index] = l
	}
	if len(e.foreign.filters) > 0 {
		e.foreign.addrs, err = h.Addrs()
	}
	return err
}

// onLink takes over a link's change. It reports whether the kernel may have removed routes with it without an event, its name changed, or a network of this
// host's came up with it.
func (e *exports) onLink(l rtnl.Link, gone bool) bool {
	was, known := e.links[l.Index]
	if known && (gone || was.Up != l.Up || was.Name != l.Name) {
		e.foreign.onLink(l.Index, !gone && was.Name != l.Name)
	}
	if gone {
		delete(e.links, l.Index)
		return known
	}
	e.links[l.Index] = l
	return known && (was.Name != l.Name || was.Up && !l.Up || was.Running && !l.Running || l.Up && !was.Up && e.foreign.has(l.Index))
}

// onRoute takes over a change of one of the agent's routes. It reports whether what is advertised may change.
func (e *exports) onRoute(r rtnl.Route, gone bool) bool {
	_, advertised := e.originated[r.Dst]
	normal := e.plan.NormalPriority(r.Dst.Addr().Is4())
	route := plan.Route{Dst: r.Dst, Link: e.links[r.Link].Name, Covered: true, Priority: priorityOf(r, normal)}
	relevant := advertised || !gone && (!e.covered(r.Dst) || route.Priority < normal || accepted(e.filters, route))
	if key := (routeKey{r.Dst, r.Metric}); gone {
		delete(e.agent, key)
	} else {
		e.agent[key] = r
	}
	return relevant
}

// accepted reports whether a filter accepts a route that another covers.
func accepted(filters []plan.Filter, t plan.Route) bool {
	return slices.ContainsFunc(filters, func(f plan.Filter) bool { return f.Accepts(t) })
}

// priorityOf is the priority of a route of the agent's: its metric, or else the normal one.
func priorityOf(r rtnl.Route, normal uint32) uint32 {
	if r.Metric > 0 {
		return uint32(r.Metric)
	}
	return normal
}

// covered reports whether a route is covered by another of the agent's that is advertised: most are, the addresses of a block.
func (e *exports) covered(dst netip.Prefix) bool {
	for bits := dst.Bits() - 1; bits >= 0; bits-- {
		wide, _ := dst.Addr().Prefix(bits)
		if _, advertised := e.originated[wide]; advertised && e.has(wide) {
			return true
		}
	}
	return false
}

func (e *exports) has(dst netip.Prefix) bool {
	for key := range e.agent {
		if key.dst == dst {
			return true
		}
	}
	return false
}

// verdicts decides for each of the agent's routes whether it is advertised: those that no other covers, or that a filter accepts, except
// through ignored interfaces. Of routes of others it has those that a filter accepts.
func (e *exports) verdicts(p plan.Plan) Verdicts {
	sorted := make([]rtnl.Route, 0, len(e.agent))
	for _, r := range e.agent {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b rtnl.Route) int {
		if c := a.Dst.Addr().Compare(b.Dst.Addr()); c != 0 {
			return c
		}
		return cmp.Or(a.Dst.Bits()-b.Dst.Bits(), a.Metric-b.Metric)
	})
	out, filters := make(Verdicts, len(sorted)), p.Filters()
	var cover rtnl.Route // the widest so far that may cover what follows
	for _, r := range sorted {
		if out[r.Dst].Advertised {
			continue // a route of the same destination with a lower metric, by which packets go
		}
		link, normal := e.links[r.Link].Name, p.NormalPriority(r.Dst.Addr().Is4())
		v := Verdict{Advertised: true, Link: link, Priority: priorityOf(r, normal)}
		covered := cover.Dst.IsValid() && cover.Dst != r.Dst && plan.Covers(cover.Dst, r.Dst)
		switch t := (plan.Route{Dst: r.Dst, Link: link, Covered: true, Priority: v.Priority}); {
		case p.Ignores(link):
			v = Verdict{Why: "interface " + link + " is among ignoredInterfaces"}
		case covered && v.Priority < normal: // it must win where the block leads elsewhere
		case covered && accepted(filters, t):
			v.Covered = true
		case covered:
			v = Verdict{Why: fmt.Sprintf("covered by %s, which is advertised", cover.Dst)}
		default:
			cover = r
		}
		out[r.Dst] = v
	}
	for _, dst := range p.Originate {
		if !out[dst].Advertised {
			out[dst] = Verdict{Advertised: true, Priority: p.NormalPriority(dst.Addr().Is4())}
		}
	}
	e.addForeign(out, p)
	return out
}

// retract withdraws what a plan has advertised no longer. To be called before the library has its rules: what was for the peers of a filter alone is
// rejected by no rule for others any more.
func (e *exports) retract(b *library, p plan.Plan) error {
	verdicts := e.verdicts(p)
	return e.withdraw(b, func(dst netip.Prefix) bool { return verdicts[dst].Advertised })
}

// withdraw removes the library's own routes that are not wanted.
func (e *exports) withdraw(b *library, wanted func(netip.Prefix) bool) error {
	var gone []netip.Prefix
	for dst := range e.originated {
		if !wanted(dst) {
			gone = append(gone, dst)
		}
	}
	if err := b.withdraw(gone); err != nil {
		return err
	}
	for _, dst := range gone {
		delete(e.originated, dst)
	}
	return nil
}

// originate makes the library's own routes those that are to be advertised.
func (e *exports) originate(b *library, p plan.Plan) error {
	e.plan, e.filters, e.kinds = p, p.Filters(), map[netip.Prefix]string{}
	var add []origin
	want := map[netip.Prefix]bool{}
	for dst, v := range e.verdicts(p) {
		if !v.Advertised {
			continue
		}
		want[dst] = true
		communities := b.rules.marksOf(v.Link)
		if v.Covered {
			communities = append(communities, coveredMark)
		}
		if v.Foreign != "" {
			communities, e.kinds[dst] = append(communities, foreignMark), v.Foreign
		}
		o := origin{dst, communities, plan.LocalPref(v.Priority)}
		if had, ok := e.originated[dst]; !ok || had != o.String() {
			add = append(add, o)
		}
	}
	if err := e.withdraw(b, func(dst netip.Prefix) bool { return want[dst] }); err != nil {
		return err
	}
	if err := b.announce(add); err != nil {
		return err
	}
	for _, o := range add {
		e.originated[o.dst] = o.String()
	}
	return nil
}
