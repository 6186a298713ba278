package nodeaddr

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// Registry has the addresses of all Nodes. The zero value is empty.
type Registry struct {
	nodes map[string]*api.Node
}

// Update takes over a resource or its deletion, and reports whether it was a Node. One that cannot be read leaves the earlier version.
func (b *Registry) Update(u api.Update) bool {
	ref, ok := api.ParseKey(u.Key)
	if !ok || ref.Kind != api.KindNode {
		return false
	}
	if b.nodes == nil {
		b.nodes = map[string]*api.Node{}
	}
	if u.Value == nil {
		delete(b.nodes, ref.Name)
		return true
	}
	if s, err := api.Admit(u); err == nil {
		if n, ok := s.Resource.(*api.Node); ok {
			b.nodes[ref.Name] = n
		}
	}
	return true
}

// Node is one of them, or nil.
func (b *Registry) Node(name string) *api.Node { return b.nodes[name] }

// NodeProblem returns why no Node can be created for a host: its name is not valid. Empty: it has one, or may have.
func (b *Registry) NodeProblem(name string) string {
	if b.nodes[name] != nil {
		return ""
	}
	n := api.New(api.KindNode)
	n.Meta().Name = name
	for _, e := range api.Validate(n) {
		return e.Reason
	}
	return ""
}

// Nodes are all of them, by name.
func (b *Registry) Nodes() []*api.Node {
	var out []*api.Node
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		out = append(out, b.nodes[name])
	}
	return out
}

// Other is another node that has an address too.
type Other struct {
	Addr  netip.Addr
	Node  string
	Field string // where it has it
}

// String describes it.
func (o Other) String() string {
	return fmt.Sprintf("%s is also that of node %s (%s)", o.Addr, o.Node, o.Field)
}

// Fix says what to do about it.
func (o Other) Fix() string {
	f := V6
	if o.Addr.Is4() {
		f = V4
	}
	return fmt.Sprintf("give one of the two another address (%s, or %s of the Node), or delete Node %s if that host is gone", f.Flag, f.Field, o.Node)
}

// Others are the nodes, other than one, that have one of these addresses too.
func (b *Registry) Others(self string, addrs ...netip.Addr) (out []Other) {
	for _, n := range b.Nodes() {
		if n.Metadata.Name == self {
			continue
		}
		for _, a := range fieldsOf(n) {
			if a.Addr.IsValid() && slices.Contains(addrs, a.Addr) {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b Other) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Field, b.Field))
	})
	return slices.CompactFunc(out, func(a, b Other) bool { return a.Addr == b.Addr && a.Node == b.Node })
}

// Clashes are the nodes that have an address that this one has in its own Node.
func (b *Registry) Clashes(self string) []Other {
	return b.Others(self, Addrs(b.nodes[self])...)
}

// fieldsOf are a node's addresses, wherever it says them.
func fieldsOf(n *api.Node) []Other {
	name := n.Metadata.Name
	out := []Other{
		{parse(Address(n, V4)), name, V4.Field},
		{parse(Address(n, V6)), name, V6.Field},
		{parse(n.Spec.IPv4VXLANTunnelAddr), name, "spec.ipv4VXLANTunnelAddr"},
		{parse(n.Spec.IPv6VXLANTunnelAddr), name, "spec.ipv6VXLANTunnelAddr"},
	}
	if n.Spec.BGP != nil {
		out = append(out, Other{parse(n.Spec.BGP.IPv4IPIPTunnelAddr), name, "spec.bgp.ipv4IPIPTunnelAddr"})
	}
	if w := n.Spec.Wireguard; w != nil {
		out = append(out, Other{parse(w.InterfaceIPv4Address), name, "spec.wireguard.interfaceIPv4Address"}, Other{parse(w.InterfaceIPv6Address), name, "spec.wireguard.interfaceIPv6Address"})
	}
	for i, a := range n.Spec.Addresses {
		out = append(out, Other{parse(a.Address), name, fmt.Sprintf("spec.addresses[%d]", i)})
	}
	return out
}

// parse reads an address with or without a length; the zero value if it is neither.
func parse(s string) netip.Addr {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr()
	}
	a, _ := netip.ParseAddr(s)
	return a
}
