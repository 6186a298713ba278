package classify

import (
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// maker makes the body of one program.
type maker struct {
	s     *State
	l     *list
	asked []int32
	of    *vector
	g     *group
}

// body returns the program for the cells that the steps name.
func (s *State) body(g *group, l *list, asked []int32, of *vector) (Body, error) {
	m := maker{s: s, l: l, asked: asked, of: of, g: g}
	b := Body{Port: map[PortKey]Code{}, Proto: map[uint8]Code{}}
	var err error
	if b.Else, err = m.code(cell{other: true}); err != nil {
		return b, err
	}
	for _, proto := range m.protocols() {
		if err := m.protocol(&b, proto); err != nil {
			return b, err
		}
	}
	for proto, c := range b.Proto {
		if c == b.Else {
			delete(b.Proto, proto)
		}
	}
	if len(b.Port) > s.limits.Cells {
		return b, errCells
	}
	return b, nil
}

// protocols returns the protocols that steps name, and all that have ports if any step matches ports alone.
func (m *maker) protocols() []uint8 {
	var out []uint8
	for _, i := range m.asked {
		st := m.l.steps[i]
		named := false
		for _, t := range st.cell {
			if t.Kind == rules.Protocol {
				out, named = append(out, t.Number), named || !t.Not
			}
		}
		ofPorts := func(t rules.Term) bool { return t.Kind == rules.Ports || t.Kind == rules.PortSet }
		if !named && (len(st.ports) > 0 || slices.ContainsFunc(st.cell, ofPorts) || slices.ContainsFunc(st.rest, ofPorts)) {
			out = append(out, portProtocols...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// span is the ports between two cuts, and their outcome.
type span struct {
	intent.PortRange
	outcome Outcome
	code    Code
}

// protocol adds the entries of one protocol: the outcome of most ports becomes the protocol's, single ports with another have
// entries, and ranges are conditions in the outcome of the protocol.
func (m *maker) protocol(b *Body, proto uint8) error {
	if !hasPorts(proto) {
		c, err := m.code(cell{proto: proto})
		b.Proto[proto] = c
		return err
	}
	spans, err := m.spans(proto)
	if err != nil {
		return err
	}
	width := map[Code]int{}
	most := spans[0]
	for _, s := range spans {
		if width[s.code] += int(s.Max-s.Min) + 1; width[s.code] > width[most.code] {
			most = s
		}
	}
	var ranges []span
	for _, s := range spans {
		switch {
		case s.code == most.code:
		case s.Max-s.Min < fewPorts:
			for port := int(s.Min); port <= int(s.Max); port++ {
				b.Port[PortKey{proto, uint16(port)}] = s.code
			}
		default:
			ranges = append(ranges, s)
		}
	}
	if len(ranges) == 0 {
		b.Proto[proto] = most.code
		return nil
	}
	b.Proto[proto], err = m.intern(withRanges(ranges, most.outcome))
	return err
}

// fewPorts is the longest range of ports that has an entry for each port.
const fewPorts = 4

// withRanges returns an outcome that matches ranges of ports before the outcome of all other ports.
func withRanges(ranges []span, others Outcome) (out Outcome) {
	for len(ranges) > 0 {
		same := ranges[0]
		in := rules.Term{Kind: rules.Ports, Side: rules.Dst}
		ranges = slices.DeleteFunc(ranges, func(s span) bool {
			if s.code == same.code {
				in.Ports = append(in.Ports, s.PortRange)
			}
			return s.code == same.code
		})
		for _, br := range same.outcome {
			br.Terms = append([]rules.Term{in}, br.Terms...)
			out = append(out, br)
		}
	}
	return append(out, others...)
}

// spans cuts the ports of a protocol where steps name a boundary.
func (m *maker) spans(proto uint8) ([]span, error) {
	near, cuts, ok := m.nearby(proto)
	if !ok {
		return nil, errSteps
	}
	var out []span
	for i, from := range cuts[:len(cuts)-1] {
		outcome, err := m.outcome(cell{proto: proto, port: uint16(from)}, near.at(i))
		if err != nil {
			return nil, err
		}
		code, err := m.intern(outcome)
		if err != nil {
			return nil, err
		}
		s := span{intent.PortRange{Min: uint16(from), Max: uint16(cuts[i+1] - 1)}, outcome, code}
		if n := len(out); n > 0 && out[n-1].code == code {
			out[n-1].Max = s.Max
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

func (m *maker) code(c cell) (Code, error) {
	o, err := m.outcome(c, candidates{m.asked, nil})
	if err != nil {
		return 0, err
	}
	return m.intern(o)
}

func (m *maker) intern(o Outcome) (Code, error) {
	if len(o) > m.s.limits.Branches {
		return 0, errBranches
	}
	return m.s.internCode(o), nil
}

// outcome evaluates the steps for a cell, of which only the candidates may match it.
func (m *maker) outcome(c cell, of candidates) (Outcome, error) {
	var out Outcome
	err := m.walk(&out, of, c, nil)
	return out, err
}

// walk evaluates steps in their order, for packets that are known to match the given terms.
func (m *maker) walk(out *Outcome, of candidates, c cell, given []rules.Term) error {
	for {
		i, some := of.next()
		if !some {
			return nil
		}
		st := m.l.steps[i]
		switch {
		case len(*out) > m.s.limits.Branches:
			return errBranches
		case !m.s.charge(m.g, st.weight):
			return errSteps
		}
		rest, ok := st.asks(c, m.of)
		if !ok {
			continue
		}
		terms := slices.Concat(given, rest)
		switch st.action {
		case rules.Pass:
			if len(rest) == 0 {
				of = of.from(st.next)
				continue
			}
			if err := m.walk(out, of.from(st.next), c, terms); err != nil {
				return err
			}
		case rules.Log:
			*out = append(*out, Branch{terms, rules.Log, st.by})
		default:
			*out = append(*out, Branch{terms, m.action(st.action), st.by})
			if len(rest) == 0 {
				return nil
			}
		}
	}
}

// action is what an action of a rule is at the stage of the walk.
func (m *maker) action(a rules.Action) rules.Action {
	switch {
	case m.g.walk.Mute && (a == rules.Reset || a == rules.Reject):
		return rules.Deny
	case m.g.walk.Early != 0 && a == rules.Allow:
		return m.g.walk.Early
	}
	return a
}
