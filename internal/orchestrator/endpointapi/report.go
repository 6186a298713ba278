package endpointapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what the agent's status says of the Endpoint API.
type Report struct {
	Plugins    []PluginReport    `json:"plugins,omitempty"`    // that are connected
	Interfaces []InterfaceReport `json:"interfaces,omitempty"` // plugins', and those that are nobody's
	Groups     []GroupReport     `json:"groups,omitempty"`     // that plugins of this host have announced
}

// PluginReport is a plugin that is connected.
type PluginReport struct {
	Name         string    `json:"name"`
	Orchestrator string    `json:"orchestrator"`
	Since        time.Time `json:"since"`
	Unanswered   int       `json:"unanswered"`           // questions
	Announcing   bool      `json:"announcing,omitempty"` // it has begun to announce all of its groups, and not said that these are all
}

// GroupReport is a group.
type GroupReport struct {
	Group  string     `json:"group"` // NAMESPACE/NAME
	State  State      `json:"state"`
	Plugin string     `json:"plugin"`
	Policy string     `json:"policy"` // the name of the NetworkPolicy in the group's namespace
	Reason string     `json:"reason,omitempty"`
	Since  time.Time  `json:"since"`
	Next   *time.Time `json:"next,omitempty"` // when it is tried again
}

// InterfaceReport is an interface.
type InterfaceReport struct {
	Interface string     `json:"interface"`
	State     State      `json:"state"`
	Plugin    string     `json:"plugin,omitempty"`   // empty: nobody's
	Endpoint  string     `json:"endpoint,omitempty"` // NAMESPACE/NAME
	Reason    string     `json:"reason,omitempty"`
	Since     time.Time  `json:"since"`
	Next      *time.Time `json:"next,omitempty"` // when plugins are asked again, or it is tried again
}

// Report returns the present state; nil: there never was a plugin.
func (s *Server) Report() *Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Report()
}

// Report returns the present state; nil: there never was a plugin.
func (c *Core) Report() *Report {
	if !c.known {
		return nil
	}
	out := &Report{}
	for _, p := range c.byName() {
		out.Plugins = append(out.Plugins, PluginReport{p.name, p.orchestrator, p.since, p.waits, p.announced != nil})
	}
	for _, cl := range c.claims {
		r := InterfaceReport{Interface: cl.link, State: cl.state, Plugin: cl.plugin, Endpoint: cl.name(), Reason: cl.reason, Since: cl.since}
		switch {
		case c.links[cl.link] == nil && cl.want != nil:
			r.State, r.Reason = Awaited, "there is no such interface yet"
		case cl.dirty:
			r.Next = new(cl.retry)
		case cl.state == Provisioned:
			r.Reason = c.missing(cl)
		}
		out.Interfaces = append(out.Interfaces, r)
	}
	for _, l := range c.links {
		if !c.unclaimed(l) {
			continue
		}
		r := InterfaceReport{Interface: l.Name, State: Nobody, Reason: c.whyNobody(l), Since: l.since}
		if l.open {
			r.State = Asked
		} else if len(c.plugins) > 0 {
			r.Next = new(l.next)
		}
		out.Interfaces = append(out.Interfaces, r)
	}
	for _, g := range c.groups {
		out.Groups = append(out.Groups, g.report())
	}
	slices.SortFunc(out.Groups, func(a, b GroupReport) int { return strings.Compare(a.Group+a.Policy, b.Group+b.Policy) })
	slices.SortFunc(out.Interfaces, func(a, b InterfaceReport) int { return strings.Compare(a.Interface, b.Interface) })
	return out
}

// whyNobody says why an interface has no endpoint.
func (c *Core) whyNobody(l *link) string {
	if l.refused != "" {
		return l.refused
	}
	by := map[answer][]string{}
	for _, p := range c.byName() {
		if q := p.about[l.Name]; q != nil {
			by[q.state] = append(by[q.state], p.name)
		}
	}
	var out []string
	for _, state := range slices.Sorted(maps.Keys(by)) {
		names := strings.Join(by[state], ", ")
		switch state {
		case waiting:
			out = append(out, names+" asked")
		case silent:
			out = append(out, names+" did not answer")
		case notMine:
			out = append(out, "not that of "+names)
		}
	}
	if len(c.plugins) == 0 {
		out = append(out, "no plugin is connected")
	}
	return strings.Join(out, "; ")
}

// String is one line: who is connected, and how many interfaces and groups are in which state.
func (r *Report) String() string {
	names, states, groups := []string{}, map[State]int{}, map[State]int{}
	for _, p := range r.Plugins {
		name := p.Name
		if p.Announcing {
			name += " (has not announced all of its groups yet)"
		}
		names = append(names, name)
	}
	for _, i := range r.Interfaces {
		states[i.State]++
	}
	for _, g := range r.Groups {
		groups[g.State]++
	}
	who := "none connected"
	if len(names) > 0 {
		who = strings.Join(names, ", ")
	}
	line := fmt.Sprintf("%s; %d interfaces provisioned, %d failed, %d nobody's", who, states[Provisioned], states[Failed], states[Nobody]+states[Asked])
	if len(r.Groups) > 0 {
		line += fmt.Sprintf("; %d groups in force, %d failed", groups[InForce], groups[Failed])
	}
	return line
}
