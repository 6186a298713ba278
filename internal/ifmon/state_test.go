package ifmon

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/seedtest"
)

func link(index int, name string, up bool) rtnl.Event {
	return rtnl.Event{Link: &rtnl.Link{Index: index, Name: name, Up: up, Running: up}}
}

func addr(index int, p string) rtnl.Event {
	return rtnl.Event{Addr: &rtnl.Addr{Link: index, Prefix: netip.MustParsePrefix(p)}}
}

func scoped(e rtnl.Event, global bool) rtnl.Event {
	e.Addr.Global = global
	return e
}

func gone(e rtnl.Event) rtnl.Event {
	e.Gone = true
	return e
}

func prefixes(ps ...string) (out []netip.Prefix) {
	for _, p := range ps {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestEventsBecomeTheLeastChange(t *testing.T) {
	start := []rtnl.Event{link(1, "lo", true), link(2, "eth0", true), addr(2, "192.0.2.1/24")}
	eth0 := Link{Index: 2, Name: "eth0", Up: true, Running: true, Addrs: prefixes("192.0.2.1/24")}
	with := func(f func(l *Link)) Change {
		l := eth0
		f(&l)
		return Change{Link: l}
	}
	for _, tt := range []struct {
		name   string
		events []rtnl.Event
		want   []Change
	}{
		{name: "news that change nothing are not told", events: []rtnl.Event{link(2, "eth0", true), addr(2, "192.0.2.1/24")}},
		{
			name:   "a link that went down and up again is told, since its routes are gone",
			events: []rtnl.Event{link(2, "eth0", false), link(2, "eth0", true)},
			want:   []Change{with(func(l *Link) { l.Downs = 1 })},
		},
		{
			name: "another MTU is a change", events: []rtnl.Event{{Link: &rtnl.Link{Index: 2, Name: "eth0", MTU: 1400, Up: true, Running: true}}},
			want: []Change{with(func(l *Link) { l.MTU = 1400 })},
		},
		{name: "a link that came and went is not told", events: []rtnl.Event{link(7, "cali1", true), gone(link(7, "cali1", true))}},
		{name: "an address that came and went is not told", events: []rtnl.Event{addr(2, "192.0.2.9/24"), gone(addr(2, "192.0.2.9/24"))}},
		{
			name: "addresses are sorted", events: []rtnl.Event{addr(2, "2001:db8::1/64"), addr(2, "10.0.0.1/8")},
			want: []Change{with(func(l *Link) { l.Addrs = prefixes("10.0.0.1/8", "192.0.2.1/24", "2001:db8::1/64") })},
		},
		{
			name: "a renamed link is gone under its old name", events: []rtnl.Event{link(2, "wan", true)},
			want: []Change{{Link: Link{Index: 2, Name: "eth0"}, Gone: true}, with(func(l *Link) { l.Name = "wan" })},
		},
		{
			name: "another link of the same name is a change", events: []rtnl.Event{gone(link(2, "eth0", true)), link(3, "eth0", true)},
			want: []Change{{Link: Link{Index: 3, Name: "eth0", Up: true, Running: true}}},
		},
		{
			name: "two links that swap their names", events: []rtnl.Event{link(1, "tmp", true), link(2, "lo", true), link(1, "eth0", true)},
			want: []Change{{Link: Link{Index: 1, Name: "eth0", Up: true, Running: true}}, with(func(l *Link) { l.Name = "lo" })},
		},
		{
			name:   "a link that lost its last IPv4 address and has it again is told, since its routes are gone",
			events: []rtnl.Event{gone(addr(2, "192.0.2.1/24")), addr(2, "192.0.2.1/24")},
			want:   []Change{with(func(l *Link) { l.Downs = 1 })},
		},
		{
			name: "an address that may be a source is told", events: []rtnl.Event{scoped(addr(2, "192.0.2.1/24"), true)},
			want: []Change{with(func(l *Link) { l.Source = true })},
		},
		{
			name: "a second one of its network, and one of IPv6, are none", events: []rtnl.Event{
				{Addr: &rtnl.Addr{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.2/24"), Global: true, Secondary: true}}, scoped(addr(2, "2001:db8::1/64"), true),
			},
			want: []Change{with(func(l *Link) { l.Addrs = prefixes("192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64") })},
		},
		{name: "nor one that is none any more", events: []rtnl.Event{scoped(addr(2, "192.0.2.1/24"), true), scoped(addr(2, "192.0.2.1/24"), false)}},
		{name: "the last words of a link that is gone are not heard", events: []rtnl.Event{addr(9, "192.0.2.9/24")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newState()
			for _, e := range start {
				s.event(e)
			}
			s.published(s.changes())
			for _, e := range tt.events {
				s.event(e)
			}
			if got := s.changes(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("changes = %+v\nwant      %+v", got, tt.want)
			}
		})
	}
}

func TestFullListAfterLostEventsSaysThatLinksMayHaveBeenDown(t *testing.T) {
	s := newState()
	s.list([]rtnl.Link{{Index: 2, Name: "eth0", Up: true}, {Index: 3, Name: "cali1", Up: true}}, nil, true)
	s.published(s.changes())
	s.list([]rtnl.Link{{Index: 2, Name: "eth0", Up: true}}, []rtnl.Addr{{Link: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24")}}, true)
	want := []Change{
		{Link: Link{Index: 3, Name: "cali1"}, Gone: true},
		{Link: Link{Index: 2, Name: "eth0", Up: true, Downs: 1, Addrs: prefixes("192.0.2.1/24")}},
	}
	if got := s.changes(); !reflect.DeepEqual(got, want) {
		t.Errorf("changes = %+v\nwant      %+v", got, want)
	}
}

// However slow the reader and whatever the history, what it was told adds up to the present state.
func TestEventsAddUpToThePresentState(t *testing.T) {
	rng := seedtest.Rand(t)
	for seed := range uint64(50) {
		s, reader, world := newState(), map[string]Link{}, map[int]rtnl.Link{}
		for range 300 {
			index := 1 + rng.IntN(4)
			l, there := world[index]
			switch {
			case !there:
				l = rtnl.Link{Index: index, Name: fmt.Sprintf("if%d", index)}
			case rng.IntN(3) == 0:
				delete(world, index)
				s.event(rtnl.Event{Link: &l, Gone: true})
				continue
			}
			l.Up = rng.IntN(2) == 0
			world[index] = l
			s.event(rtnl.Event{Link: &l})
			if rng.IntN(5) == 0 {
				tell(s, reader)
			}
		}
		tell(s, reader)
		got := map[string]bool{}
		for name, l := range reader {
			got[name] = l.Up
		}
		want := map[string]bool{}
		for _, l := range world {
			want[l.Name] = l.Up
		}
		if !maps.Equal(got, want) || len(s.changes()) != 0 {
			t.Fatalf("seed %d: told %v, want %v", seed, got, want)
		}
	}
}

func tell(s *state, reader map[string]Link) {
	cs := s.changes()
	s.published(cs)
	for _, c := range cs {
		if reader[c.Name] = c.Link; c.Gone {
			delete(reader, c.Name)
		}
	}
	if !slices.IsSortedFunc(cs, func(a, b Change) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}) {
		panic("changes are not sorted")
	}
}
