package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// Overlaps decides which of pools with addresses in common has them, whatever the order of the list: of each other pool it says, by name, which one
// has them. Controllers write the answer into pools' conditions, and assignments go by it also where none has done so. The first has its range, of
// those that are in use, and then by age: so who comes later never takes a range from who has it. One that is being deleted keeps its range until it
// is gone, and a disabled one keeps none, nor one that has no room for a block. A pool whose range cannot be read is left out.
func Overlaps(pools []*api.IPPool) map[string]string {
	sorted := slices.SortedStableFunc(slices.Values(pools), func(a, b *api.IPPool) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	given, has := ranges{map[netip.Prefix]string{}, map[netip.Prefix]string{}}, map[string]bool{}
	for _, p := range sorted {
		_, usable := poolOf(p)
		if cidr, ok := rangeOf(p); ok && (usable && !p.Spec.Disabled || p.Metadata.DeletionTimestamp != "") && given.over(cidr) == "" {
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

// giving is Overlaps as assignments go by it. Of pools that no controller has judged only those exclude each other that give addresses to the same requests:
// which of them is in use is known to nobody, and an older one that gives only what it is asked for by name, or nothing to workloads, would end what
// another gives to all. Where such pools have blocks of different sizes any two exclude each other: two hosts at once could make a block of each size, with one
// address in both. One that a controller refused keeps its range from none: else a condition that is out of date, and no controller, would end all assignments.
func giving(pools []*api.IPPool) map[string]string {
	var judged, others []*api.IPPool
	for _, p := range pools {
		switch {
		case refused(p) != nil:
		case rank(p) == unjudged:
			others = append(others, p)
		default:
			judged = append(judged, p)
		}
	}
	one, fresh := oneSize(others), map[string][]*api.IPPool{}
	for _, p := range others {
		to := ""
		if one {
			to = receivers(p)
		}
		fresh[to] = append(fresh[to], p)
	}
	out := Overlaps(judged)
	for _, some := range fresh {
		over := Overlaps(slices.Concat(judged, some)) // who was judged comes first
		for _, p := range some {
			if by := over[p.Metadata.Name]; by != "" {
				out[p.Metadata.Name] = by
			}
		}
	}
	return out
}

// oneSize reports whether all pools of a family have blocks of one size.
func oneSize(pools []*api.IPPool) bool {
	sizes := map[bool]int{}
	for _, p := range pools {
		pool, ok := poolOf(p)
		if !ok {
			continue
		}
		four := pool.CIDR.Addr().Is4()
		if known := sizes[four]; known != 0 && known != pool.size {
			return false
		}
		sizes[four] = pool.size
	}
	return true
}

// aside reports whether a pool gives workloads no address that do not ask for it by name.
func aside(p *api.IPPool) bool { return receivers(p) != workloads }

const workloads = "workloads"

// receivers are those to whom a pool gives addresses.
func receivers(p *api.IPPool) string {
	if uses := p.Spec.AllowedUses; len(uses) > 0 && !slices.Contains(uses, UseWorkload) {
		return strings.Join(slices.Sorted(slices.Values(uses)), " ")
	}
	nodes, err := selector.Parse(p.Spec.NodeSelector)
	if p.Spec.AssignmentMode != nil && *p.Spec.AssignmentMode == api.AssignManual || err != nil || nodes.String() == "!all()" {
		return "those who ask for it by name"
	}
	return workloads
}

func rangeOf(p *api.IPPool) (netip.Prefix, bool) {
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	return cidr.Masked(), err == nil
}

// Which of overlapping pools has the range before others, by upstream's order: one that gives addresses, one that did and is being deleted,
// one that waits for the range, one that is new. Of two that are being deleted, one that was held has addresses.
const (
	active = iota
	held
	terminating
	waits
	unjudged
)

func rank(p *api.IPPool) int {
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
	return unjudged
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
