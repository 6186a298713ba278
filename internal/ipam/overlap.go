package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// Overlaps decides which of pools with addresses in common has them, whatever the order of the list: of each other pool it says, by name, which one
// has them. Controllers write the answer into pools' conditions, and assignments go by it also where none has done so. The first has its range, of
// those that are in use, and then by age: so who comes later never takes a range from who has it. One that is being deleted keeps its range until it
// is gone, and a disabled one keeps none. A pool whose range cannot be read is left out.
func Overlaps(pools []*api.IPPool) map[string]string {
	sorted := slices.SortedStableFunc(slices.Values(pools), func(a, b *api.IPPool) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	given, has := ranges{map[netip.Prefix]string{}, map[netip.Prefix]string{}}, map[string]bool{}
	for _, p := range sorted {
		if cidr, ok := rangeOf(p); ok && (!p.Spec.Disabled || p.Metadata.DeletionTimestamp != "") && given.over(cidr) == "" {
			has[p.Metadata.Name] = true
			given.add(cidr, p.Metadata.Name)
		}
	}
	out := map[string]string{}
	for _, p := range sorted {
		if cidr, ok := rangeOf(p); ok && !has[p.Metadata.Name] && given.over(cidr) != "" {
			out[p.Metadata.Name] = given.over(cidr)
		}
	}
	return out
}

func rangeOf(p *api.IPPool) (netip.Prefix, bool) {
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	return cidr.Masked(), err == nil
}

// rank says which of overlapping pools has the range before others, by upstream's order: one that gives addresses, one that did and is being deleted,
// one that waits for the range, one that is new. Of two that are being deleted, one that was held has addresses.
func rank(p *api.IPPool) int {
	const (
		active = iota
		held
		terminating
		waits
		fresh
	)
	status := ""
	if p.Status != nil {
		for _, c := range p.Status.Conditions {
			if c.Type == api.ConditionAllocatable {
				status = c.Status
			}
		}
	}
	switch {
	case p.Metadata.DeletionTimestamp != "" && slices.Contains(p.Metadata.Finalizers, api.FinalizerIPPool):
		return held
	case p.Metadata.DeletionTimestamp != "":
		return terminating
	case status == "True":
		return active
	case status == "False":
		return waits
	}
	return fresh
}

// ranges are prefixes of which none overlaps another, with the names of their pools.
type ranges struct {
	names map[netip.Prefix]string
	above map[netip.Prefix]string // of each prefix that contains one of them, the first of these; itself, too
}

func (r ranges) add(p netip.Prefix, name string) {
	r.names[p] = name
	for bits := range p.Bits() + 1 {
		if q, _ := p.Addr().Prefix(bits); r.above[q] == "" {
			r.above[q] = name
		}
	}
}

// over is the name of one that a prefix overlaps; empty: none.
func (r ranges) over(p netip.Prefix) string {
	by := r.above[p]
	for bits := 0; by == "" && bits < p.Bits(); bits++ {
		q, _ := p.Addr().Prefix(bits)
		by = r.names[q]
	}
	return by
}
