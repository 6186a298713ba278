package plan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Prefixes are the datastore's keys that a [World] is to be told of.
func Prefixes() []string {
	var out []string
	for _, kind := range []string{api.KindNode, api.KindBGPConfiguration, api.KindBGPPeer, api.KindBGPFilter, api.KindIPPool} {
		out = append(out, api.KeyPrefix(kind, ""))
	}
	return out
}

// World holds the resources that BGP is about. Use New.
type World struct {
	// RouterID is that of the node, as CALICO_ROUTER_ID has it: an IPv4 address; hash, for a number made of the node's
	// name; or nothing, for the node's IPv4 address.
	RouterID string

	nodes   map[string]*api.Node
	configs map[string]*api.BGPConfiguration
	peers   map[string]*api.BGPPeer
	filters map[string]*api.BGPFilter
	pools   map[string]*api.IPPool
	odd     map[string][]string // what is wrong, by key
	// shut are resources that could not be read when nothing was known of them, with the reason, by key.
	shut map[string]string
}

// New returns an empty world.
func New() *World {
	return &World{
		nodes: map[string]*api.Node{}, configs: map[string]*api.BGPConfiguration{}, peers: map[string]*api.BGPPeer{},
		filters: map[string]*api.BGPFilter{}, pools: map[string]*api.IPPool{}, odd: map[string][]string{}, shut: map[string]string{},
	}
}

// Update takes in a resource, or its end. One that cannot be understood leaves what was there, see [api.Admit]. If
// nothing was there, a node, a pool or a filter is absent; a BGPPeer's sessions are closed as far as it says with whom
// they are, and those of the mesh if the BGPConfiguration cannot be read: it may have a password.
func (w *World) Update(u api.Update) {
	ref, ok := api.ParseKey(u.Key)
	if !ok {
		return
	}
	delete(w.odd, u.Key)
	if u.Value == nil {
		delete(w.shut, u.Key)
		w.keep(ref, nil)
		return
	}
	s, err := api.Admit(u)
	if err == nil {
		for _, p := range s.Problems {
			w.odd[u.Key] = append(w.odd[u.Key], strings.ReplaceAll(fmt.Sprintf("%s: %s: %s", ref, p.Field, p.Reason), ": : ", ": "))
		}
		delete(w.shut, u.Key)
		w.keep(ref, s.Resource)
		return
	}
	reason := fmt.Sprintf("%s: %s", ref, strings.TrimPrefix(err.Error(), u.Key+": "))
	if w.shut[u.Key] == "" && w.knows(ref) {
		w.odd[u.Key] = []string{reason + "; what was there before is kept"}
		return
	}
	w.shut[u.Key] = reason
	w.odd[u.Key] = []string{reason + "; nothing else is known of it"}
	switch ref.Kind {
	case api.KindBGPPeer, api.KindBGPConfiguration:
		if s.Resource == nil {
			s.Resource = api.New(ref.Kind)
		}
		w.keep(ref, s.Resource)
	}
}

// shutFor is why a resource could not be read; empty: it could.
func (w *World) shutFor(kind, name string) string { return w.shut[api.KeyPrefix(kind, "")+name] }

// unread are the reasons why something is not known that routes may depend on.
func (w *World) unread() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(w.shut)) {
		out = append(out, w.shut[key])
	}
	return out
}

// knows reports whether there is a resource.
func (w *World) knows(ref api.Ref) (known bool) {
	switch ref.Kind {
	case api.KindNode:
		_, known = w.nodes[ref.Name]
	case api.KindBGPConfiguration:
		_, known = w.configs[ref.Name]
	case api.KindBGPPeer:
		_, known = w.peers[ref.Name]
	case api.KindBGPFilter:
		_, known = w.filters[ref.Name]
	case api.KindIPPool:
		_, known = w.pools[ref.Name]
	}
	return known
}

func (w *World) keep(ref api.Ref, r api.Resource) {
	switch ref.Kind {
	case api.KindNode:
		keep(w.nodes, ref.Name, r)
	case api.KindBGPConfiguration:
		keep(w.configs, ref.Name, r)
	case api.KindBGPPeer:
		keep(w.peers, ref.Name, r)
	case api.KindBGPFilter:
		keep(w.filters, ref.Name, r)
	case api.KindIPPool:
		keep(w.pools, ref.Name, r)
	}
}

func keep[T any](m map[string]*T, name string, r api.Resource) {
	if v, ok := any(r).(*T); ok {
		m[name] = v
		return
	}
	delete(m, name)
}

// host is what matters of a node.
type host struct {
	name    string
	labels  map[string]string
	four    netip.Prefix
	six     netip.Prefix
	as      uint32
	port    uint16
	cluster netip.Addr
}

func (h host) addr(four bool) netip.Addr {
	if four {
		return h.four.Addr()
	}
	return h.six.Addr()
}

func (w *World) config(name string) *api.BGPConfigurationSpec {
	if c := w.configs[name]; c != nil {
		return &c.Spec
	}
	return &api.BGPConfigurationSpec{}
}

func (w *World) host(name string) (host, bool) {
	n := w.nodes[name]
	if n == nil || n.Spec.BGP == nil {
		return host{name: name}, false
	}
	b, all := n.Spec.BGP, w.config("default")
	h := host{name: name, labels: n.Metadata.Labels, as: DefaultAS}
	h.four, h.six = address(b.IPv4Address), address(b.IPv6Address)
	h.cluster, _ = netip.ParseAddr(b.RouteReflectorClusterID)
	switch {
	case b.ASNumber != nil:
		h.as = uint32(*b.ASNumber)
	case all.ASNumber != nil:
		h.as = uint32(*all.ASNumber)
	}
	h.port = cmp.Or(w.config("node."+name).ListenPort, all.ListenPort, DefaultPort)
	return h, h.four.IsValid() || h.six.IsValid()
}

// address reads an address with or without a length; the zero value if it is neither.
func address(s string) netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// hosts are all nodes that speak BGP, by name.
func (w *World) hosts() []host {
	var out []host
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if h, ok := w.host(name); ok {
			out = append(out, h)
		}
	}
	return out
}

// Plan says what a node is to do.
func (w *World) Plan(node string) Plan {
	p := Plan{Node: node, Unread: w.unread()}
	for _, key := range slices.Sorted(maps.Keys(w.odd)) {
		p.Problems = append(p.Problems, w.odd[key]...)
	}
	me, ok := w.host(node)
	if !ok {
		p.Off = fmt.Sprintf("Node %s has no address for BGP: set spec.bgp.ipv4Address or spec.bgp.ipv6Address", node)
		switch {
		case w.shutFor(api.KindNode, node) != "":
			p.Off = w.shutFor(api.KindNode, node)
		case w.nodes[node] == nil:
			p.Off = fmt.Sprintf("there is no Node %s: create it, with spec.bgp.ipv4Address", node)
		}
		return p
	}
	p.AS, p.RouterID, p.Cluster = me.as, w.routerID(me), me.cluster
	w.settings(&p, me)
	d := draft{World: w, plan: &p, me: me, hosts: w.hosts(), taken: map[netip.Addr]string{}}
	d.pools()
	d.peers()
	d.mesh()
	slices.SortFunc(p.Sessions, func(a, b Session) int { return a.Peer.Compare(b.Peer) })
	return p
}

// routerID is what is asked for, else the node's IPv4 address; a number made of its name where it has none.
func (w *World) routerID(h host) netip.Addr {
	if id, err := netip.ParseAddr(w.RouterID); err == nil {
		return id
	}
	if h.four.IsValid() && w.RouterID != RouterIDHash {
		return h.four.Addr()
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(h.name)) // never fails
	n := sum.Sum32()
	return netip.AddrFrom4([4]byte{byte(n>>24)%223 + 1, byte(n >> 16), byte(n >> 8), byte(n)})
}

// RouterIDHash asks for a router id that is made of the node's name.
const RouterIDHash = "hash"

// CheckRouterID says what is wrong with a wanted router id.
func CheckRouterID(text string) error {
	if a, err := netip.ParseAddr(text); text == "" || text == RouterIDHash || err == nil && a.Is4() && !a.IsUnspecified() {
		return nil
	}
	return fmt.Errorf("router id %q: want an IPv4 address, hash, or nothing", text)
}

// settings are those of the node's own configuration, else those of all.
func (w *World) settings(p *Plan, me host) {
	own, all := w.config("node."+me.name), w.config("default")
	p.Ignored = or(own.IgnoredInterfaces, all.IgnoredInterfaces)
	nodeIP := cmp.Or(own.BindMode, all.BindMode) == "NodeIP"
	for _, f := range []struct {
		own, any netip.Addr
	}{{me.four.Addr(), netip.IPv4Unspecified()}, {me.six.Addr(), netip.IPv6Unspecified()}} {
		switch {
		case !f.own.IsValid():
		case nodeIP:
			p.Listen = append(p.Listen, netip.AddrPortFrom(f.own, me.port))
		default:
			p.Listen = append(p.Listen, netip.AddrPortFrom(f.any, me.port))
		}
	}
	for _, list := range [][]api.BGPServiceBlock{
		or(own.ServiceClusterIPs, all.ServiceClusterIPs), or(own.ServiceExternalIPs, all.ServiceExternalIPs),
		or(own.ServiceLoadBalancerIPs, all.ServiceLoadBalancerIPs),
	} {
		for _, b := range list {
			if c := address(b.CIDR); c.IsValid() {
				p.Originate = append(p.Originate, c.Masked())
			}
		}
	}
	slices.SortFunc(p.Originate, comparePrefixes)
	p.Originate = slices.Compact(p.Originate)
	p.Foreign = slices.Clone(p.Originate)
	w.marks(p, own, all)
}

func or[T any](own, all []T) []T {
	if len(own) > 0 {
		return own
	}
	return all
}

// marks resolves the names of communities.
func (w *World) marks(p *Plan, own, all *api.BGPConfigurationSpec) {
	values := map[string]string{}
	for _, c := range append(slices.Clone(all.Communities), own.Communities...) {
		values[c.Name] = c.Value
	}
	for _, a := range or(own.PrefixAdvertisements, all.PrefixAdvertisements) {
		m := Mark{Prefix: address(a.CIDR).Masked()}
		for _, c := range a.Communities {
			value := cmp.Or(values[c], c)
			if !strings.Contains(value, ":") {
				p.Problems = append(p.Problems, fmt.Sprintf("BGPConfiguration: prefix %s: no community has the name %s", a.CIDR, c))
				continue
			}
			m.Communities = append(m.Communities, value)
		}
		if m.Prefix.IsValid() && len(m.Communities) > 0 {
			p.Marks = append(p.Marks, m)
		}
	}
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func seconds(s string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(s); err == nil && d >= time.Second {
		return d
	}
	return otherwise
}
