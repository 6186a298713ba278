package iptables

// line is the matches of one rule of iptables: -p, -s and -d once each, other matches any number of times.
type line struct {
	proto, src, dst string // "-p 6", "! -s 10.0.0.0/8"
	rest            []string
}

func (l line) words() []string { return append([]string{l.src, l.dst, l.proto}, l.rest...) }

// and returns a line with the matches of both; false if iptables cannot have them in one rule.
func (l line) and(m line) (line, bool) {
	ok := true
	either := func(a, b string) string {
		if a == "" {
			return b
		}
		ok = ok && (b == "" || a == b)
		return a
	}
	out := line{proto: either(l.proto, m.proto), src: either(l.src, m.src), dst: either(l.dst, m.dst)}
	out.rest = append(append(out.rest, l.rest...), m.rest...)
	return out, ok
}

// block is what one rule of iptables cannot match: any of some lines, or none of them; or what a chain finds, which goes to found for what it
// matches.
type block struct {
	none  bool
	lines []line
	call  string
}

// alternatives returns lines of which one matches if the conjunction does, unless that needs the mark. A packet may
// match several of them.
func (c conjunction) alternatives() ([]line, bool) {
	switch {
	case len(c.blocks) == 0:
		return []line{c.line}, true
	case len(c.blocks) > 1 || c.blocks[0].none || c.blocks[0].call != "":
		return nil, false
	}
	var out []line
	for _, l := range c.blocks[0].lines {
		both, ok := c.line.and(l)
		if !ok {
			return nil, false
		}
		out = append(out, both)
	}
	return out, true
}
