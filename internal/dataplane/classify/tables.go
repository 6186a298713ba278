package classify

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent/match"
)

// Tables apply deltas and evaluate packets as a backend does: the reference for backends, and the source of explanations
// for people. The zero value is empty.
type Tables struct {
	Classes  map[netip.Prefix]Class
	Entries  map[Entry]Program
	World    map[Group][2]Program
	Programs map[Program]Body
	Codes    map[Code]Outcome
}

// Packet is what look-ups and branches evaluate.
type Packet = match.Packet

// Sets answers whether an address is a member of a set, for branches that remain to be evaluated.
type Sets = match.Sets

// Way is the look-ups by which a packet was decided.
type Way struct {
	Class   Class
	Program Program
	Code    Code
	Logged  []Branch
	Decided Branch
}

func put[K comparable, V any](m *map[K]V, from map[K]V) {
	if *m == nil {
		*m = map[K]V{}
	}
	for k, v := range from {
		(*m)[k] = v
	}
}

// Apply applies all of a delta, and what is next.
func (t *Tables) Apply(d *Delta) error {
	if err := t.Grow(d); err != nil {
		return err
	}
	t.Flip(d)
	if err := t.Shrink(d); err != nil || d.Next == nil {
		return err
	}
	return t.Apply(d.Next)
}

// Grow applies the first part of a delta; an error: some of it exists already.
func (t *Tables) Grow(d *Delta) error {
	for c := range d.Grow.Codes {
		if _, ok := t.Codes[c]; ok {
			return fmt.Errorf("code %d is in use", c)
		}
	}
	put(&t.Codes, d.Grow.Codes)
	for p := range d.Grow.Programs {
		if _, ok := t.Programs[p]; ok {
			return fmt.Errorf("program %d is in use", p)
		}
	}
	put(&t.Programs, d.Grow.Programs)
	for e := range d.Grow.Entries {
		if _, ok := t.Entries[e]; ok {
			return fmt.Errorf("the entry %v is in use", e)
		}
	}
	put(&t.Entries, d.Grow.Entries)
	return nil
}

// Flip applies the second part.
func (t *Tables) Flip(d *Delta) {
	put(&t.Entries, d.Flip.Entries)
	put(&t.Classes, d.Flip.Addrs)
	put(&t.World, d.Flip.World)
	for e, p := range d.Flip.Entries {
		if p == 0 {
			delete(t.Entries, e)
		}
	}
	for p, c := range d.Flip.Addrs {
		if c == 0 {
			delete(t.Classes, p)
		}
	}
}

// Shrink applies the last part; an error: something still refers to what it removes.
func (t *Tables) Shrink(d *Delta) error {
	for _, e := range d.Shrink.Entries {
		if _, ok := t.Entries[e]; !ok {
			return fmt.Errorf("the entry %v was never there", e)
		}
		delete(t.Entries, e)
	}
	for _, g := range d.Shrink.Groups {
		delete(t.World, g)
	}
	for g, why := range d.Plain {
		if why != "" {
			delete(t.World, g)
		}
	}
	for _, p := range d.Shrink.Programs {
		delete(t.Programs, p)
	}
	for _, c := range d.Shrink.Codes {
		delete(t.Codes, c)
	}
	return t.whole(d)
}

func (t *Tables) whole(d *Delta) error {
	for e, p := range t.Entries {
		if _, ok := t.Programs[p]; !ok || t.World[e.Group] == [2]Program{} || slices.Contains(d.Shrink.Classes, e.Class) {
			return fmt.Errorf("the entry %v leads to program %d", e, p)
		}
	}
	for p, c := range t.Classes {
		if slices.Contains(d.Shrink.Classes, c) {
			return fmt.Errorf("%s has class %d, which is gone", p, c)
		}
	}
	for g, ps := range t.World {
		for _, p := range ps {
			if _, ok := t.Programs[p]; !ok {
				return fmt.Errorf("the world of group %d leads to program %d", g, p)
			}
		}
	}
	for p, b := range t.Programs {
		for _, c := range b.Codes() {
			if _, ok := t.Codes[c]; !ok {
				return fmt.Errorf("program %d leads to code %d", p, c)
			}
		}
	}
	return nil
}

// Ask evaluates a packet of a group's endpoint; peer is the other end.
func (t *Tables) Ask(g Group, peer netip.Addr, p Packet, sets Sets) (Way, error) {
	w := Way{Class: t.class(peer)}
	w.Program = t.program(g, w.Class, peer)
	b, ok := t.Programs[w.Program]
	if !ok {
		return w, fmt.Errorf("group %d, class %d: there is no program %d", g, w.Class, w.Program)
	}
	w.Code = b.code(p)
	for _, br := range t.Codes[w.Code] {
		if match.All(br.Terms, p, sets) {
			if w.Decided = br; br.Action != rules.Log {
				return w, nil
			}
			w.Logged = append(w.Logged, br)
		}
	}
	return w, fmt.Errorf("code %d decides nothing", w.Code)
}

// class returns the class of an address: of the longest prefix with a class that contains it.
func (t *Tables) class(a netip.Addr) Class {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if c, ok := t.Classes[netip.PrefixFrom(a, bits).Masked()]; ok {
			return c
		}
	}
	return world(familyOf(a))
}

func (t *Tables) program(g Group, c Class, a netip.Addr) Program {
	if p, ok := t.Entries[Entry{g, c}]; ok {
		return p
	}
	return t.World[g][familyOf(a)]
}

// Program returns the program of a group for a peer; ok is false for a group that is not evaluated by class.
func (t *Tables) Program(g Group, peer netip.Addr) (b Body, ok bool) {
	b, ok = t.Programs[t.program(g, t.class(peer), peer)]
	return b, ok
}

func (b Body) code(p Packet) Code {
	if c, ok := b.Port[PortKey{p.Proto, p.DstPort}]; ok && hasPorts(p.Proto) {
		return c
	}
	if c, ok := b.Proto[p.Proto]; ok {
		return c
	}
	return b.Else
}

// Codes returns the codes of a body, each once.
func (b Body) Codes() []Code {
	out := []Code{b.Else}
	for _, c := range b.Port {
		out = append(out, c)
	}
	for _, c := range b.Proto {
		out = append(out, c)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
