package speaker

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// foreign holds those routes of table main that others made, and those networks of the host's own interfaces, that a filter accepts: they are advertised
// to the peers whose filters do, and to nobody else. A kernel may have a hundred thousand routes of others, so no others are kept, and where no filter accepts
// anything none is read.
type foreign struct {
	filters []plan.Filter // of one family or the other; none: nothing is read
	normal  [2]uint32     // priorities of routes without a metric, by family, IPv4 first
	spare   [2]int        // from which metric on the kernel prefers what the speaker learned, by family
	agents  int           // AgentProtocol of the plan
	inForce bool          // the library has the rules of these filters; until then nothing more is advertised
	routes  map[routeKey]rtnl.Route
	// doubled are keys of which the kernel had several routes when they were read: the event of one that goes does not say that all are gone.
	doubled     map[routeKey]bool
	addrs       []rtnl.Addr // of all interfaces
	reading     spaced      // all routes again
	advertising spaced      // what has changed: it is computed of all that is kept
}

// spaced is work that many events ask for, each of which asks for all of it.
type spaced struct {
	due   time.Time // zero: nothing asks for it
	ended time.Time // when it was done last
	took  time.Duration
}

// share is of what part of the time such work is done at most, where events have no end.
const share = 10

// ask has it done soon.
func (s *spaced) ask(now time.Time) {
	if s.due.IsZero() {
		s.due = now.Add(debounce)
		if at := s.ended.Add(share * s.took); at.After(s.due) {
			s.due = at
		}
	}
}

func (s *spaced) isDue(now time.Time) bool { return !s.due.IsZero() && !now.Before(s.due) }

// done notes that it was begun then and is done.
func (s *spaced) done(began time.Time) { *s = spaced{ended: time.Now(), took: time.Since(began)} }

// stale has the routes read again soon.
func (f *foreign) stale(now time.Time) {
	if len(f.filters) > 0 {
		f.reading.ask(now)
	}
}

// taken drops what is kept of a route that the agent has now. Another one of its destination and metric may be left.
func (f *foreign) taken(key routeKey) {
	if _, kept := f.routes[key]; kept {
		delete(f.routes, key)
		f.stale(time.Now())
	}
}

// setPlan takes over by what is accepted. If that is something else now, routes are to be read.
func (f *foreign) setPlan(p plan.Plan) (changed bool) {
	filters := p.Filters()
	if p.Off != "" || p.Dedicated || !slices.ContainsFunc(filters, plan.Filter.AcceptsAny) {
		filters = nil
	}
	var normal [2]uint32
	var spare [2]int
	for i, four := range []bool{true, false} {
		normal[i], spare[i] = p.NormalPriority(four), cmp.Or(int(p.ConfiguredPriority(four)), kernel.RouteMetricSpeaker)
	}
	if reflect.DeepEqual(filters, f.filters) && normal == f.normal && spare == f.spare && p.AgentProtocol == f.agents {
		return false
	}
	f.filters, f.normal, f.spare, f.agents, f.inForce = filters, normal, spare, p.AgentProtocol, false
	return true
}

// index is that of a family.
func index(dst netip.Prefix) int {
	if dst.Addr().Is4() {
		return 0
	}
	return 1
}

// ofOthers reports whether a route may be advertised if a filter accepts it, wherever it leads: it is in table main, and neither ours nor the kernel's.
func ofOthers(r rtnl.Route) bool {
	switch r.Protocol {
	case unspecified, redirect, kernel.RouteProtocolKernel, kernel.RouteProtocolAgent, kernel.RouteProtocolHosts:
		return false
	case kernel.RouteProtocolBIRD:
		if r.Metric == kernel.RouteMetricBIRD {
			return false
		}
	}
	return r.Table == 0 && r.Kind <= rtnl.Unreachable && !ours(r) && martian(r.Dst, nil) == ""
}

// Protocols of routes that nobody made on purpose: RTPROT_UNSPEC, and RTPROT_REDIRECT, those of ICMP.
const (
	unspecified = 0
	redirect    = 1
)

// isSpare reports whether the kernel prefers what the speaker may learn to a route: advertised, it would take the place of what is learned, which the library
// compares without external peers' metrics.
func (f *foreign) isSpare(r rtnl.Route) bool { return metricOf(r) >= f.spare[index(r.Dst)] }

// accepts reports whether a filter accepts a route.
func (f *foreign) accepts(r rtnl.Route, link string) bool {
	return ofOthers(r) && !f.isSpare(r) && accepted(f.filters, plan.Route{Dst: r.Dst, Link: link, Foreign: true, Priority: f.priority(r)})
}

// priority is that of a route: its metric, or else the normal one.
func (f *foreign) priority(r rtnl.Route) uint32 {
	return priorityOf(r, f.normal[index(r.Dst)])
}

// readForeign reads what others made, as far as a filter accepts it.
func (e *exports) readForeign(h *rtnl.Handle) error {
	began, f := time.Now(), &e.foreign
	if len(f.filters) == 0 {
		f.routes, f.doubled, f.addrs, f.reading = map[routeKey]rtnl.Route{}, nil, nil, spaced{}
		return nil
	}
	addrs, err := h.Addrs()
	if err != nil {
		return err
	}
	routes, err := h.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool { return !e.local(r) && f.accepts(r, e.links[r.Link].Name) }})
	if err != nil {
		return err
	}
	f.routes, f.doubled, f.addrs = map[routeKey]rtnl.Route{}, map[routeKey]bool{}, addrs
	for _, r := range routes {
		key := routeKey{r.Dst, r.Metric}
		if _, there := f.routes[key]; there {
			f.doubled[key] = true
			continue // the first is that by which packets go
		}
		f.routes[key] = r
	}
	f.reading.done(began)
	return nil
}

// prepareForeign takes over by what a plan's filters accept routes of others, and withdraws what none accepts any more.
func (s *Speaker) prepareForeign(p plan.Plan) error {
	f := &s.exports.foreign
	if f.setPlan(p) || f.routes == nil {
		if err := s.exports.readForeign(s.cfg.Rtnl); err != nil {
			f.routes, f.filters = nil, nil // the next try reads them
			return err
		}
	}
	s.clearProblem("routes of others")
	return s.exports.retract(s.bgp, p)
}

// tendForeign reads again what others made, and advertises what has changed, as far as that is due. It returns when to call it again; the zero time: not before something
// happens.
func (s *Speaker) tendForeign() time.Time {
	now, f := time.Now(), &s.exports.foreign
	if f.reading.isDue(now) {
		if err := s.exports.readForeign(s.cfg.Rtnl); err != nil {
			s.cfg.Log.Error("BGP", "what", "routes of others", "err", err, "retry_in", retryAfter)
			f.reading.due = now.Add(retryAfter)
		} else {
			f.advertising.due = now
		}
	}
	if f.advertising.isDue(now) {
		began := time.Now()
		s.advertise()
		f.advertising.done(began)
	}
	if f.reading.due.IsZero() || !f.advertising.due.IsZero() && f.advertising.due.Before(f.reading.due) {
		return f.advertising.due
	}
	return f.reading.due
}

// onForeign takes over a change of a route that is neither the agent's nor the speaker's. It reports whether what is advertised may change.
func (e *exports) onForeign(r rtnl.Route, gone bool) bool {
	f, key := &e.foreign, routeKey{r.Dst, r.Metric}
	was, kept := f.routes[key]
	accepted := !gone && len(f.filters) > 0 && f.accepts(r, e.links[r.Link].Name)
	switch {
	case !kept && !accepted, kept && !gone && was == r:
		return false
	case !kept:
		f.routes[key] = r
		return true
	case gone && was == r && !f.doubled[key]:
		delete(f.routes, key)
		return true
	}
	f.stale(time.Now()) // events do not say whether this one replaces the one that is kept or was added to it, nor which of several has gone
	return false
}

// onLink has routes read again that the kernel may have removed with a link, or that lead through one with another name now.
func (f *foreign) onLink(index int, renamed bool) {
	if renamed && slices.ContainsFunc(f.filters, plan.Filter.NamesInterfaces) {
		f.stale(time.Now()) // routes that are not kept may be accepted now
		return
	}
	for _, r := range f.routes {
		if slices.Contains(linksOf(r), index) {
			f.stale(time.Now())
			return
		}
	}
}

// onAddr has routes read again that the kernel removes, without an event, with an address: those whose source it is, and with the last of a link all
// through it.
func (f *foreign) onAddr(a rtnl.Addr, gone bool) {
	if !gone {
		return
	}
	for _, r := range f.routes {
		if slices.Contains(linksOf(r), a.Link) || r.Source == a.Prefix.Addr() {
			f.stale(time.Now())
			return
		}
	}
}

// linksOf are the interfaces by which a route leads, of all its next hops.
func linksOf(r rtnl.Route) []int {
	out := []int{r.Link}
	for _, h := range r.Hops.List() {
		out = append(out, h.Link)
	}
	return out
}

// ignored is an interface among ignoredInterfaces by which a route leads; empty: there is none.
func (e *exports) ignored(p plan.Plan, r rtnl.Route) string {
	for _, link := range linksOf(r) {
		if name := e.links[link].Name; p.Ignores(name) {
			return name
		}
	}
	return ""
}

// has reports whether the host has an address through a link.
func (f *foreign) has(link int) bool {
	return slices.ContainsFunc(f.addrs, func(a rtnl.Addr) bool { return a.Link == link && !a.Prefix.Addr().IsLinkLocalUnicast() })
}

// networks are the networks of the host's own interfaces, of the addresses that they have, as routes.
func (e *exports) networks(p plan.Plan, addrs []rtnl.Addr) map[netip.Prefix]rtnl.Route {
	out := map[netip.Prefix]rtnl.Route{}
	for _, a := range addrs {
		l, dst := e.links[a.Link], a.Prefix.Masked()
		if !l.Up || !p.Connects(l.Name) || slices.Contains(p.Peering, a.Prefix.Addr()) || martian(dst, nil) != "" || dst.Bits() == 0 {
			continue
		}
		if was, there := out[dst]; !there || a.Link < was.Link {
			out[dst] = rtnl.Route{Dst: dst, Link: a.Link, Protocol: kernel.RouteProtocolKernel}
		}
	}
	return out
}

// addForeign adds the verdicts of what others made: networks of interfaces, then routes, the one with the lowest metric first. What the agent has a route to,
// or is of services, is not of others.
func (e *exports) addForeign(out Verdicts, p plan.Plan) {
	f := &e.foreign
	if len(f.filters) == 0 {
		return
	}
	best := map[netip.Prefix]rtnl.Route{}
	for _, r := range f.routes {
		if was, there := best[r.Dst]; e.ignored(p, r) == "" && (!there || metricOf(r) < metricOf(was)) {
			best[r.Dst] = r
		}
	}
	for dst, r := range e.networks(p, f.addrs) {
		if accepted(f.filters, plan.Route{Dst: dst, Link: e.links[r.Link].Name, Foreign: true, Priority: f.priority(r)}) {
			best[dst] = r
		}
	}
	for dst, r := range best {
		_, advertised := e.originated[dst]
		if _, is := out[dst]; !is && (f.inForce || advertised) {
			link := e.links[r.Link].Name
			out[dst] = Verdict{Advertised: true, Foreign: foreignText(r, link), Link: link, Priority: f.priority(r)}
		}
	}
}

// metricOf is the metric that the kernel shows.
func metricOf(r rtnl.Route) int {
	if r.Dst.Addr().Is6() {
		return cmp.Or(r.Metric, defaultMetric6)
	}
	return r.Metric
}

// foreignText says what a route of others is.
func foreignText(r rtnl.Route, link string) string {
	if r.Protocol == kernel.RouteProtocolKernel {
		return "a network of " + link
	}
	return "a route of others, protocol " + cmp.Or(protocolNames[r.Protocol], fmt.Sprint(r.Protocol))
}

// allVerdicts are all verdicts, and those of what covers a destination, is of others, and is not kept.
func (s *Speaker) allVerdicts(asked netip.Prefix, learned []netip.Prefix) Verdicts {
	v := s.exports.verdicts(s.plan)
	if s.plan.Dedicated || s.plan.Off != "" {
		return v
	}
	rejected, err := s.exports.rejected(s.cfg.Rtnl, s.plan, asked)
	if err != nil {
		s.cfg.Log.Error("BGP: list routes", "err", err)
	}
	for dst, is := range rejected {
		if _, known := v[dst]; !known && !slices.Contains(learned, dst) {
			v[dst] = is
		}
	}
	return v
}

// rejected are verdicts of what covers a destination, is of others, and is accepted by no filter: it is not kept, and looked up for whoever asks.
func (e *exports) rejected(h *rtnl.Handle, p plan.Plan, asked netip.Prefix) (Verdicts, error) {
	covers := func(dst netip.Prefix) bool { return plan.Covers(dst, asked) && (dst.Bits() > 0 || dst == asked) }
	all, err := h.Routes(rtnl.RouteFilter{Match: func(r rtnl.Route) bool { return covers(r.Dst) && !e.local(r) && ofOthers(r) }})
	if err != nil {
		return nil, err
	}
	addrs, err := h.Addrs()
	if err != nil {
		return nil, err
	}
	all = append(all, slices.Collect(maps.Values(e.networks(p, addrs)))...)
	out := Verdicts{}
	for _, r := range all {
		if covers(r.Dst) {
			link := e.links[r.Link].Name
			why := "no BGPFilter accepts it"
			switch {
			case e.ignored(p, r) != "":
				why = "interface " + e.ignored(p, r) + " is among ignoredInterfaces"
			case r.Dst.Bits() == 0:
				why = "no BGPFilter names it"
			case len(e.foreign.filters) > 0 && e.foreign.isSpare(r):
				why = fmt.Sprintf("metric %d is no better than that of learned routes", r.Metric)
			}
			out[r.Dst] = Verdict{Foreign: foreignText(r, link), Why: why}
		}
	}
	return out, nil
}
