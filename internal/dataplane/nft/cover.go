package nft

import "net/netip"

// cover holds prefixes of one family, and knows the smallest set of them that covers all: those that no other one contains. The
// kernel takes only these, since intervals of a set must not overlap. A change costs O(length of the address), plus the
// number of prefixes that it covers or uncovers.
type cover struct {
	root *coverNode
	n    int
}

// coverNode is a node of a binary trie with compressed paths.
type coverNode struct {
	p    netip.Prefix
	refs int // how many members are this prefix; zero: only a branch point
	kids [2]*coverNode
}

// add adds a prefix. It returns the prefixes that the cover gains and loses.
func (c *cover) add(p netip.Prefix) (gain, lose []netip.Prefix) {
	at := &c.root
	hidden := false
	for *at != nil && contains((*at).p, p) && (*at).p != p {
		hidden = hidden || (*at).refs > 0
		at = &(*at).kids[bit(p.Addr(), (*at).p.Bits())]
	}
	n := *at
	switch {
	case n == nil:
		n = &coverNode{p: p}
	case n.p == p:
	case contains(p, n.p):
		up := &coverNode{p: p}
		up.kids[bit(n.p.Addr(), p.Bits())] = n
		n = up
	default:
		fork := &coverNode{p: common(p, n.p)}
		leaf := &coverNode{p: p}
		fork.kids[bit(n.p.Addr(), fork.p.Bits())] = n
		fork.kids[bit(p.Addr(), fork.p.Bits())] = leaf
		*at = fork
		n, at = leaf, &fork.kids[bit(p.Addr(), fork.p.Bits())]
	}
	*at = n
	n.refs++
	if n.refs > 1 {
		return nil, nil
	}
	c.n++
	if hidden {
		return nil, nil
	}
	return []netip.Prefix{p}, append(n.kids[0].tops(nil), n.kids[1].tops(nil)...)
}

// remove removes a prefix that was added; of any other it does nothing.
func (c *cover) remove(p netip.Prefix) (gain, lose []netip.Prefix) {
	var path []**coverNode
	at := &c.root
	hidden := false
	for *at != nil && contains((*at).p, p) && (*at).p != p {
		hidden = hidden || (*at).refs > 0
		path = append(path, at)
		at = &(*at).kids[bit(p.Addr(), (*at).p.Bits())]
	}
	n := *at
	if n == nil || n.p != p || n.refs == 0 {
		return nil, nil
	}
	if n.refs--; n.refs > 0 {
		return nil, nil
	}
	c.n--
	if !hidden {
		gain, lose = append(n.kids[0].tops(nil), n.kids[1].tops(nil)...), []netip.Prefix{p}
	}
	splice(at)
	if len(path) > 0 {
		splice(path[len(path)-1])
	}
	return gain, lose
}

// splice removes a node that is no member and has fewer than two children.
func splice(at **coverNode) {
	switch n := *at; {
	case n == nil || n.refs > 0 || n.kids[0] != nil && n.kids[1] != nil:
	case n.kids[0] != nil:
		*at = n.kids[0]
	default:
		*at = n.kids[1]
	}
}

// tops are the members at or below n that no other member contains.
func (n *coverNode) tops(out []netip.Prefix) []netip.Prefix {
	if n == nil {
		return out
	}
	if n.refs > 0 {
		return append(out, n.p)
	}
	return n.kids[1].tops(n.kids[0].tops(out))
}

func contains(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

func bit(a netip.Addr, i int) int {
	if a.Is4() {
		b := a.As4()
		return int(b[i/8]>>(7-i%8)) & 1
	}
	b := a.As16()
	return int(b[i/8]>>(7-i%8)) & 1
}

// common is the longest prefix of both, neither of which contains the other.
func common(a, b netip.Prefix) netip.Prefix {
	n := 0
	for bit(a.Addr(), n) == bit(b.Addr(), n) {
		n++
	}
	return netip.PrefixFrom(a.Addr(), n).Masked()
}
