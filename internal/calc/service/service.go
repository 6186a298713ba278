// Package service makes the IP sets of the Kubernetes services that rules name.
//
// In: EndpointSlices, and services, counted by their users. Out: new sets, changes of members and sets that nobody uses
// any more, for a batch. A service of which no slice is known has no members: a rule that names it matches nothing.
package service

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// Index holds the slices, and the sets in use. Use New.
type Index struct {
	of      map[string]name                     // the service of each slice, by the slice's key
	members map[name]map[string][]intent.Member // what each slice of a service gives, each with its port, by the slice's key
	sets    map[intent.SetID]*set
	dirty   map[*set]struct{}
}

type name struct{ namespace, name string }

// set is the endpoints of a service: with their ports, or their addresses alone.
type set struct {
	id      intent.SetID
	service name
	ports   bool
	uses    int
	sent    map[intent.Member]struct{} // nil: it was not sent
}

// New returns an index without slices and sets.
func New() *Index {
	return &Index{of: map[string]name{}, members: map[name]map[string][]intent.Member{}, sets: map[intent.SetID]*set{}, dirty: map[*set]struct{}{}}
}

// Set takes over a slice; nil: it is gone.
func (x *Index) Set(key string, s *api.KubernetesEndpointSlice) {
	if was, known := x.of[key]; known {
		delete(x.of, key)
		delete(x.members[was], key)
		if len(x.members[was]) == 0 {
			delete(x.members, was)
		}
		x.touch(was)
	}
	if s == nil || s.Service() == "" {
		return
	}
	n := name{s.Metadata.Namespace, s.Service()}
	if x.members[n] == nil {
		x.members[n] = map[string][]intent.Member{}
	}
	x.of[key], x.members[n][key] = n, membersOf(s)
	x.touch(n)
}

// Has reports whether there is such a slice.
func (x *Index) Has(key string) bool {
	_, ok := x.of[key]
	return ok
}

// membersOf are a slice's addresses with each port. An address of a slice without ports is there with port zero, for
// sets of addresses alone.
func membersOf(s *api.KubernetesEndpointSlice) []intent.Member {
	var out []intent.Member
	for _, e := range s.Endpoints {
		for _, text := range e.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" {
				continue
			}
			host := netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
			out = append(out, intent.Member{Prefix: host})
			for _, p := range s.Ports {
				if proto, port, ok := p.Number(); ok {
					out = append(out, intent.Member{Prefix: host, Proto: proto, Port: port})
				}
			}
		}
	}
	return out
}

// touch makes the sets of a service be looked at again.
func (x *Index) touch(n name) {
	for _, ports := range []bool{false, true} {
		if s := x.sets[setID(n, ports)]; s != nil {
			x.dirty[s] = struct{}{}
		}
	}
}

const prefix = "svc:"

func setID(n name, ports bool) intent.SetID {
	if ports {
		return intent.SetID(prefix + "ports:" + n.namespace + "/" + n.name)
	}
	return intent.SetID(prefix + "addrs:" + n.namespace + "/" + n.name)
}

// ID names the set of a service's endpoints: with their ports, or their addresses alone.
func ID(namespace, service string, ports bool) intent.SetID {
	return setID(name{namespace, service}, ports)
}

// Is reports whether a set is one of a service.
func Is(id intent.SetID) bool { return strings.HasPrefix(string(id), prefix) }

// Use counts one more user of a service's set.
func (x *Index) Use(namespace, service string, ports bool) intent.SetID {
	n := name{namespace, service}
	id := setID(n, ports)
	s := x.sets[id]
	if s == nil {
		s = &set{id: id, service: n, ports: ports}
		x.sets[id] = s
	}
	x.dirty[s] = struct{}{}
	s.uses++
	return id
}

// Release counts one user less. Without any, a set goes with the next flush.
func (x *Index) Release(id intent.SetID) {
	s := x.sets[id]
	s.uses--
	x.dirty[s] = struct{}{}
}

// Flush puts into a batch what is new, changed and gone.
func (x *Index) Flush(b *intent.Batch) (gone []intent.Key) {
	for _, s := range slices.SortedFunc(maps.Keys(x.dirty), compare) {
		now := x.now(s)
		switch {
		case s.uses == 0:
			delete(x.sets, s.id)
			if s.sent != nil {
				gone = append(gone, s.id)
			}
		case s.sent == nil:
			b.IPSets = append(b.IPSets, s.whole(now))
			s.sent = now
		default:
			d := intent.MemberDelta{Set: s.id, Added: without(now, s.sent), Removed: without(s.sent, now)}
			if len(d.Added)+len(d.Removed) > 0 {
				b.Members = append(b.Members, d)
			}
			s.sent = now
		}
	}
	clear(x.dirty)
	return gone
}

// Present returns all sets, sorted by ID.
func (x *Index) Present() []intent.IPSet {
	var out []intent.IPSet
	for _, s := range slices.SortedFunc(maps.Values(x.sets), compare) {
		out = append(out, s.whole(x.now(s)))
	}
	return out
}

func compare(a, b *set) int { return cmp.Compare(a.id, b.id) }

// now is what a set should have.
func (x *Index) now(s *set) map[intent.Member]struct{} {
	out := map[intent.Member]struct{}{}
	for _, ms := range x.members[s.service] {
		for _, m := range ms {
			if (m.Port != 0) == s.ports {
				out[m] = struct{}{}
			}
		}
	}
	return out
}

func (s *set) whole(members map[intent.Member]struct{}) intent.IPSet {
	out := intent.IPSet{ID: s.id, Comment: "service " + s.service.namespace + "/" + s.service.name, Members: without(members, nil)}
	if s.ports {
		out.Kind = intent.SetPorts
	}
	return out
}

// without is what a has and b has not, sorted.
func without(a, b map[intent.Member]struct{}) []intent.Member {
	var out []intent.Member
	for m := range a {
		if _, both := b[m]; !both {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b intent.Member) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	return out
}

// Len counts all that is held.
func (x *Index) Len() int { return len(x.of) + len(x.members) + len(x.sets) + len(x.dirty) }
