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

// exports are the agent's routes, and which of them the library has.
type exports struct {
	agent      map[routeKey]rtnl.Route
	links      map[int]rtnl.Link
	originated map[netip.Prefix]string // to its communities
}

// local reports whether a route is one that the agent made for what is on this host. Those with a gateway are its
// ways to other hosts.
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

// link takes in a change, and reports whether it may have taken routes with it, or changed what is said of an interface's.
func (e *exports) link(l rtnl.Link, gone bool) bool {
	was, known := e.links[l.Index]
	if gone {
		delete(e.links, l.Index)
		return known
	}
	e.links[l.Index] = l
	return known && (was.Name != l.Name || was.Up && !l.Up || was.Running && !l.Running)
}

// heed takes in a change of one of the agent's routes, and reports whether other things may be told for it.
func (e *exports) heed(r rtnl.Route, gone bool) bool {
	_, told := e.originated[r.Dst]
	news := told || !gone && !e.covered(r.Dst)
	if key := (routeKey{r.Dst, r.Metric}); gone {
		delete(e.agent, key)
	} else {
		e.agent[key] = r
	}
	return news
}

// covered reports whether a route is within another of the agent's that is told: most are, the addresses of a block.
func (e *exports) covered(dst netip.Prefix) bool {
	for bits := dst.Bits() - 1; bits >= 0; bits-- {
		wide, _ := dst.Addr().Prefix(bits)
		if _, told := e.originated[wide]; told && e.has(wide) {
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

// verdicts says of each of the agent's routes whether it is told: those are that no other covers.
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
	out := make(Verdicts, len(sorted))
	var cover rtnl.Route // the widest so far that may cover what follows
	for _, r := range sorted {
		link := e.links[r.Link].Name
		switch {
		case cover.Dst.IsValid() && cover.Dst != r.Dst && plan.Covers(cover.Dst, r.Dst):
			out[r.Dst] = Verdict{Why: fmt.Sprintf("it is within %s, which is told", cover.Dst)}
		case p.Ignores(link):
			out[r.Dst] = Verdict{Why: "interface " + link + " is among ignoredInterfaces"}
		default:
			out[r.Dst], cover = Verdict{Told: true, Link: link}, r
		}
	}
	for _, dst := range p.Originate {
		if !out[dst].Told {
			out[dst] = Verdict{Told: true}
		}
	}
	return out
}

// originate makes the library have what is told, and nothing else.
func (e *exports) originate(b *library, p plan.Plan) error {
	var add []origin
	want := map[netip.Prefix]bool{}
	for dst, v := range e.verdicts(p) {
		if !v.Told {
			continue
		}
		want[dst] = true
		communities := append(p.CommunitiesOf(dst), b.rules.marksOf(v.Link)...)
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
