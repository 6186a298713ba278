package classify

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Protocols with ports, and the family of each index.
var (
	portProtocols = []uint8{6, 17, 132, 136}
	families      = [2]intent.Family{intent.IPv4, intent.IPv6}
)

func hasPorts(proto uint8) bool { return slices.Contains(portProtocols, proto) }

// formKey names a policy in one direction.
type formKey struct {
	id        intent.PolicyID
	direction intent.Direction
}

// form is a policy as groups use it, by family.
type form struct {
	items [2][]*item
	asks  []selectionKey
	sets  []intent.SetID // of ports, whose pairs are cuts
	ports map[portsKey]*ports
	names int   // how much its items name
	over  error // it names too much, and so has no items
}

// item is a rule of a form, its terms sorted by what must be known to evaluate them.
type item struct {
	key    string // unique among items
	action rules.Action
	by     intent.Decision
	peers  []literal    // the peer's address
	ports  []portSet    // the destination port, with the peer's address or the endpoint's
	cell   []rules.Term // protocol, destination port
	rest   []rules.Term // what can only be evaluated on the packet
	weight int          // how many comparisons it takes to evaluate it
}

type literal struct {
	of  selection
	not bool
}

// portSet is a term for a set of ports at the destination.
type portSet struct {
	term rules.Term
	peer bool // the destination is the peer
	*ports
}

// ports are those of a set. At the peer, each with the address is a selection.
type ports struct {
	pairs map[pair]selection
	of    map[selection]pair // empty unless at the peer
	key   string             // stands for them
}

// cuts are the ports that matter for a class.
func (x portSet) cuts(of *vector) (out []pair) {
	if !x.peer {
		return slices.Collect(maps.Keys(x.pairs))
	}
	for _, s := range of.of {
		if p, ok := x.of[s]; ok {
			out = append(out, p)
		}
	}
	return out
}

type portsKey struct {
	set  intent.SetID
	peer bool
}

// newForm sorts the terms of a policy's rules. It acquires the selections.
func (s *State) newForm(p intent.Policy, direction intent.Direction) *form {
	f := &form{ports: map[portsKey]*ports{}}
	list := rules.Of(p, direction)
	for i, family := range families {
		for _, r := range list {
			if own, ok := r.ForFamily(family); ok && matchesAny(own, peerOf(direction)) {
				f.items[i] = append(f.items[i], s.newItem(f, own, direction))
			}
			if f.names > s.limits.Names {
				s.overfull(f)
				return f
			}
		}
	}
	slices.Sort(f.sets)
	f.sets = slices.Compact(f.sets)
	return f
}

// overfull empties a form that names too much. It keeps the sets of ports: with fewer ports it may be made.
func (s *State) overfull(f *form) {
	for _, key := range f.asks {
		s.selections.leave(key)
	}
	slices.Sort(f.sets)
	*f = form{sets: slices.Compact(f.sets), over: errNames}
}

// peerOf is the side of the peer.
func peerOf(direction intent.Direction) rules.Side {
	if direction == intent.Egress {
		return rules.Dst
	}
	return rules.Src
}

// everyAddress reports whether a term names all addresses of its family: it needs no class.
func everyAddress(t rules.Term) bool {
	return t.Kind == rules.Nets && slices.ContainsFunc(t.Nets, func(n netip.Prefix) bool { return n.Bits() == 0 })
}

// matchesAny reports whether a rule does not exclude every address of the peer.
func matchesAny(r rules.Rule, peer rules.Side) bool {
	return !slices.ContainsFunc(r.Terms, func(t rules.Term) bool { return t.Not && t.Side == peer && everyAddress(t) })
}

func (s *State) newItem(f *form, r rules.Rule, direction intent.Direction) *item {
	it := &item{action: r.Action, by: r.By}
	peer := peerOf(direction)
	ask := func(key selectionKey, t rules.Term) selection {
		f.asks = append(f.asks, key)
		f.names++
		number := s.selections.ask(key, t.Nets)
		if _, known := s.space.content[number]; !known {
			s.space.content[number] = key.content()
		}
		return number
	}
	for _, t := range r.Terms {
		switch {
		case t.Kind == rules.Protocol, t.Kind == rules.Ports && t.Side == rules.Dst:
			it.cell = append(it.cell, t)
		case t.Kind == rules.Addrs && t.Side == peer:
			it.peers = append(it.peers, literal{ask(selectionKey{set: t.Set}, t), t.Not})
		case t.Side == peer && everyAddress(t):
		case t.Kind == rules.Nets && t.Side == peer:
			it.peers = append(it.peers, literal{ask(selectionKey{nets: netsKey(t.Nets)}, t), t.Not})
		case t.Kind == rules.PortSet && t.Side == rules.Dst:
			set := portSet{term: t, peer: peer == rules.Dst}
			set.ports = s.portsOf(f, portsKey{t.Set, set.peer}, ask)
			f.names += len(set.pairs)
			it.ports = append(it.ports, set)
		default:
			it.rest = append(it.rest, t)
		}
	}
	it.weight = 1 + len(it.ports) + len(it.rest)
	for _, t := range it.cell {
		it.weight += 1 + len(t.Ports)
	}
	it.key = outcomeKey(Outcome{{r.Terms, r.Action, r.By}})
	for _, set := range it.ports {
		it.key += set.key
	}
	return it
}

// portsOf returns the ports of a set for a form, once for all its rules.
func (s *State) portsOf(f *form, key portsKey, ask func(selectionKey, rules.Term) selection) *ports {
	if x := f.ports[key]; x != nil {
		return x
	}
	f.sets = append(f.sets, key.set)
	x := &ports{pairs: map[pair]selection{}, of: map[selection]pair{}}
	f.ports[key] = x
	now := s.pairsOf(key.set)
	if len(now) > s.limits.Names {
		f.names = len(now)
		return x
	}
	for p := range now {
		if x.pairs[p] = 0; key.peer {
			number := ask(selectionKey{set: key.set, pair: p}, rules.Term{})
			x.pairs[p], x.of[number] = number, p
		}
	}
	x.key = fmt.Sprintln(contentOf(fmt.Sprint(x.pairs)))
	return x
}

// index returns the selections of which a class must have one for the item to be evaluated; ok is false if it must be evaluated
// for every class.
func (it *item) index() (of []selection, ok bool) {
	for _, l := range it.peers {
		if !l.not {
			return []selection{l.of}, true
		}
	}
	for _, set := range it.ports {
		if set.peer && !set.term.Not {
			for s := range set.of {
				of = append(of, s)
			}
			return of, true
		}
	}
	return nil, false
}

// holds reports whether a class meets the item's conditions on the peer's address.
func (it *item) holds(of *vector) bool {
	for _, l := range it.peers {
		if of.has(l.of) == l.not {
			return false
		}
	}
	return true
}

// cell is a set of packets that a program does not distinguish further.
type cell struct {
	proto uint8
	other bool // any protocol that no step names; it has no ports
	port  uint16
}

func (c cell) hasPorts() bool { return !c.other && hasPorts(c.proto) }

// asks reports whether the item may match packets of a cell from or to a class for which it holds, and returns the terms that remain.
func (it *item) asks(c cell, of *vector) (rest []rules.Term, ok bool) {
	for _, t := range it.cell {
		is := false
		switch {
		case t.Kind == rules.Protocol:
			is = !c.other && t.Number == c.proto
		case c.hasPorts():
			is = slices.ContainsFunc(t.Ports, func(r intent.PortRange) bool { return r.Min <= c.port && c.port <= r.Max })
		}
		if is == t.Not {
			return nil, false
		}
	}
	rest = it.rest
	for _, set := range it.ports {
		s, known := set.pairs[pair{c.proto, c.port}]
		known = known && c.hasPorts()
		if known && !set.peer {
			rest = append(rest[:len(rest):len(rest)], set.term)
			continue
		}
		if (known && of.has(s)) == set.term.Not {
			return nil, false
		}
	}
	if c.hasPorts() {
		return rest, true
	}
	return withoutPorts(rest)
}

// withoutPorts returns the remaining terms for a packet without ports: it matches no port, and every negated port.
func withoutPorts(terms []rules.Term) (rest []rules.Term, ok bool) {
	for i, t := range terms {
		if t.Kind != rules.Ports && t.Kind != rules.PortSet {
			continue
		}
		if !t.Not {
			return nil, false
		}
		rest, ok = withoutPorts(terms[i+1:])
		return append(terms[:i:i], rest...), ok
	}
	return terms, true
}
