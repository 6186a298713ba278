package label

import (
	"slices"
	"strings"
)

// posting is the slots of vectors that have something in common. Some are
// stale: what is found by a posting must be asked itself.
type posting struct {
	slots []uint32
	stale int // so many slots too many
}

func (p *posting) live() int { return len(p.slots) - p.stale }

func (p *posting) add(slot uint32) { p.slots = append(p.slots, slot) }

// remove counts one stale slot more, and clears up when half are.
func (p *posting) remove(holds func(uint32) bool) {
	p.stale++
	if p.stale*2 <= len(p.slots) {
		return
	}
	p.slots = slices.DeleteFunc(p.unique(p.slots[:0]), func(slot uint32) bool { return !holds(slot) })
	p.slots = slices.Clip(p.slots)
	p.stale = 0
}

// unique appends the slots without repetition to an empty buffer.
func (p *posting) unique(buf []uint32) []uint32 {
	buf = append(buf, p.slots...)
	slices.Sort(buf)
	return slices.Compact(buf)
}

// values are the postings of one label by its value.
type values struct {
	by   map[uint32]*posting
	live int
}

func (s *values) add(value, slot uint32) {
	p := s.by[value]
	if p == nil {
		p = &posting{}
		s.by[value] = p
	}
	p.add(slot)
	s.live++
}

func (s *values) remove(value uint32, holds func(uint32) bool) {
	p := s.by[value]
	p.remove(holds)
	if s.live--; p.live() == 0 {
		delete(s.by, value)
	}
}

// symbols give label names and values numbers, and forget those that nobody holds.
type symbols struct {
	ids    map[string]uint32
	text   []string
	refs   []uint32
	free   []uint32
	serial uint64 // of parents
}

func newSymbols() symbols { return symbols{ids: map[string]uint32{}} }

func (s *symbols) find(text string) (uint32, bool) {
	n, ok := s.ids[text]
	return n, ok
}

func (s *symbols) hold(text string) uint32 {
	if n, ok := s.ids[text]; ok {
		s.refs[n]++
		return n
	}
	text = strings.Clone(text) // it may be part of a document
	n := uint32(len(s.text))
	if len(s.free) > 0 {
		n = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		s.text[n], s.refs[n] = text, 1
	} else {
		s.text, s.refs = append(s.text, text), append(s.refs, 1)
	}
	s.ids[text] = n
	return n
}

func (s *symbols) release(n uint32) {
	if s.refs[n]--; s.refs[n] > 0 {
		return
	}
	delete(s.ids, s.text[n])
	s.text[n] = ""
	s.free = append(s.free, n)
}
