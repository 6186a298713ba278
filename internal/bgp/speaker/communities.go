package speaker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// large reports whether a community is a large one, aa:nn:mm.
func large(c string) bool { return strings.Count(c, ":") == 2 }

// parts splits communities into those of 32 bits and large ones.
func parts(communities []string) (standard, larges []string) {
	for _, c := range communities {
		if large(c) {
			larges = append(larges, c)
		} else {
			standard = append(standard, c)
		}
	}
	return standard, larges
}

func communityAttrs(communities []string) []bgp.PathAttributeInterface {
	var out []bgp.PathAttributeInterface
	standard, larges := parts(communities)
	var numbers []uint32
	for _, c := range standard {
		if n, ok := number(c); ok {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) > 0 {
		out = append(out, bgp.NewPathAttributeCommunities(numbers))
	}
	var ls []*bgp.LargeCommunity
	for _, c := range larges {
		if l, err := bgp.ParseLargeCommunity(c); err == nil {
			ls = append(ls, l)
		}
	}
	if len(ls) > 0 {
		out = append(out, bgp.NewPathAttributeLargeCommunities(ls))
	}
	return out
}

func number(c string) (uint32, bool) {
	hi, lo, _ := strings.Cut(c, ":")
	h, err1 := strconv.ParseUint(hi, 10, 16)
	l, err2 := strconv.ParseUint(lo, 10, 16)
	return uint32(h<<16 | l), err1 == nil && err2 == nil
}

// communitiesOf are the communities of a path, as text.
func communitiesOf(p *apiutil.Path) []string {
	var out []string
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeCommunities:
			for _, n := range a.Value {
				out = append(out, fmt.Sprintf("%d:%d", n>>16, n&0xffff))
			}
		case *bgp.PathAttributeLargeCommunities:
			for _, l := range a.Values {
				if c := l.String(); !strings.HasPrefix(c, marks) {
					out = append(out, c)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// asPathOf are the AS numbers of a path.
func asPathOf(p *apiutil.Path) []uint32 {
	var out []uint32
	for _, a := range p.Attrs {
		if a, ok := a.(*bgp.PathAttributeAsPath); ok {
			for _, segment := range a.Value {
				out = append(out, segment.GetAS()...)
			}
		}
	}
	return out
}
