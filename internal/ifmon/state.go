package ifmon

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// state is the pure part: events and lists in, changes out. Links are kept by index, which the kernel does not use
// twice at a time, and reported by name, which the rest of the agent uses.
type state struct {
	links map[int]*entry
	known map[string]Link // as last published
	dirty map[string]bool // names that may differ from what was published
}

type entry struct {
	link  rtnl.Link
	addrs map[netip.Prefix]bool // with each whether it may be a source: see Link.Source
	downs int
}

func newState() *state {
	return &state{links: map[int]*entry{}, known: map[string]Link{}, dirty: map[string]bool{}}
}

// list takes over a full list; lost: events were. An interface of which the list says something else than events did may have been down, too.
// Events that are still to come were before the list, if they differ from it, and end with what it says.
func (s *state) list(links []rtnl.Link, addrs []rtnl.Addr, lost bool) {
	old := s.links
	s.links = map[int]*entry{}
	for name := range s.known {
		s.dirty[name] = true
	}
	for _, l := range links {
		e := &entry{link: l, addrs: map[netip.Prefix]bool{}}
		s.links[l.Index] = e
		s.dirty[l.Name] = true
	}
	for _, a := range addrs {
		if e := s.links[a.Link]; e != nil {
			e.addrs[a.Prefix] = source(a)
		}
	}
	for index, e := range s.links {
		if was := old[index]; was != nil {
			if e.downs = was.downs; lost || was.link != e.link || !maps.Equal(was.addrs, e.addrs) {
				e.downs++ // it may have been down meanwhile
			}
		}
	}
}

// event takes over one change.
func (s *state) event(ev rtnl.Event) {
	switch {
	case ev.Link != nil && ev.Gone:
		if e := s.links[ev.Link.Index]; e != nil {
			s.dirty[e.link.Name] = true
			delete(s.links, ev.Link.Index)
		}
	case ev.Link != nil:
		e := s.links[ev.Link.Index]
		if e == nil {
			e = &entry{addrs: map[netip.Prefix]bool{}}
			s.links[ev.Link.Index] = e
		} else {
			s.dirty[e.link.Name] = true // its old name, if it was renamed
		}
		if e.link.Up && !ev.Link.Up {
			e.downs++
		}
		e.link = *ev.Link
		s.dirty[e.link.Name] = true
	case ev.Addr != nil:
		e := s.links[ev.Addr.Link]
		if e == nil {
			return // a late event of a deleted interface
		}
		s.dirty[e.link.Name] = true
		if ev.Gone {
			delete(e.addrs, ev.Addr.Prefix)
			if ev.Addr.Prefix.Addr().Is4() && !e.hasIPv4() {
				e.downs++ // with the last address the kernel drops all IPv4 routes of the link, without an event [tried]
			}
		} else {
			e.addrs[ev.Addr.Prefix] = source(*ev.Addr)
		}
	}
}

// source reports whether the kernel may take an address as the source of what leaves by another interface (inet_select_addr in net/ipv4/devinet.c).
func source(a rtnl.Addr) bool { return a.Prefix.Addr().Is4() && a.Global && !a.Secondary }

func (e *entry) hasIPv4() bool {
	for p := range e.addrs {
		if p.Addr().Is4() {
			return true
		}
	}
	return false
}

// changes returns what differs from what was published, sorted by name.
func (s *state) changes() []Change {
	if len(s.dirty) == 0 {
		return nil
	}
	now := map[string]Link{}
	for _, e := range s.links {
		if s.dirty[e.link.Name] {
			now[e.link.Name] = e.value()
		}
	}
	var out []Change
	for name := range s.dirty {
		was, wasThere := s.known[name]
		is, isThere := now[name]
		switch {
		case isThere && (!wasThere || !equal(was, is)):
			out = append(out, Change{Link: is})
		case !isThere && wasThere:
			out = append(out, Change{Link: Link{Name: name, Index: was.Index}, Gone: true})
		default:
			delete(s.dirty, name)
		}
	}
	slices.SortFunc(out, func(a, b Change) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// published notes that the reader has the changes.
func (s *state) published(changes []Change) {
	for _, c := range changes {
		delete(s.dirty, c.Name)
		if c.Gone {
			delete(s.known, c.Name)
		} else {
			s.known[c.Name] = c.Link
		}
	}
}

func (e *entry) value() Link {
	l := Link{Index: e.link.Index, Name: e.link.Name, MAC: e.link.MAC, Alias: e.link.Alias, MTU: e.link.MTU, Up: e.link.Up, Running: e.link.Running, Downs: e.downs}
	for p, source := range e.addrs {
		l.Addrs = append(l.Addrs, p)
		l.Source = l.Source || source
	}
	slices.SortFunc(l.Addrs, netip.Prefix.Compare)
	return l
}

func equal(a, b Link) bool {
	return a.Index == b.Index && a.MAC == b.MAC && a.Alias == b.Alias && a.MTU == b.MTU && a.Up == b.Up && a.Running == b.Running && a.Downs == b.Downs && a.Source == b.Source && slices.Equal(a.Addrs, b.Addrs)
}
