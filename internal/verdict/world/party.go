package world

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// node is a host of the cluster.
type node struct {
	name  string
	addrs []netip.Addr
	ends  []netip.Addr // of tunnels
	// interfaces are those that the Node lists, with their addresses as text.
	interfaces []api.NodeInterface
}

// Resolve finds the party that s names: "namespace/workload" (by the name of
// the pod, of the workload or of the resource), "host/NODE" or the name of a
// node, or an address. An address of a workload or a node means that one. If s is unknown or ambiguous, the
// error lists similar names or the candidates.
func (w *World) Resolve(s string) (Party, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return w.partyOf(a.Unmap().WithZone("")), nil
	}
	if n, ok := w.nodes[strings.TrimPrefix(s, "host/")]; ok {
		return hostParty(n), nil
	}
	if name, ok := strings.CutPrefix(s, "host/"); ok && w.usesNode(name) {
		return hostParty(node{name: name}), nil
	}
	var found []*endpoint
	for _, e := range w.workloads {
		if slices.Contains(w.names(e), s) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return workloadParty(found[0], s), nil
	case 0:
		return Party{}, w.unknown(s)
	}
	names := []string{}
	for _, e := range found {
		names = append(names, e.name)
	}
	return Party{}, fmt.Errorf("%s: ambiguous; say one of %s", s, strings.Join(names, ", "))
}

// names returns all names of an endpoint.
func (w *World) names(e *endpoint) []string {
	return []string{e.name, e.namespace + "/" + e.spec.Pod, e.namespace + "/" + e.spec.Workload}
}

func (w *World) usesNode(name string) bool {
	return slices.ContainsFunc(w.workloads, func(e *endpoint) bool { return e.spec.Node == name })
}

// Parties returns all workloads and nodes, by name.
func (w *World) Parties() []Party {
	var out []Party
	for _, e := range w.workloads {
		out = append(out, workloadParty(e, e.name))
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		out = append(out, hostParty(w.nodes[name]))
	}
	return out
}

// partyOf finds the owner of address a. An open workload precedes a closed one, and then one that has it before others (decision 110).
func (w *World) partyOf(a netip.Addr) Party {
	var owner *endpoint
	for _, e := range w.workloads {
		if slices.Contains(e.addrs, a) && (owner == nil || owner.closed != "" && e.closed == "" || (owner.closed == "") == (e.closed == "") && e.has(a, owner)) {
			owner = e
		}
	}
	if owner != nil {
		p := workloadParty(owner, owner.label)
		p.Addrs = []netip.Addr{a}
		return p
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if slices.Contains(w.nodes[name].addrs, a) {
			p := hostParty(w.nodes[name])
			p.Addrs = []netip.Addr{a}
			return p
		}
	}
	if e, internal := w.floating(a); e != nil {
		p := workloadParty(e, e.label+" by its floating address "+a.String())
		p.Addrs, p.Floating = []netip.Addr{internal}, a
		return p
	}
	return Party{Name: a.String(), Addrs: []netip.Addr{a}}
}

// has reports whether an endpoint has an address, and not another that claims it, too, and whose key is smaller: one that has it by itself before one that
// shares it, and the older before the newer, of which one without a time is.
func (e *endpoint) has(a netip.Addr, o *endpoint) bool {
	mine, others := contains(readPrefixes(e.spec.AllowedIPs), a), contains(readPrefixes(o.spec.AllowedIPs), a)
	switch {
	case mine != others:
		return others
	case e.created == "" || o.created == "":
		return e.created > o.created
	}
	return e.created < o.created
}

func workloadParty(e *endpoint, name string) Party {
	return Party{Name: name, Endpoint: e.name, Node: e.spec.Node, Addrs: slices.Clone(e.addrs)}
}

func hostParty(n node) Party {
	return Party{Name: "host/" + n.name, Node: n.name, Host: true, Addrs: slices.Clone(n.addrs)}
}

// unknown lists the names most similar to s.
func (w *World) unknown(s string) error {
	last := s[strings.LastIndex(s, "/")+1:]
	var alike, all []string
	for _, p := range w.Parties() {
		name := p.Name
		if e := w.endpoint(p.Endpoint); e != nil {
			name = e.label
		}
		all = append(all, name)
		if last != "" && strings.Contains(name, last) {
			alike = append(alike, name)
		}
	}
	if len(alike) == 0 {
		alike = all
	}
	slices.Sort(alike)
	alike = slices.Compact(alike)
	const most = 8
	if len(alike) > most {
		alike = append(alike[:most], "…")
	}
	if len(alike) == 0 {
		return fmt.Errorf("%s: no such workload or host; there are none at all", s)
	}
	return fmt.Errorf("%s: no such workload, host or address; known are %s", s, strings.Join(alike, ", "))
}

// endpoint finds a workload by the name of its resource.
func (w *World) endpoint(name string) *endpoint {
	for _, e := range w.workloads {
		if e.name == name && name != "" {
			return e
		}
	}
	return nil
}

// peer is the node as rules mean it: its addresses, under its labels.
func (n node) peer(labels map[string]string) selectable {
	out := selectable{labels: map[string]string{}}
	maps.Copy(out.labels, labels)
	out.labels[api.LabelNode] = n.name
	for _, a := range n.addrs {
		out.prefixes = append(out.prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func readNode(name string, r *api.Node) node {
	n := node{name: name, interfaces: r.Spec.Interfaces}
	texts := []string{}
	if r.Spec.BGP != nil { // first: other nodes know it by these
		texts = append(texts, r.Spec.BGP.IPv4Address, r.Spec.BGP.IPv6Address)
	}
	for _, a := range r.Spec.Addresses {
		texts = append(texts, a.Address)
	}
	for _, s := range texts {
		s, _, _ = strings.Cut(s, "/") // 192.0.2.1/24 is that address with the length of its network
		if a, err := netip.ParseAddr(s); err == nil && !slices.Contains(n.addrs, a) {
			n.addrs = append(n.addrs, a)
		}
	}
	own := r.Spec
	texts = []string{own.IPv4VXLANTunnelAddr, own.IPv6VXLANTunnelAddr}
	if own.BGP != nil {
		texts = append(texts, own.BGP.IPv4IPIPTunnelAddr)
	}
	for _, s := range texts {
		if a, err := netip.ParseAddr(s); err == nil {
			n.ends = append(n.ends, a)
		}
	}
	return n
}
