package fib

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/intent"
)

// choose returns a route as the endpoint has it that can: of several that claim the destination the first whose interface is there and up, and whose machine
// is not awaited from another host; if there is none, the first whose interface is there, and else the first (decision 110).
func (t *Table) choose(in intent.Route) intent.Route {
	if len(in.Claims) == 0 {
		return in
	}
	best := -1
	for _, c := range in.Claims {
		if n := t.fitness(c); n > best {
			in, best = in.At(c.Link), n
		}
	}
	t.losers.put(in.Dst, t.losing(in))
	return in
}

// fitness is how near an endpoint is to having traffic.
func (t *Table) fitness(c intent.Claim) int {
	switch l, there := t.links[c.Link]; {
	case !there:
		return 0
	case !l.Up:
		return 1
	case t.awaited(intent.Route{Kind: intent.RouteLink, Link: c.Link, Move: c.Move}):
		return 2
	}
	return 3
}

// losing says of each endpoint that claims the destination of a route, and does not have it, why that is. While nobody can have it there is nothing to say.
func (t *Table) losing(in intent.Route) map[intent.EndpointID]intent.Outcome {
	at := slices.IndexFunc(in.Claims, func(c intent.Claim) bool { return c.Link == in.Link })
	if at < 0 || t.fitness(in.Claims[at]) < 2 || t.settings.Off {
		return nil
	}
	out := map[intent.EndpointID]intent.Outcome{}
	for i, c := range in.Claims {
		if i == at {
			continue
		}
		why := "which was there before"
		switch l, there := t.links[c.Link]; {
		case i > at:
		case !there:
			why = fmt.Sprintf("since interface %s is absent", c.Link)
		case !l.Up:
			why = fmt.Sprintf("since interface %s is down", c.Link)
		default:
			why = "since its own machine is still on another host"
		}
		by := in.Claims[at]
		text := fmt.Sprintf("its address %s is routed to WorkloadEndpoint %s/%s at interface %s, %s", in.Dst.Addr(), by.Endpoint.Namespace, by.Endpoint.Name, by.Link, why)
		if o := (intent.Outcome{Key: c.Endpoint, Err: errors.New(text), Final: true}); !c.Shared {
			out[c.Endpoint] = o
		} else {
			out[c.Endpoint] = intent.Outcome{Key: c.Endpoint, Note: text}
		}
	}
	return out
}

// losers are the endpoints without a route to an address that they claim.
type losers struct {
	by   map[netip.Prefix]map[intent.EndpointID]intent.Outcome
	of   map[intent.EndpointID]map[netip.Prefix]intent.Outcome
	news map[intent.EndpointID]bool // of which something else is to be said
}

func newLosers() losers {
	return losers{
		by: map[netip.Prefix]map[intent.EndpointID]intent.Outcome{}, of: map[intent.EndpointID]map[netip.Prefix]intent.Outcome{}, news: map[intent.EndpointID]bool{},
	}
}

// put replaces those of a destination.
func (l *losers) put(dst netip.Prefix, now map[intent.EndpointID]intent.Outcome) {
	for id := range l.by[dst] {
		l.news[id] = true
		if delete(l.of[id], dst); len(l.of[id]) == 0 {
			delete(l.of, id)
		}
	}
	if l.by[dst] = now; len(now) == 0 {
		delete(l.by, dst)
	}
	for id, o := range now {
		l.news[id] = true
		if l.of[id] == nil {
			l.of[id] = map[netip.Prefix]intent.Outcome{}
		}
		l.of[id][dst] = o
	}
}

// remove forgets an endpoint that is gone.
func (l *losers) remove(id intent.EndpointID) {
	for dst := range l.of[id] {
		delete(l.by[dst], id)
	}
	delete(l.of, id)
	delete(l.news, id)
}

// outcomes are what is new of endpoints.
func (l *losers) outcomes() (out []intent.Outcome) {
	for id := range l.news {
		o := intent.Outcome{Key: id}
		var errs []error
		var notes []string
		for _, dst := range slices.SortedFunc(maps.Keys(l.of[id]), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) {
			if x := l.of[id][dst]; x.Err != nil {
				errs = append(errs, x.Err)
			} else {
				notes = append(notes, x.Note)
			}
		}
		if o.Note = strings.Join(notes, "; "); len(errs) > 0 {
			o.Err, o.Final = joined(errs), true
		}
		out = append(out, o)
	}
	clear(l.news)
	return out
}

// joined is errors.Join in one line.
func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}
