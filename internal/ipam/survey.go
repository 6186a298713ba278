package ipam

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Survey is everything about addresses. Blocks, handles and affinities are of
// one moment, see listAtOnce; what uses addresses was read after them, so that an address
// whose user changes meanwhile can at worst look leaked.
type Survey struct {
	*resources
	Pools  []Pool
	Blocks []*api.Block // sorted
	docs   map[string]*doc
	nodes  map[string]*api.Node
	users  map[netip.Addr][]user
	life   life

	containers map[string][]string // of pods that are endpoints, by namespace/name

	cools cooling
}

// user is an endpoint that has an address.
type user struct {
	ref  api.Ref
	node string
	pod  string

	key      string
	revision api.Revision
}

// surveyTries is how often listAtOnce lists, if others write all the time.
const surveyTries = 5

// listAtOnce lists blocks, handles and affinities, sorted, as they were at one moment. Where a list of several kinds is of as many
// moments, it lists until two lists are equal: nothing has changed between the end of the first and the beginning of the second. If
// others write so often that no two are, it is the last list.
func (a *Allocator) listAtOnce(ctx context.Context) ([]api.Update, error) {
	same := func(a, b api.Update) bool { return a.Key == b.Key && a.Revision == b.Revision }
	var last []api.Update
	for try := range surveyTries {
		snap, err := a.store.List(ctx, api.IPAMPrefix)
		if err != nil {
			return nil, err
		}
		now := snap.Sorted()
		if datastore.OrderOf(a.store) != nil || try > 0 && slices.EqualFunc(last, now, same) {
			return now, nil
		}
		last = now
	}
	return last, nil
}

// ReadSurvey reads a survey.
func (a *Allocator) ReadSurvey(ctx context.Context) (*Survey, error) {
	v := &Survey{docs: map[string]*doc{}, nodes: map[string]*api.Node{}, users: map[netip.Addr][]user{}, containers: map[string][]string{}}
	listed, err := a.listAtOnce(ctx)
	if err != nil {
		return nil, err
	}
	for _, u := range listed {
		if u.Key == api.IPAMConfigKey {
			continue
		}
		e := &doc{key: u.Key}
		e.decode(u)
		v.docs[u.Key] = e
		if e.block != nil {
			v.Blocks = append(v.Blocks, e.block)
		}
	}
	slices.SortFunc(v.Blocks, func(a, b *api.Block) int { return comparePrefixes(a.CIDR, b.CIDR) })
	if v.resources, err = a.resources(ctx); err != nil {
		return nil, err
	}
	for _, p := range v.pools {
		if pool, _ := poolOf(p); pool.CIDR.IsValid() { // also one that has no room for a block, as a disabled one may
			pool.overlaps, pool.aside = refused(p) != nil || v.over[pool.Name] != "", aside(p)
			v.Pools = append(v.Pools, pool)
		}
	}
	v.cools = a.cooling(v.config)
	return v, v.readUsers(ctx, a.store)
}

func (v *Survey) readUsers(ctx context.Context, s datastore.Store) error {
	nodes, err := readAll[*api.Node](ctx, s, api.KindNode)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		v.nodes[n.Metadata.Name] = n
	}
	// Endpoints that are closed count, too: they have their addresses nevertheless.
	snap, err := s.List(ctx, api.KeyPrefix(api.KindWorkloadEndpoint, ""))
	if err != nil {
		return err
	}
	for _, u := range snap.Sorted() {
		st, err := api.DecodeStored(u)
		if err != nil {
			return err // an unreadable endpoint may have any address
		}
		w, ok := st.Resource.(*api.WorkloadEndpoint)
		if !ok {
			continue
		}
		if w.Spec.Pod != "" {
			pod := st.Ref.Namespace + "/" + w.Spec.Pod
			v.containers[pod] = append(v.containers[pod], w.Spec.ContainerID)
		}
		for _, t := range w.Spec.IPNetworks {
			if p, err := netip.ParsePrefix(t); err == nil {
				v.users[p.Addr()] = append(v.users[p.Addr()], user{st.Ref, w.Spec.Node, cmp.Or(w.Spec.Pod, w.Spec.Workload), u.Key, u.Revision})
			}
		}
	}
	return v.readLife(ctx, s)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// PoolOf is the pool that a block belongs to. Of several that contain it, as pools that were applied to Kubernetes' API itself may: one with blocks
// of its size before others, one that gives addresses before one that overlaps it, then the smallest, then one that gives to workloads, then the first by name.
func (v *Survey) PoolOf(block netip.Prefix) (Pool, bool) {
	var of []Pool
	for _, p := range v.Pools {
		if p.CIDR.Bits() <= block.Bits() && p.CIDR.Contains(block.Addr()) {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return Pool{}, false
	}
	return slices.MinFunc(of, func(a, b Pool) int {
		return cmp.Or(
			last(a.size != block.Bits())-last(b.size != block.Bits()), last(a.overlaps)-last(b.overlaps),
			b.CIDR.Bits()-a.CIDR.Bits(), last(a.aside)-last(b.aside), strings.Compare(a.Name, b.Name),
		)
	}), true
}

// last sorts what is so after what is not.
func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Allocation is one address that is in use or cools down.
type Allocation struct {
	Addr  netip.Addr
	Block *api.Block
	ord   int
	Attr  *api.BlockAttribute
}

// Sequence is that of the assignment: another one of the same address has another.
func (l Allocation) Sequence() uint64 { return l.Block.SequenceOf(l.ord) }

// Borrowed returns the node that uses an address of another node's block.
func (l Allocation) Borrowed() (node string, yes bool) {
	own, ok := l.Block.Owner()
	node = l.Attr.Owner[api.AttributeNode]
	return node, node != "" && (!ok || own.Type == api.OwnerHost && own.Name != node) && !coolingDown(l.Attr)
}

// Allocations returns those of a block, in order.
func Allocations(b *api.Block) []Allocation {
	var out []Allocation
	for ord := range b.Allocations {
		if attr := b.Attribute(ord); attr != nil {
			out = append(out, Allocation{b.Addr(ord), b, ord, attr})
		}
	}
	return out
}

// Usage counts a block's addresses, or several blocks'.
type Usage struct {
	Addresses float64 `json:"addresses"` // of an IPv6 pool there are many
	InUse     int     `json:"inUse"`
	Cooling   int     `json:"cooling"`
	Reserved  float64 `json:"reserved"` // free, but reserved by an IPReservation
	Free      float64 `json:"free"`
}

// UsedOf counts the addresses of a block.
func (v *Survey) UsedOf(b *api.Block) Usage {
	cold, free := v.cools.count(b)
	u := Usage{Addresses: float64(b.Size()), InUse: used(b), Cooling: cold, Free: float64(len(free))}
	if v.Reserved(b.CIDR) > 0 {
		for _, ord := range free {
			if a := b.Addr(ord); slices.ContainsFunc(v.reserved, func(p netip.Prefix) bool { return p.Contains(a) }) {
				u.Reserved++
			}
		}
	}
	u.Free -= u.Reserved
	return u
}

// UsedOfPool counts the addresses of a pool, of which these are the blocks.
func (v *Survey) UsedOfPool(pool netip.Prefix, blocks []*api.Block) Usage {
	u := Usage{Addresses: Size(pool), Reserved: v.Reserved(pool)}
	u.Free = u.Addresses - u.Reserved
	for _, b := range blocks {
		of := v.UsedOf(b)
		reserved := v.Reserved(b.CIDR)
		u.InUse += of.InUse
		u.Cooling += of.Cooling
		u.Reserved -= reserved - of.Reserved // in use, although reserved
		u.Free -= of.Addresses - of.Free - reserved
	}
	return u
}

// BlocksOfPools are the blocks of each pool, by its name, sorted; those of none are of the empty one.
func (v *Survey) BlocksOfPools() map[string][]*api.Block {
	of := map[string][]*api.Block{}
	for _, b := range v.Blocks {
		p, _ := v.PoolOf(b.CIDR)
		of[p.Name] = append(of[p.Name], b)
	}
	return of
}

// UsedOfPools counts the addresses of each pool, by its name.
func (v *Survey) UsedOfPools() map[string]Usage {
	of, out := v.BlocksOfPools(), map[string]Usage{}
	for _, p := range v.Pools {
		out[p.Name] = v.UsedOfPool(p.CIDR, of[p.Name])
	}
	return out
}

// Reserved is how many addresses of a prefix reservations have, in use or not.
func (v *Survey) Reserved(of netip.Prefix) (n float64) {
	var seen []netip.Prefix
	for _, p := range slices.SortedFunc(slices.Values(v.reserved), func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) }) {
		switch {
		case !p.Overlaps(of) || slices.ContainsFunc(seen, p.Overlaps): // wider ones come first
		case p.Bits() <= of.Bits():
			return Size(of)
		default:
			seen = append(seen, p)
			n += Size(p)
		}
	}
	return n
}

// sortedKeys are the survey's keys below a prefix.
func (v *Survey) sortedKeys(prefix string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v.docs)), func(k string) bool { return !strings.HasPrefix(k, prefix) })
}

// HandleOf is the handle of an allocation.
func HandleOf(l Allocation) string { return handleOf(l.Attr) }

// Spec is the body of a pool.
func (v *Survey) Spec(pool string) api.IPPoolSpec {
	for _, p := range v.pools {
		if p.Metadata.Name == pool {
			return p.Spec
		}
	}
	return api.IPPoolSpec{}
}

// Size is how many addresses a prefix has.
func Size(p netip.Prefix) float64 { return math.Pow(2, float64(p.Addr().BitLen()-p.Bits())) }
