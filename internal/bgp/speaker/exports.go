package speaker

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

type routeKey struct {
	dst    netip.Prefix
	metric int
}

// exports holds the agent's routes, and which of them are in the library's table.
type exports struct {
	agent      map[routeKey]rtnl.Route
	links      map[int]rtnl.Link
	originated map[netip.Prefix]string // to its communities
	filters    []plan.Filter           // of the plan by which it was
}

// local reports whether a route is one that the agent made for addresses on this host. Those with a gateway are its
// routes to other hosts.
func local(r rtnl.Route) bool {
	return r.Protocol == kernel.RouteProtocolAgent && r.Table == 0 && !r.Gateway.IsValid() && r.Hops == rtnl.Hops{} &&
		(r.Kind == rtnl.Unicast || r.Kind == rtnl.Blackhole)
}

func (e *exports) read(h *rtnl.Handle, links []rtnl.Link) error {
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: kernel.RouteProtocolAgent})
	if err != nil {
		return err
	}
	clear(e.agent)
	for _, r := range routes {
		if local(r) {
			e.agent[routeKey{r.Dst, r.Metric}] = r
		}
	}
	clear(e.links)
	for _, l := range links {
		e.links[l.Index] = l
	}
	return nil
}

// onLink takes over a link's change. It reports whether the kernel may have removed routes with it without an event, or its name changed.
func (e *exports) onLink(l rtnl.Link, gone bool) bool {
	was, known := e.links[l.Index]
	if gone {
		delete(e.links, l.Index)
		return known
	}
	e.links[l.Index] = l
	return known && (was.Name != l.Name || was.Up && !l.Up || was.Running && !l.Running)
}

// onRoute takes over a change of one of the agent's routes. It reports whether what is advertised may change.
func (e *exports) onRoute(r rtnl.Route, gone bool) bool {
	_, advertised := e.originated[r.Dst]
	relevant := advertised || !gone && (!e.covered(r.Dst) || accepted(e.filters, r.Dst, e.links[r.Link].Name))
	if key := (routeKey{r.Dst, r.Metric}); gone {
		delete(e.agent, key)
	} else {
		e.agent[key] = r
	}
	return relevant
}

// accepted reports whether a filter accepts a route that another covers.
func accepted(filters []plan.Filter, dst netip.Prefix, link string) bool {
	return slices.ContainsFunc(filters, func(f plan.Filter) bool {
		return f.Accepts(plan.Route{Dst: dst, Link: link, Covered: true})
	})
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
// through ignored interfaces.
func (e *exports) verdicts(p plan.Plan) Verdicts {
	sorted := make([]rtnl.Route, 0, len(e.agent))
	for _, r := range e.agent {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b rtnl.Route) int {
		if c := a.Dst.Addr().Compare(b.Dst.Addr()); c != 0 {
			return c
		}
		return a.Dst.Bits() - b.Dst.Bits()
	})
	out, filters := make(Verdicts, len(sorted)), p.Filters()
	var cover rtnl.Route // the widest so far that may cover what follows
	for _, r := range sorted {
		link := e.links[r.Link].Name
		switch covered := cover.Dst.IsValid() && cover.Dst != r.Dst && plan.Covers(cover.Dst, r.Dst); {
		case p.Ignores(link):
			out[r.Dst] = Verdict{Why: "interface " + link + " is among ignoredInterfaces"}
		case covered && accepted(filters, r.Dst, link):
			out[r.Dst] = Verdict{Advertised: true, Link: link, Covered: true}
		case covered:
			out[r.Dst] = Verdict{Why: fmt.Sprintf("covered by %s, which is advertised", cover.Dst)}
		default:
			out[r.Dst], cover = Verdict{Advertised: true, Link: link}, r
		}
	}
	for _, dst := range p.Originate {
		if !out[dst].Advertised {
			out[dst] = Verdict{Advertised: true}
		}
	}
	return out
}

// originate makes the library's own routes those that are to be advertised.
func (e *exports) originate(b *library, p plan.Plan) error {
	e.filters = p.Filters()
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
		if had, ok := e.originated[dst]; !ok || had != strings.Join(communities, " ") {
			add = append(add, origin{dst, communities})
		}
	}
	var gone []netip.Prefix
	for dst := range e.originated {
		if !want[dst] {
			gone = append(gone, dst)
		}
	}
	if err := b.withdraw(gone); err != nil {
		return err
	}
	for _, dst := range gone {
		delete(e.originated, dst)
	}
	if err := b.announce(add); err != nil {
		return err
	}
	for _, o := range add {
		e.originated[o.dst] = strings.Join(o.communities, " ")
	}
	return nil
}
