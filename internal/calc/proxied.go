package calc

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// proxied is the set of the addresses of local workloads whose proxies enforce what rules ask of requests.
type proxied struct {
	by      map[intent.EndpointID]bool
	uses    int // by rules
	present bool
	members []intent.Member // sorted; as of the last flush
	dirty   bool            // members may differ
}

// Proxied notes the workloads of this node whose proxies enforce what rules ask of requests, all of them each time. Only the host can know that: rules
// with HTTP match nothing at the others (decision 094).
func (g *Graph) Proxied(by map[intent.EndpointID]bool) {
	if !maps.Equal(by, g.proxies.by) {
		g.proxies.by, g.proxies.dirty = maps.Clone(by), true
	}
}

// flushProxied adds the change of the set, and returns its name if it is gone.
func (g *Graph) flushProxied(b *intent.Batch, goneEndpoints []intent.Key) (gone []intent.Key) {
	x := &g.proxies
	was := x.members
	if x.dirty || len(b.Endpoints)+len(goneEndpoints) > 0 {
		x.members, x.dirty = g.proxiedMembers(), false
	}
	switch {
	case x.uses == 0 && x.present:
		x.present = false
		return []intent.Key{intent.SetProxied}
	case x.uses == 0:
	case !x.present:
		x.present = true
		b.IPSets = append(b.IPSets, x.set())
	default:
		d := intent.MemberDelta{Set: intent.SetProxied, Added: without(x.members, was), Removed: without(was, x.members)}
		if len(d.Added)+len(d.Removed) > 0 {
			b.Members = append(b.Members, d)
		}
	}
	return nil
}

func (g *Graph) proxiedMembers() (out []intent.Member) {
	if len(g.proxies.by) == 0 {
		return nil
	}
	for _, e := range g.sent.endpoints {
		if !g.proxies.by[e.ID] || e.ID.Kind != intent.Workload || e.Closed != "" {
			continue
		}
		for _, a := range e.Addrs {
			out = append(out, intent.Member{Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	slices.SortFunc(out, compareMembers)
	return slices.Compact(out)
}

func compareMembers(a, b intent.Member) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) }

// without are those of a sorted list that another one has not.
func without(list, other []intent.Member) (out []intent.Member) {
	for _, m := range list {
		if _, is := slices.BinarySearchFunc(other, m, compareMembers); !is {
			out = append(out, m)
		}
	}
	return out
}

// set is the set as it was flushed.
func (x *proxied) set() intent.IPSet {
	return intent.IPSet{ID: intent.SetProxied, Kind: intent.SetAddrs, Comment: "workloads whose proxies enforce HTTP", Members: x.members}
}

// sent returns the set if there is one.
func (x *proxied) sent() []intent.IPSet {
	if !x.present {
		return nil
	}
	return []intent.IPSet{x.set()}
}
