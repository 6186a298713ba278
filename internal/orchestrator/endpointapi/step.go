package endpointapi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/attach/wire"
)

// Step returns what is to be done now, and when to call it again if nothing happens before; zero: never.
func (c *Core) Step(now time.Time) (do []Action, next time.Time) {
	if c.linked && c.synced {
		if !c.adopted {
			c.adopt(now)
		}
		c.expire(now)
		c.confirm(now)
		for _, name := range slices.Sorted(maps.Keys(c.links)) {
			c.ask(now, c.links[name])
		}
		c.jobs(now)
		c.translate(now)
		c.groupJobs(now)
	}
	do, c.out = c.out, nil
	return do, c.next()
}

// next is when something becomes due; zero: nothing does.
func (c *Core) next() (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !c.linked || !c.synced {
		return at
	}
	for _, cl := range c.claims {
		if c.workable(cl) {
			sooner(cl.retry)
		}
	}
	for _, g := range c.groups {
		if g.dirty && g.job == nil {
			sooner(g.retry)
		}
	}
	for _, p := range c.plugins {
		for _, q := range p.asked {
			if q.state == waiting {
				sooner(q.expires)
			}
		}
	}
	for _, l := range c.links {
		if len(c.plugins) > 0 && !l.open && c.unclaimed(l) {
			sooner(l.next)
		}
	}
	return at
}

// workable reports whether a claim waits for nothing but its time.
func (c *Core) workable(cl *claim) bool {
	return cl.dirty && cl.job == nil && (cl.want == nil || c.links[cl.link] != nil)
}

// jobs has what is wanted made so.
func (c *Core) jobs(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(c.claims)) {
		cl := c.claims[name]
		if j := cl.outdated(); j != nil {
			c.out = append(c.out, Action{Cancel: j})
		}
		if !c.workable(cl) || now.Before(cl.retry) {
			continue
		}
		j := &Job{Link: name, Number: cl.version, Plugin: cl.plugin, Want: cl.want}
		for _, k := range slices.Sorted(maps.Keys(cl.keys)) {
			if cl.keys[k] && k != cl.key {
				j.Remove = append(j.Remove, k)
			}
		}
		if cl.want != nil {
			cl.keys[cl.key] = true
		}
		cl.begin(j)
		c.out = append(c.out, Action{Job: j})
	}
}

// expire gives up waiting for answers. One that comes later counts all the same.
func (c *Core) expire(now time.Time) {
	for _, p := range c.plugins {
		for _, q := range p.asked {
			if q.state == waiting && !now.Before(q.expires) {
				p.set(q, silent)
			}
		}
	}
}

// unclaimed reports whether plugins are to be asked about an interface.
func (c *Core) unclaimed(l *link) bool {
	return c.likely(l.Name) && c.claims[l.Name] == nil && len(c.on[l.Name]) == 0 && !strings.HasPrefix(l.Alias, wire.AliasPrefix)
}

// confirm asks plugins about what they have: one that has restarted may think otherwise by now.
func (c *Core) confirm(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(c.claims)) {
		cl := c.claims[name]
		if p := c.named(cl.plugin); p != nil && p.conn != cl.conn && cl.want != nil && c.links[name] != nil && p.about[name] == nil {
			c.question(now, p, c.links[name], cl.name())
		}
	}
}

// ask asks plugins about an interface that is nobody's.
func (c *Core) ask(now time.Time, l *link) {
	if !c.unclaimed(l) || len(c.plugins) == 0 {
		l.open = false
		return
	}
	if !l.open && !now.Before(l.next) {
		l.open = true
		for _, p := range c.plugins {
			if q := p.about[l.Name]; q != nil && q.state != waiting {
				p.set(q, due)
			}
		}
	}
	if !l.open {
		return
	}
	answered := true
	for _, p := range c.byName() {
		q := p.about[l.Name]
		if q == nil || q.state == due {
			c.question(now, p, l, "")
			q = p.about[l.Name]
		}
		answered = answered && q != nil && q.state > waiting
	}
	if answered {
		l.open, l.next = false, now.Add(backOff(l.tries))
		l.tries++
	}
}

// question asks a plugin, if it has not too many questions already.
func (c *Core) question(now time.Time, p *plugin, l *link, has string) {
	if p.waits >= maxAsked {
		return
	}
	q := p.about[l.Name]
	if q == nil {
		c.numbers++
		q = &question{number: c.numbers, link: l.Name, confirmed: has != ""}
		p.about[l.Name], p.asked[q.number] = q, q
	}
	p.set(q, waiting)
	q.expires = now.Add(askWait)
	c.send(p.conn, &endpointpb.FromAgent{Say: &endpointpb.FromAgent_Ask{Ask: &endpointpb.Ask{
		Number: q.number, Endpoint: has,
		Interface: &endpointpb.Interface{Name: l.Name, Index: uint32(l.Index), Mac: l.MAC, Alias: l.Alias},
	}}})
}
