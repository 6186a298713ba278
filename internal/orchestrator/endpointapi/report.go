package endpointapi

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what the agent's status says of the Endpoint API.
type Report struct {
	Plugins    []PluginReport    `json:"plugins,omitempty"`    // that are connected
	Interfaces []InterfaceReport `json:"interfaces,omitempty"` // plugins', and those that are nobody's
}

// PluginReport is a plugin that is connected.
type PluginReport struct {
	Name         string    `json:"name"`
	Orchestrator string    `json:"orchestrator"`
	Since        time.Time `json:"since"`
	Unanswered   int       `json:"unanswered"` // questions
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
		out.Plugins = append(out.Plugins, PluginReport{p.name, p.orchestrator, p.since, p.waits})
	}
	for _, cl := range c.claims {
		r := InterfaceReport{Interface: cl.link, State: cl.state, Plugin: cl.plugin, Endpoint: cl.name(), Reason: cl.reason, Since: cl.since}
		if c.links[cl.link] == nil && cl.want != nil {
			r.State, r.Reason = Awaited, "there is no such interface yet"
		} else if cl.dirty {
			r.Next = new(cl.retry)
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
