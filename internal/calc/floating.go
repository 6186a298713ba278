package calc

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/ipset"
	"github.com/twillnet/twill/internal/intent"
)

// floating is who asks for which floating address, on all nodes, and who has it (decision 049). Use newFloating.
type floating struct {
	claims  map[netip.Addr][]claim   // in the order in which they would have it
	asked   map[string][]intent.NAT  // by key of a workload
	owners  map[netip.Addr]keys      // workloads that have a claimed address as their own
	nodes   map[netip.Addr]keys      // nodes that have an address
	byNode  map[string][]netip.Addr  // addresses by key of a node
	decided map[netip.Addr]holder    // as of the last settleFloating
	refused map[string][]api.Problem // by key of a local workload
	again   map[netip.Addr]struct{}  // to be decided again
	fresh   map[netip.Addr]struct{}  // whose owners are not known yet
	touched map[string]struct{}      // keys of workloads whose floating addresses may have changed
	all     bool                     // all are to be decided again
}

type keys map[string]struct{}

// claim is one workload's: to a floating address, or to an interface.
type claim struct {
	created, key string
	neutrons     bool // a floating address that Neutron gave, whose record alone says who has it: no tenant asks for one by an annotation
}

// before orders claims: Neutron's before others, and then the older workload's first, so that one that comes later takes nothing away.
func (a claim) before(b claim) int {
	last := func(is bool) int { return map[bool]int{true: 1}[is] }
	return cmp.Or(cmp.Compare(last(!a.neutrons), last(!b.neutrons)), cmp.Compare(last(a.created == ""), last(b.created == "")), cmp.Compare(a.created, b.created), cmp.Compare(a.key, b.key))
}

// holder is who has a floating address, or why nobody can.
type holder struct {
	key, unfit string
	neutrons   bool
}

func newFloating() floating {
	return floating{
		claims: map[netip.Addr][]claim{}, asked: map[string][]intent.NAT{}, owners: map[netip.Addr]keys{}, nodes: map[netip.Addr]keys{},
		byNode: map[string][]netip.Addr{}, decided: map[netip.Addr]holder{}, refused: map[string][]api.Problem{},
		again: map[netip.Addr]struct{}{}, fresh: map[netip.Addr]struct{}{}, touched: map[string]struct{}{},
	}
}

// natsOf are the floating addresses that a workload asks for; what is wrong of them was left out when it was read.
func natsOf(w *api.WorkloadEndpoint, closed string) (out []intent.NAT) {
	if closed != "" {
		return nil
	}
	for _, n := range w.Spec.IPNATs {
		in, err := netip.ParseAddr(n.InternalIP)
		external, err2 := netip.ParseAddr(n.ExternalIP)
		if err == nil && err2 == nil {
			out = append(out, intent.NAT{External: external, Internal: in})
		}
	}
	slices.SortFunc(out, func(a, b intent.NAT) int {
		return cmp.Or(a.External.Compare(b.External), a.Internal.Compare(b.Internal))
	})
	return slices.CompactFunc(out, func(a, b intent.NAT) bool { return a.External == b.External })
}

// put adds or removes a key at an address.
func put(m map[netip.Addr]keys, a netip.Addr, key string, is bool) {
	switch {
	case is && m[a] == nil:
		m[a] = keys{key: {}}
	case is:
		m[a][key] = struct{}{}
	default:
		if delete(m[a], key); len(m[a]) == 0 {
			delete(m, a)
		}
	}
}

// claim takes over what a workload asks for.
func (f *floating) claim(c claim, nats []intent.NAT) {
	key := c.key
	for _, n := range f.asked[key] {
		rest := slices.DeleteFunc(f.claims[n.External], func(o claim) bool { return o.key == key })
		if f.claims[n.External] = rest; len(rest) == 0 {
			delete(f.claims, n.External)
			delete(f.owners, n.External)
		}
		f.again[n.External] = struct{}{}
	}
	if len(f.asked[key])+len(nats) > 0 {
		f.touched[key] = struct{}{}
	}
	delete(f.asked, key)
	if len(nats) == 0 {
		return
	}
	f.asked[key] = nats
	for _, n := range nats {
		cs := f.claims[n.External]
		if len(cs) == 0 {
			f.fresh[n.External] = struct{}{}
		}
		at, _ := slices.BinarySearchFunc(cs, c, claim.before)
		f.claims[n.External] = slices.Insert(cs, at, c)
		f.again[n.External] = struct{}{}
	}
}

// owns takes over which addresses are a workload's own.
func (f *floating) owns(key string, old sourceItem, now ipset.Addrs) {
	if len(f.claims) == 0 || old != nil && old.Value.Addrs == now {
		return
	}
	note := func(is bool) func(netip.Prefix) {
		return func(p netip.Prefix) {
			if a := p.Addr(); f.claims[a] != nil {
				put(f.owners, a, key, is)
				f.again[a] = struct{}{}
			}
		}
	}
	if old != nil {
		old.Value.Addrs.Each(note(false))
	}
	now.Each(note(true))
}

// ofNode takes over which addresses are a node's; nil: it is gone.
func (f *floating) ofNode(key string, r *api.Node) {
	var now []netip.Addr
	if r != nil {
		s := r.Spec
		texts := []string{s.IPv4VXLANTunnelAddr, s.IPv6VXLANTunnelAddr}
		if b := s.BGP; b != nil {
			texts = append(texts, b.IPv4Address, b.IPv6Address, b.IPv4IPIPTunnelAddr)
		}
		if w := s.Wireguard; w != nil {
			texts = append(texts, w.InterfaceIPv4Address, w.InterfaceIPv6Address)
		}
		for _, a := range s.Addresses {
			texts = append(texts, a.Address)
		}
		for _, text := range texts {
			text, _, _ = strings.Cut(text, "/")
			if a, err := netip.ParseAddr(text); err == nil {
				now = append(now, a.Unmap())
			}
		}
	}
	note := func(list []netip.Addr, is bool) {
		for _, a := range list {
			put(f.nodes, a, key, is)
			if f.claims[a] != nil {
				f.again[a] = struct{}{}
			}
		}
	}
	note(f.byNode[key], false)
	note(now, true)
	if f.byNode[key] = now; len(now) == 0 {
		delete(f.byNode, key)
	}
}

// len is how much is remembered.
func (f *floating) len() int {
	return len(f.claims) + len(f.asked) + len(f.owners) + len(f.nodes) + len(f.byNode) + len(f.decided) + len(f.refused)
}

// settleFloating decides again who has the addresses about which something changed, and marks the endpoints of this node that this concerns.
func (g *Graph) settleFloating() {
	f := &g.floats
	if len(f.fresh) > 0 {
		g.findOwners()
	}
	if f.all {
		f.all = false
		for a := range f.claims {
			f.again[a] = struct{}{}
		}
	}
	for a := range f.again {
		delete(f.again, a)
		claims := f.claims[a]
		if len(claims) == 0 {
			delete(f.decided, a)
			continue
		}
		now := holder{claims[0].key, g.unfit(a, claims[0].neutrons), claims[0].neutrons}
		if f.decided[a] == now {
			continue
		}
		f.decided[a] = now
		for _, c := range claims {
			f.touched[c.key] = struct{}{}
		}
	}
	for key := range f.touched {
		delete(f.touched, key)
		g.refuseFloating(key)
	}
}

// findOwners looks for the workloads that have addresses as their own which nobody asked for before: others are not remembered, since of a
// hundred thousand workloads few ask for any.
func (g *Graph) findOwners() {
	f := &g.floats
	g.sources.Each(func(key string, it sourceItem) {
		if !strings.HasPrefix(key, workloadsPrefix) {
			return
		}
		it.Value.Addrs.Each(func(p netip.Prefix) {
			if _, asked := f.fresh[p.Addr()]; asked && f.claims[p.Addr()] != nil {
				put(f.owners, p.Addr(), key, true)
			}
		})
	})
	clear(f.fresh)
}

const workloadsPrefix = api.ResourcesPrefix + "workloadendpoints/"

// unfit returns why an address can be nobody's floating address; empty: it can. Those of Neutron's are in force anyway, as upstream's are, in any pool
// or none.
func (g *Graph) unfit(a netip.Addr, neutrons bool) string {
	inside := false
	for _, p := range g.pools {
		if neutrons || !p.cidr.Contains(a) {
			continue
		}
		if !p.has {
			return "is in a pool that is not for workloads (allowedUses)"
		}
		inside = true
	}
	switch {
	case !neutrons && g.config.Settings.FloatingIPs != "Enabled":
		return "is not in force: floatingIPs is not Enabled in the FelixConfiguration"
	case !neutrons && !inside:
		return "is in no IPPool"
	case len(g.floats.owners[a]) > 0:
		return "is a workload's own address"
	case len(g.floats.nodes[a]) > 0:
		return "is a node's address"
	}
	return ""
}

// refusal returns why a workload has not an address that it asks for; empty: it has it.
func (f *floating) refusal(key string, a netip.Addr) string {
	d := f.decided[a]
	if d.unfit != "" || d.key == key {
		return d.unfit
	}
	ref, _ := api.ParseKey(d.key)
	why := ", which was there before"
	if d.neutrons {
		why = ", to which OpenStack gave it"
	}
	return "is that of " + ref.Namespace + "/" + ref.Name + why
}

// held returns the floating addresses that a workload has.
func (f *floating) held(l *local) (out []intent.NAT) {
	for _, n := range l.nats {
		if f.refusal(l.key, n.External) == "" {
			out = append(out, n)
		}
	}
	return out
}

// refuseFloating notes which floating addresses a workload of this node asks for and has not.
func (g *Graph) refuseFloating(key string) {
	f := &g.floats
	var out []api.Problem
	if item := g.locals.Get(key); item != nil {
		g.dirtyLocals[key] = true
		for _, n := range item.Value.nats {
			if why := f.refusal(key, n.External); why != "" {
				out = append(out, api.Problem{Key: key, Field: "spec.ipNATs", Reason: "floating address " + n.External.String() + " " + why})
			}
		}
	}
	if slices.Equal(f.refused[key], out) {
		return
	}
	if f.refused[key] = out; len(out) == 0 {
		delete(f.refused, key)
	}
	g.findings++
}
