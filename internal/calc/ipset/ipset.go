// Package ipset makes the IP sets that rules use.
//
// In: sources of addresses, which another index keeps under their labels; and
// selectors, counted by their users. Out: new sets, changes of members and sets
// that nobody uses any more, for a batch.
//
// A set's members are never stored. An address is in a set if one of its sources
// is selected; a set that was sent only remembers what has been touched since.
package ipset

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/intent"
)

// Labels is what sets need of the index of sources; S is its handle of one.
type Labels[S comparable] interface {
	Add(*selector.Selector) uint32
	Drop(uint32)
	Selects(uint32, S) bool
	Selected(uint32, func(S))
	Value(S) *Source
}

// Source is something that has addresses.
type Source struct {
	Addrs Addrs
	Ports *[]Port // nil: none; nobody changes it
}

// Port is a named port of a source.
type Port struct {
	Name  string
	Proto uint8
	Port  uint16
}

// Index holds the sets in use. Use New.
type Index[S comparable] struct {
	labels Labels[S]
	holders[S]
	sets  map[intent.SetID]*set
	byID  map[uint32]*set // by the selector's ID in labels
	dirty map[*set]struct{}
	named map[name]intent.SetID // until the next flush, since a name costs a hash of its text
}

type name struct {
	sel   *selector.Selector
	ports string // see joined
	proto uint8
}

// set is one selection, of addresses or of named ports.
type set struct {
	id       intent.SetID
	selector *selector.Selector
	selected uint32   // the selector's ID in labels
	ports    []string // of the ports that have one of these names, sorted; empty: of addresses
	proto    uint8    // of these ports; 0: any, so that each is with its own
	uses     int
	sent     bool
	touched  touched // since the last flush
}

// New returns an index without sets; open makes the index of sources, which must
// call changing before a source enters or leaves a selection.
func New[S comparable](open func(changing func(uint32, S)) Labels[S]) *Index[S] {
	x := &Index[S]{holders: newHolders[S](), sets: map[intent.SetID]*set{}, byID: map[uint32]*set{}, dirty: map[*set]struct{}{}, named: map[name]intent.SetID{}}
	x.labels = open(x.changing)
	return x
}

// changing notes what was true of each member that a source gives to a set.
func (x *Index[S]) changing(id uint32, src S) {
	s := x.byID[id]
	if s == nil || !s.sent {
		return // it is sent whole
	}
	s.members(x.labels.Value(src), func(m intent.Member) {
		if s.touched.knows(m) {
			return
		}
		if s.touched.len() == 0 {
			x.dirty[s] = struct{}{}
		}
		s.touched.put(m, x.has(s, m))
	})
}

// Replaced follows the index of sources: old has gone from it, now has come;
// zero means none.
func (x *Index[S]) Replaced(old, now S) {
	var none S
	if old != none {
		x.labels.Value(old).Addrs.Each(func(a netip.Prefix) { x.remove(a, old) })
	}
	if now != none {
		x.labels.Value(now).Addrs.Each(func(a netip.Prefix) { x.add(a, now) })
	}
}

// has reports whether some source gives m to a set.
func (x *Index[S]) has(s *set, m intent.Member) bool {
	src, ok := x.first(m.Prefix)
	return ok && (x.gives(src, s, m) || slices.ContainsFunc(x.more[m.Prefix], func(src S) bool { return x.gives(src, s, m) }))
}

func (x *Index[S]) gives(src S, s *set, m intent.Member) bool {
	return x.labels.Selects(s.selected, src) && (len(s.ports) == 0 || s.offered(x.labels.Value(src), m))
}

// offered reports whether a source has a port of one of the set's names at a member's protocol and number.
func (s *set) offered(src *Source, m intent.Member) bool {
	return src.Ports != nil && slices.ContainsFunc(*src.Ports, func(p Port) bool {
		return p.Proto == m.Proto && p.Port == m.Port && s.means(p)
	})
}

// means reports whether a port is one of those of the set.
func (s *set) means(p Port) bool {
	_, named := slices.BinarySearch(s.ports, p.Name)
	return named && (s.proto == 0 || p.Proto == s.proto)
}

// members calls yield for each member that a source would give to a set.
func (s *set) members(src *Source, yield func(intent.Member)) {
	if len(s.ports) == 0 {
		src.Addrs.Each(func(a netip.Prefix) { yield(intent.Member{Prefix: a}) })
		return
	}
	if src.Ports == nil {
		return
	}
	for _, p := range *src.Ports {
		if !s.means(p) {
			continue
		}
		src.Addrs.Each(func(a netip.Prefix) {
			if a.IsSingleIP() {
				yield(intent.Member{Prefix: a, Proto: p.Proto, Port: p.Port})
			}
		})
	}
}

// Use returns the set of what a selector selects or, if ports are named, of the ports of a protocol (0: of any) that have one
// of the names there, and counts one more user. However many names a rule has, they are one set, since each set that a rule may
// match by is a rule of its own in the kernel.
func (x *Index[S]) Use(sel *selector.Selector, ports []string, proto uint8) intent.SetID {
	ports = sorted(ports)
	key := name{sel, joined(ports), proto}
	id, ok := x.named[key]
	if !ok {
		id = setID(sel, ports, proto)
		x.named[key] = id
	}
	s := x.sets[id]
	if s == nil {
		s = &set{id: id, selector: sel, ports: ports, proto: proto, selected: x.labels.Add(sel)}
		x.sets[id], x.byID[s.selected] = s, s
		x.dirty[s] = struct{}{}
	}
	s.uses++
	return id
}

// Names names sets as an Index does, without counting.
type Names struct{}

// Use returns the name of the set that Index.Use would return.
func (Names) Use(sel *selector.Selector, ports []string, proto uint8) intent.SetID {
	return setID(sel, sorted(ports), proto)
}

// sorted is names in order, each once.
func sorted(ports []string) []string {
	out := slices.Clone(ports)
	slices.Sort(out)
	return slices.Compact(out)
}

// joined is one text for a list of names. What is stored may have any byte in a name, so each is quoted.
func joined(ports []string) string {
	var out []byte
	for _, p := range ports {
		out = strconv.AppendQuote(out, p)
	}
	return string(out)
}

// setID names a set. That of several names of ports has their hash, since they may be many.
func setID(sel *selector.Selector, ports []string, proto uint8) intent.SetID {
	number := strconv.Itoa(int(proto))
	switch len(ports) {
	case 0:
		return intent.SetID(sel.UniqueID())
	case 1:
		return intent.SetID("p:" + number + ":" + ports[0] + ":" + sel.UniqueID())
	}
	sum := sha256.Sum224([]byte(joined(ports)))
	return intent.SetID("ps:" + number + ":" + base64.RawURLEncoding.EncodeToString(sum[:]) + ":" + sel.UniqueID())
}

// Has reports whether a set is one of these.
func (x *Index[S]) Has(id intent.SetID) bool { return x.sets[id] != nil }

// Release counts one user less. Without any, a set goes with the next flush.
func (x *Index[S]) Release(id intent.SetID) {
	s := x.sets[id]
	if s.uses--; s.uses == 0 {
		x.dirty[s] = struct{}{}
	}
}

// Flush puts into a batch what is new, changed and gone.
func (x *Index[S]) Flush(b *intent.Batch) (gone []intent.Key) {
	for _, s := range slices.SortedFunc(maps.Keys(x.dirty), compareSets) {
		switch {
		case s.uses == 0:
			delete(x.sets, s.id)
			delete(x.byID, s.selected) // first, so that nothing is noted of what goes
			x.labels.Drop(s.selected)
			if s.sent {
				gone = append(gone, s.id)
			}
		case !s.sent:
			b.IPSets = append(b.IPSets, x.whole(s))
			s.sent = true
		default:
			if d := x.delta(s); len(d.Added)+len(d.Removed) > 0 {
				b.Members = append(b.Members, d)
			}
		}
		s.touched = touched{}
	}
	clear(x.dirty)
	clear(x.named)
	return gone
}

// Present returns all sets, sorted by id.
func (x *Index[S]) Present() []intent.IPSet {
	var out []intent.IPSet
	for _, s := range slices.SortedFunc(maps.Values(x.sets), compareSets) {
		out = append(out, x.whole(s))
	}
	return out
}

func compareSets(a, b *set) int { return cmp.Compare(a.id, b.id) }

func (x *Index[S]) whole(s *set) intent.IPSet {
	out := intent.IPSet{ID: s.id, Comment: s.selector.String()}
	if n := len(s.ports); n > 0 {
		const shown = 5
		text := strings.Join(s.ports[:min(n, shown)], ",")
		if n > shown {
			text += " and " + strconv.Itoa(n-shown) + " more"
		}
		out.Kind, out.Comment = intent.SetPorts, text+" of "+out.Comment
	}
	x.labels.Selected(s.selected, func(src S) {
		s.members(x.labels.Value(src), func(m intent.Member) { out.Members = append(out.Members, m) })
	})
	slices.SortFunc(out.Members, compareMembers)
	out.Members = slices.Clip(slices.Compact(out.Members))
	return out
}

func (x *Index[S]) delta(s *set) intent.MemberDelta {
	// As many as there can be: mostly, all that were in are out, and all others are in.
	added, removed := make([]intent.Member, 0, s.touched.len()-s.touched.were), make([]intent.Member, 0, s.touched.were)
	s.touched.each(func(m intent.Member, was bool) {
		switch is := x.has(s, m); {
		case is && !was:
			added = append(added, m)
		case was && !is:
			removed = append(removed, m)
		}
	})
	d := intent.MemberDelta{Set: s.id}
	if len(added) > 0 {
		slices.SortFunc(added, compareMembers)
		d.Added = added
	}
	if len(removed) > 0 {
		slices.SortFunc(removed, compareMembers)
		d.Removed = removed
	}
	return d
}

func compareMembers(a, b intent.Member) int {
	if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 { // as nearly always
		return c
	}
	return cmp.Or(cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}

// Len counts what the index holds: nothing, once all has been taken away.
func (x *Index[S]) Len() int {
	return len(x.v4) + len(x.v6) + len(x.more) + len(x.sets) + len(x.byID) + len(x.dirty) + len(x.named)
}
