package classify

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
)

// program is a body, stored once for each content.
type program struct {
	id    Program
	key   string
	codes []*code
	refs  int
	fresh bool
}

// code is an outcome, stored once for each content.
type code struct {
	id      Code
	key     string
	outcome Outcome
	refs    int
	fresh   bool
}

func (s *State) internCode(o Outcome) Code {
	key := outcomeKey(o)
	c := s.codes[key]
	if c == nil {
		c = &code{id: Code(s.codeIDs.take(contentOf(key))), key: key, outcome: o, fresh: true}
		s.codes[key] = c
		s.byCode[c.id] = c
		s.coded = append(s.coded, c)
	}
	return c.id
}

// outcomeKey stands for an outcome. It is made for each rule of each policy at a start.
func outcomeKey(o Outcome) string {
	var b []byte
	for _, br := range o {
		for _, t := range br.Terms {
			b = append(append(b, t.String()...), ' ')
		}
		b = strconv.AppendUint(b, uint64(br.Action), 10)
		b = strconv.AppendBool(append(b, ' '), br.By.Allowed)
		by := br.By.Rule.Direction.String() + " " + strconv.Itoa(br.By.Rule.Index)
		for i, text := range []string{br.By.Reason, br.By.Endpoint.String(), br.By.Tier, br.By.Rule.Policy.String(), by} {
			b = strconv.AppendQuote(append(b, [...]string{" [", " "}[min(i, 1)]...), text)
		}
		b = append(b, "]\n"...)
	}
	return string(b)
}

func (s *State) internProgram(b Body) *program {
	key := bodyKey(b)
	p := s.programs[key]
	if p == nil {
		p = &program{id: Program(s.programIDs.take(contentOf(key))), key: key, fresh: true}
		for _, c := range b.Codes() {
			p.codes = append(p.codes, s.byCode[c])
			s.byCode[c].refs++
		}
		s.programs[key] = p
		s.newborn = append(s.newborn, p)
		s.delta.Grow.Programs[p.id] = b
	}
	return p
}

func bodyKey(b Body) string {
	out := binary.BigEndian.AppendUint32(nil, uint32(b.Else))
	for _, proto := range slices.Sorted(maps.Keys(b.Proto)) {
		out = binary.BigEndian.AppendUint32(append(out, proto), uint32(b.Proto[proto]))
	}
	out = append(out, '/')
	ports := slices.SortedFunc(maps.Keys(b.Port), func(x, y PortKey) int {
		return int(x.Proto)<<16 + int(x.Port) - int(y.Proto)<<16 - int(y.Port)
	})
	for _, k := range ports {
		out = binary.BigEndian.AppendUint16(append(out, k.Proto), k.Port)
		out = binary.BigEndian.AppendUint32(out, uint32(b.Port[k]))
	}
	return string(out)
}

// sweep deletes the programs and codes without users; those that were in an earlier Delta are in this one's Shrink.
func (s *State) sweep() {
	for _, p := range s.newborn {
		switch {
		case p.refs > 0:
			p.fresh = false
			continue
		case s.programs[p.key] != p:
			continue
		}
		delete(s.programs, p.key)
		s.programIDs.release(uint32(p.id))
		if p.fresh {
			delete(s.delta.Grow.Programs, p.id)
		} else {
			s.delta.Shrink.Programs = append(s.delta.Shrink.Programs, p.id)
		}
		for _, c := range p.codes {
			if c.refs--; c.refs == 0 {
				s.coded = append(s.coded, c)
			}
		}
	}
	s.newborn = s.newborn[:0]
	for _, c := range s.coded {
		switch {
		case s.codes[c.key] != c:
			continue
		case c.refs > 0:
			if c.fresh {
				c.fresh = false
				s.delta.Grow.Codes[c.id] = c.outcome
			}
			continue
		}
		delete(s.codes, c.key)
		delete(s.byCode, c.id)
		s.codeIDs.release(uint32(c.id))
		if !c.fresh {
			s.delta.Shrink.Codes = append(s.delta.Shrink.Codes, c.id)
		}
	}
	s.coded = s.coded[:0]
	for _, c := range s.space.came {
		c.fresh = false
	}
	s.space.came, s.space.gone = s.space.came[:0], s.space.gone[:0]
}
