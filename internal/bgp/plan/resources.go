package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

// Prefixes are the datastore's keys that [Resources] needs updates of.
func Prefixes() []string {
	var out []string
	for _, kind := range []string{api.KindNode, api.KindBGPConfiguration, api.KindBGPPeer, api.KindBGPFilter, api.KindIPPool, api.KindClusterInformation} {
		out = append(out, api.KeyPrefix(kind, ""))
	}
	return out
}

// Resources holds the resources that a plan depends on. Use New.
type Resources struct {
	// RouterID is that of the node, as CALICO_ROUTER_ID has it: an IPv4 address; hash, for a number made of the node's
	// name; or nothing, for the node's IPv4 address.
	RouterID string
	// Agent: FelixConfigurations are among the updates, see [AgentPrefixes]. Without, nothing is said of whether they fit.
	Agent bool
	// Local are settings that the agent has from elsewhere, lowest first.
	Local []config.Layer
	// NoWorkloads is why the speaker has no sessions with workloads; empty: it has.
	NoWorkloads string

	nodes     map[string]*api.Node
	configs   map[string]*api.BGPConfiguration
	peers     map[string]*api.BGPPeer
	filters   map[string]*api.BGPFilter
	pools     map[string]*api.IPPool
	felix     map[string]*api.FelixConfiguration
	workloads map[string]*workload // by namespace/name
	services  map[string]*service  // by namespace/name
	slices    map[string]*slice    // likewise
	problems  map[string][]string  // by key
	// unreadable are resources that could not be read and have no earlier version, with the reason, by key.
	unreadable map[string]string
	ready      api.Readiness
}

// New returns an empty Resources.
func New() *Resources {
	return &Resources{
		nodes: map[string]*api.Node{}, configs: map[string]*api.BGPConfiguration{}, peers: map[string]*api.BGPPeer{},
		filters: map[string]*api.BGPFilter{}, pools: map[string]*api.IPPool{}, felix: map[string]*api.FelixConfiguration{}, workloads: map[string]*workload{},
		services: map[string]*service{}, slices: map[string]*slice{}, problems: map[string][]string{}, unreadable: map[string]string{},
	}
}

// Update takes over a resource, or its deletion. One that cannot be read leaves the earlier version in place, see [api.Admit]. If
// there was none, a node, a pool or a filter is absent; a BGPPeer's sessions are closed as far as their peers
// are known, and those of the mesh if the BGPConfiguration cannot be read: it may have a password.
func (w *Resources) Update(u api.Update) {
	ref, ok := api.ParseKey(u.Key)
	if !ok {
		return
	}
	delete(w.problems, u.Key)
	if u.Value == nil {
		delete(w.unreadable, u.Key)
		w.set(ref, nil)
		return
	}
	w.ready = w.ready.Saw(ref.Kind)
	s, err := api.Admit(u)
	if ref.Kind == api.KindFelixConfiguration { // its agent says what is wrong in it
		if err == nil {
			w.set(ref, s.Resource)
		}
		return
	}
	if err == nil {
		for _, p := range s.Problems {
			w.problems[u.Key] = append(w.problems[u.Key], strings.ReplaceAll(fmt.Sprintf("%s: %s: %s", ref, p.Field, p.Reason), ": : ", ": "))
		}
		delete(w.unreadable, u.Key)
		w.set(ref, s.Resource)
		return
	}
	reason := fmt.Sprintf("%s: %s", ref, strings.TrimPrefix(err.Error(), u.Key+": "))
	if w.unreadable[u.Key] == "" && w.has(ref) || ref.Kind == api.KindClusterInformation {
		w.problems[u.Key] = []string{reason + "; the earlier version stays in effect"}
		return
	}
	w.unreadable[u.Key] = reason
	w.problems[u.Key] = []string{reason + "; there is no earlier version"}
	switch ref.Kind {
	case api.KindBGPPeer, api.KindBGPConfiguration:
		if s.Resource == nil {
			s.Resource = api.New(ref.Kind)
		}
		w.set(ref, s.Resource)
	}
}

// Readiness is what the datastore says of itself. While it is frozen nothing that it holds may be acted upon, and no plan be made.
func (w *Resources) Readiness() api.Readiness { return w.ready }

// Lost notes that the datastore once had something, though it was blank from the start.
func (w *Resources) Lost() { w.ready = api.Gone }

// unreadableReason returns why a resource could not be read; empty: it could.
func (w *Resources) unreadableReason(kind, name string) string {
	return w.unreadable[api.KeyPrefix(kind, "")+name]
}

// unreadableReasons returns why resources that routes may depend on are unknown.
func (w *Resources) unreadableReasons() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(w.unreadable)) {
		out = append(out, w.unreadable[key])
	}
	return out
}

// has reports whether there is a resource.
func (w *Resources) has(ref api.Ref) (known bool) {
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
	case api.KindWorkloadEndpoint:
		_, known = w.workloads[inNamespace(ref)]
	case api.KindKubernetesService:
		_, known = w.services[inNamespace(ref)]
	case api.KindKubernetesEndpointSlice:
		_, known = w.slices[inNamespace(ref)]
	}
	return known
}

func (w *Resources) set(ref api.Ref, r api.Resource) {
	switch ref.Kind {
	case api.KindNode:
		setOrDelete(w.nodes, ref.Name, r)
	case api.KindBGPConfiguration:
		setOrDelete(w.configs, ref.Name, r)
	case api.KindBGPPeer:
		setOrDelete(w.peers, ref.Name, r)
	case api.KindBGPFilter:
		setOrDelete(w.filters, ref.Name, r)
	case api.KindIPPool:
		setOrDelete(w.pools, ref.Name, r)
	case api.KindFelixConfiguration:
		setOrDelete(w.felix, ref.Name, r)
	case api.KindWorkloadEndpoint:
		delete(w.workloads, inNamespace(ref))
		if e, ok := r.(*api.WorkloadEndpoint); ok {
			w.workloads[inNamespace(ref)] = workloadOf(e)
		}
	case api.KindKubernetesService:
		delete(w.services, inNamespace(ref))
		if s, ok := r.(*api.KubernetesService); ok && serviceOf(s) != nil {
			w.services[inNamespace(ref)] = serviceOf(s)
		}
	case api.KindKubernetesEndpointSlice:
		delete(w.slices, inNamespace(ref))
		if s, ok := r.(*api.KubernetesEndpointSlice); ok && sliceOf(s) != nil {
			w.slices[inNamespace(ref)] = sliceOf(s)
		}
	case api.KindClusterInformation:
		if info, _ := r.(*api.ClusterInformation); ref.Name == "default" {
			w.ready = w.ready.After(info)
		}
	}
}

// inNamespace is the name of a resource that is in a namespace.
func inNamespace(ref api.Ref) string { return ref.Namespace + "/" + ref.Name }

func setOrDelete[T any](m map[string]*T, name string, r api.Resource) {
	if v, ok := any(r).(*T); ok {
		m[name] = v
		return
	}
	delete(m, name)
}

// host is the part of a Node that plans use.
type host struct {
	name    string
	labels  map[string]string
	v4      netip.Prefix
	v6      netip.Prefix
	as      uint32
	port    uint16
	cluster netip.Addr
}

func (h host) addr(four bool) netip.Addr {
	if four {
		return h.v4.Addr()
	}
	return h.v6.Addr()
}

func (w *Resources) config(name string) *api.BGPConfigurationSpec {
	if c := w.configs[name]; c != nil {
		return &c.Spec
	}
	return &api.BGPConfigurationSpec{}
}

func (w *Resources) host(name string) (host, bool) {
	n := w.nodes[name]
	if n == nil || n.Spec.BGP == nil {
		return host{name: name}, false
	}
	b, all := n.Spec.BGP, w.config("default")
	h := host{name: name, labels: n.Metadata.Labels, as: w.clusterAS()}
	h.v4, h.v6 = n.BGPAddress(false), n.BGPAddress(true)
	h.cluster, _ = netip.ParseAddr(b.RouteReflectorClusterID)
	if n := b.ASNumber; n != nil && *n != 0 { // no speaker starts with 0
		h.as = uint32(*n)
	}
	h.port = cmp.Or(w.config("node."+name).ListenPort, all.ListenPort, DefaultPort)
	return h, h.v4.IsValid() || h.v6.IsValid()
}

// clusterAS is the AS of what says of none of its own: of nodes, and of peers by address.
func (w *Resources) clusterAS() uint32 {
	if n := w.config("default").ASNumber; n != nil && *n != 0 {
		return uint32(*n)
	}
	return DefaultAS
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

// bgpNodes are all nodes that speak BGP, by name.
func (w *Resources) bgpNodes() []host {
	var out []host
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if h, ok := w.host(name); ok {
			out = append(out, h)
		}
	}
	return out
}

// Plan returns the plan of a node.
func (w *Resources) Plan(node string) Plan {
	p := Plan{Node: node, Unread: w.unreadableReasons()}
	for _, key := range slices.Sorted(maps.Keys(w.problems)) {
		p.Problems = append(p.Problems, w.problems[key]...)
	}
	self, ok := w.host(node)
	if !ok {
		p.Off = fmt.Sprintf("Node %s has no address for BGP: set spec.bgp.ipv4Address or spec.bgp.ipv6Address", node)
		switch {
		case w.unreadableReason(api.KindNode, node) != "":
			p.Off = w.unreadableReason(api.KindNode, node)
		case w.nodes[node] == nil:
			p.Off = fmt.Sprintf("there is no Node %s: create it, with spec.bgp.ipv4Address", node)
		}
		return p
	}
	p.AS, p.RouterID, p.Cluster = self.as, w.routerID(self), self.cluster
	w.settings(&p, self)
	d := planner{Resources: w, plan: &p, self: self, nodes: w.bgpNodes(), taken: map[netip.Addr]string{}, services: slices.Clone(p.Foreign), counting: api.FirstOfEachCIDR(w.pools)}
	d.pools()
	d.clusterRoutes()
	d.agentSettings()
	d.filtersAlone()
	d.communities()
	d.peers()
	d.mesh()
	slices.SortFunc(p.Sessions, func(a, b Session) int { return a.Peer.Compare(b.Peer) })
	return p
}

// routerID is the configured one, else the node's IPv4 address, else a hash of its name.
func (w *Resources) routerID(h host) netip.Addr {
	if id, err := netip.ParseAddr(w.RouterID); err == nil {
		return id
	}
	if h.v4.IsValid() && w.RouterID != RouterIDHash {
		return h.v4.Addr()
	}
	return HashedID(h.name)
}

// HashedID is upstream's hash of a node's name as a router id: the first four bytes of its SHA-256, of which the first is brought below
// 224, where multicast begins. An id must not be zero.
func HashedID(name string) netip.Addr {
	sum := sha256.Sum256([]byte(name))
	id := [4]byte(sum[:])
	if id[0] >= multicast {
		id[0] -= 256 - multicast
	}
	if id == ([4]byte{}) {
		id[len(id)-1] = 1
	}
	return netip.AddrFrom4(id)
}

// multicast is the first byte of the first multicast address.
const multicast = 224

// RouterIDHash as RouterID asks for a hash of the node's name.
const RouterIDHash = "hash"

// CheckRouterID checks a configured router id.
func CheckRouterID(text string) error {
	if a, err := netip.ParseAddr(text); text == "" || text == RouterIDHash || err == nil && a.Is4() && !a.IsUnspecified() {
		return nil
	}
	return fmt.Errorf("router id %q: want an IPv4 address, hash, or nothing", text)
}

// settings applies the node's own BGPConfiguration, and default where that sets nothing.
func (w *Resources) settings(p *Plan, self host) {
	own, all := w.config("node."+self.name), w.config("default")
	p.Ignored = or(own.IgnoredInterfaces, all.IgnoredInterfaces)
	nodeIP := cmp.Or(own.BindMode, all.BindMode) == "NodeIP"
	for _, f := range []struct {
		own, any netip.Addr
	}{{self.v4.Addr(), netip.IPv4Unspecified()}, {self.v6.Addr(), netip.IPv6Unspecified()}} {
		switch {
		case !f.own.IsValid():
		case nodeIP:
			p.Listen = append(p.Listen, netip.AddrPortFrom(f.own, self.port))
		default:
			p.Listen = append(p.Listen, netip.AddrPortFrom(f.any, self.port))
		}
	}
	for f, priority := range []*int32{all.IPv4NormalRoutePriority, all.IPv6NormalRoutePriority} {
		if priority != nil {
			p.Normal[f] = uint32(*priority)
		}
	}
	p.LogSeverity = cmp.Or(own.LogSeverityScreen, all.LogSeverityScreen)
	services := w.ranges(own, all)
	p.Originate, p.Foreign = w.originated(self.name, services), services.all()
}

func or[T any](own, all []T) []T {
	if len(own) > 0 {
		return own
	}
	return all
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// seconds reads a time of a resource, which may be one that nobody has validated: beyond most, it is as if it were not there.
func seconds(s string, otherwise, most time.Duration) time.Duration {
	if d, err := time.ParseDuration(s); err == nil && d >= time.Second && d <= most {
		return d
	}
	return otherwise
}
