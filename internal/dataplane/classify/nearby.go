package classify

import (
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// nearby say which of the steps that are asked may match packets of one protocol, and where: most rules name a port or a few, and are compared
// with these alone. So a program costs what its rules match, not rules times ports.
type nearby struct {
	anywhere []int32
	within   [][]int32 // by the number of the cut before
}

// manySpans is between how many cuts a step may match before it is compared with every port.
const manySpans = 64

// nearby sorts the steps that are asked, and returns the cuts: the ports at which what matches may change, from 0 to 65,536. False: that is
// too much work.
func (m *maker) nearby(proto uint8) (p nearby, cuts []int, ok bool) {
	cuts = []int{0, 1 << 16}
	named := make([]reach, len(m.asked))
	for k, i := range m.asked {
		named[k] = m.l.steps[i].reach(proto, m.of)
		for _, r := range named[k].cuts {
			cuts = append(cuts, int(r.Min), int(r.Max)+1)
		}
	}
	if !m.s.charge(m.g, len(m.asked)+len(cuts)) {
		return p, nil, false
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	p.within = make([][]int32, len(cuts)-1)
	for k, i := range m.asked {
		if named[k].none {
			continue
		}
		spans, few := spansOf(named[k].only, cuts)
		if !few || !named[k].some {
			p.anywhere = append(p.anywhere, i)
			continue
		}
		if !m.s.charge(m.g, len(spans)) {
			return p, nil, false
		}
		for _, at := range spans {
			p.within[at] = append(p.within[at], i)
		}
	}
	return p, cuts, true
}

// spansOf returns the numbers of the cuts before all spans of some ranges, sorted; false: they are many.
func spansOf(ranges []intent.PortRange, cuts []int) (out []int, few bool) {
	for _, r := range ranges {
		first, _ := slices.BinarySearch(cuts, int(r.Min))
		end, _ := slices.BinarySearch(cuts, int(r.Max)+1)
		if len(out)+end-first > manySpans {
			return nil, false
		}
		for at := first; at < end; at++ {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

// at returns the steps that may match after a cut.
func (p nearby) at(cut int) candidates { return candidates{p.anywhere, p.within[cut]} }

// reach is where a step may match packets of a protocol with ports.
type reach struct {
	none bool               // nowhere
	some bool               // in only alone
	only []intent.PortRange // each within cuts
	cuts []intent.PortRange // what it names
}

// reach returns where the item may match packets of a protocol from or to a class.
func (it *item) reach(proto uint8, of *vector) (p reach) {
	only := func(ranges []intent.PortRange) {
		if !p.some {
			p.some, p.only = true, ranges
		}
	}
	for _, t := range it.cell {
		switch {
		case t.Kind == rules.Protocol && (t.Number == proto) == t.Not:
			return reach{none: true}
		case t.Kind == rules.Ports:
			if p.cuts = append(p.cuts, t.Ports...); !t.Not {
				only(t.Ports)
			}
		}
	}
	for _, set := range it.ports {
		var named []intent.PortRange
		for _, pair := range set.cuts(of) {
			if pair.proto == proto {
				named = append(named, intent.PortRange{Min: pair.port, Max: pair.port})
			}
		}
		if p.cuts = append(p.cuts, named...); !set.term.Not {
			only(named)
		}
	}
	return p
}

// candidates are steps to evaluate, in two sorted lists without a common one.
type candidates struct{ a, b []int32 }

// next takes the first one away; false: there is none.
func (c *candidates) next() (step int32, ok bool) {
	first := &c.a
	if len(c.a) == 0 || len(c.b) > 0 && c.b[0] < c.a[0] {
		first = &c.b
	}
	if len(*first) == 0 {
		return 0, false
	}
	step, *first = (*first)[0], (*first)[1:]
	return step, true
}

// from returns those that are not before a step.
func (c candidates) from(step int32) candidates {
	a, _ := slices.BinarySearch(c.a, step)
	b, _ := slices.BinarySearch(c.b, step)
	return candidates{c.a[a:], c.b[b:]}
}
