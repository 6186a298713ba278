package calctest

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// Expect is what a node should have, as lines of text, worked out the slow, obvious way from a whole store: routes, endpoints
// with the policies of each stage in order, the members of each set of each rule, and what the host does by its settings. It is the oracle of package calc
// and shares nothing with it but the decoder (api.Admit) and selectors, which have cases by hand. What rules mean beyond
// their sets, and staged policies, is not here: package verdict/world judges that. Proxied are the names of workloads, as in intents, whose proxies enforce HTTP.
func Expect(nodeName string, state []api.Update, proxied ...string) []string {
	x := &expected{node: nodeName, proxied: proxied, profiles: map[string]api.Profile{}, closedProfiles: map[string]bool{}, tiers: map[string]api.TierSpec{}, nodes: map[string]*api.Node{}, felix: map[string]api.FelixConfigurationSpec{}, bgp: map[string]api.BGPConfigurationSpec{}}
	state = slices.Clone(state)
	slices.SortFunc(state, func(a, b api.Update) int { return cmp.Compare(a.Key, b.Key) })
	var stored []api.Stored
	for _, u := range state {
		if strings.HasPrefix(u.Key, api.BlockPrefix) {
			x.block(u)
			continue
		}
		if s, err := api.Admit(u); err == nil || s.Closed != "" && (s.Ref.Kind == api.KindNetworkPolicy || s.Ref.Kind == api.KindProfile) {
			stored = append(stored, s)
			x.first(s)
		}
	}
	for _, s := range stored {
		x.second(s)
	}
	return x.lines()
}

// expected is the store, read.
type expected struct {
	node           string
	proxied        []string
	profiles       map[string]api.Profile
	closedProfiles map[string]bool
	tiers          map[string]api.TierSpec
	nodes          map[string]*api.Node
	pools          []*api.IPPool
	felix          map[string]api.FelixConfigurationSpec
	bgp            map[string]api.BGPConfigurationSpec
	policies       []expectedPolicy
	slices         []*api.KubernetesEndpointSlice
	sources        []source
	locals         []expectedLocal
	blocks         []expectedBlock
	asks           []floatingAsk
	ownAddresses   []netip.Addr // workloads' own addresses
	migrations     []*api.LiveMigration
}

// source is whatever has labels and addresses.
type source struct {
	labels map[string]string
	nets   []netip.Prefix
	ports  []api.EndpointPort
}

type expectedLocal struct {
	id, key, link, mac string
	created            string
	host, closed       bool
	source
	profiles []string
	limits   *api.QoSControls
	shared   []netip.Prefix // of its nets
	named    [4]string      // by a LiveMigration: host, orchestrator, workload, endpoint
}

// first reads what others refer to.
func (x *expected) first(s api.Stored) {
	switch r := s.Resource.(type) {
	case *api.Profile:
		x.profiles[s.Ref.Name], x.closedProfiles[s.Ref.Name] = *r, s.Closed != ""
	case *api.Tier:
		if s.Closed == "" {
			x.tiers[s.Ref.Name] = r.Spec
		}
	case *api.Node:
		x.nodes[s.Ref.Name] = r
	case *api.IPPool:
		cidr := netip.MustParsePrefix(r.Spec.CIDR).Masked()
		if !slices.ContainsFunc(x.pools, func(p *api.IPPool) bool { return netip.MustParsePrefix(p.Spec.CIDR).Masked() == cidr }) { // of several the first by name
			x.pools = append(x.pools, r)
		}
	case *api.FelixConfiguration:
		x.felix[s.Ref.Name] = r.Spec
	case *api.BGPConfiguration:
		x.bgp[s.Ref.Name] = r.Spec
	case *api.LiveMigration:
		if s.Closed == "" {
			r.Metadata.Namespace = s.Ref.Namespace
			x.migrations = append(x.migrations, r)
		}
	case *api.KubernetesEndpointSlice:
		x.slices = append(x.slices, r)
	case *api.NetworkPolicy, *api.GlobalNetworkPolicy:
		x.policies = append(x.policies, policyOf(s))
	}
}

// second reads what has labels.
func (x *expected) second(s api.Stored) {
	switch r := s.Resource.(type) {
	case *api.WorkloadEndpoint:
		labels := x.inherit(r.Metadata.Labels, r.Spec.Profiles)
		labels[api.LabelNamespace] = s.Ref.Namespace
		if r.Spec.ServiceAccountName != "" {
			labels[api.LabelServiceAccount] = r.Spec.ServiceAccountName
		}
		if o := r.Metadata.Labels[api.LabelOrchestrator]; o != "" && o == r.Spec.Orchestrator {
			labels[api.LabelOrchestrator] = o
		}
		src := source{labels: labels, nets: netsOf(r.Spec.IPNetworks)}
		for _, p := range r.Spec.Ports {
			src.ports = append(src.ports, api.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		x.sources = append(x.sources, src)
		if s.Closed == "" {
			for _, n := range r.Spec.IPNATs {
				x.asks = append(x.asks, floatingAsk{n.ExternalIP, n.InternalIP, r.Metadata.CreationTimestamp, s.Key, r.Spec.Orchestrator == "openstack"})
			}
		}
		for _, n := range src.nets {
			x.ownAddresses = append(x.ownAddresses, n.Addr())
		}
		if r.Spec.Node == x.node {
			closed := s.Closed != "" || len(src.nets) == 0
			x.locals = append(x.locals, expectedLocal{"workload/" + s.Ref.Namespace + "/" + s.Ref.Name, s.Key, r.Spec.InterfaceName, r.Spec.MAC, r.Metadata.CreationTimestamp, false, closed, src, r.Spec.Profiles, r.Spec.QoSControls, netsOf(r.Spec.AllowedIPs), x.calledBy(s.Ref.Namespace, r.Spec)})
		}
	case *api.HostEndpoint:
		src := source{x.inherit(r.Metadata.Labels, r.Spec.Profiles), netsOf(r.Spec.ExpectedIPs), r.Spec.Ports}
		x.sources = append(x.sources, src)
		if r.Spec.Node == x.node {
			x.locals = append(x.locals, expectedLocal{"host/" + s.Ref.Name, s.Key, r.Spec.InterfaceName, "", "", true, s.Closed != "", src, r.Spec.Profiles, &api.QoSControls{DSCP: api.DSCP(r.Metadata.Annotations[api.AnnotationDSCP])}, nil, [4]string{}})
		}
	case *api.NetworkSet:
		labels := x.inherit(r.Metadata.Labels, []string{"kns." + s.Ref.Namespace})
		labels[api.LabelNamespace] = s.Ref.Namespace
		x.sources = append(x.sources, source{labels: labels, nets: netsOf(r.Spec.Nets)})
	case *api.GlobalNetworkSet:
		x.sources = append(x.sources, source{labels: x.inherit(r.Metadata.Labels, nil), nets: netsOf(r.Spec.Nets)})
	}
}

// inherit is own labels, but those that only the system gives (decision 016), and then those of profiles, the first one's first.
func (x *expected) inherit(own map[string]string, profiles []string) map[string]string {
	place := []string{api.LabelNamespace, api.LabelServiceAccount, api.LabelOrchestrator}
	out := map[string]string{}
	for _, name := range slices.Backward(profiles) {
		maps.Copy(out, x.profiles[name].Spec.LabelsToApply)
	}
	for _, k := range place { // no profile says where something is
		delete(out, k)
	}
	for k, v := range own {
		if !slices.Contains(place, k) && !strings.HasPrefix(k, "pcns.") && !strings.HasPrefix(k, "pcsa.") {
			out[k] = v
		}
	}
	return out
}

func netsOf(texts []string) (out []netip.Prefix) {
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(t); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// addressesOf are those of a host, by which others know it.
func addressesOf(n *api.Node) (out []netip.Prefix) {
	texts := []string{}
	if n.Spec.BGP != nil {
		texts = append(texts, n.Spec.BGP.IPv4Address, n.Spec.BGP.IPv6Address)
	}
	for _, a := range n.Spec.Addresses {
		texts = append(texts, a.Address)
	}
	for _, t := range texts {
		addr, _, _ := strings.Cut(t, "/")
		out = append(out, netsOf([]string{addr})...)
	}
	return out
}

// selects asks a selector; that of nothing selects all.
func selects(text string, labels map[string]string) bool {
	s, err := selector.Parse(text)
	return err == nil && s.Match(labels)
}

// under are the labels with a prefix, without it: those of a namespace, or of a service account.
func under(prefix string, labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			out[rest] = v
		}
	}
	return out
}

// lines are all that the node should have.
func (x *expected) lines() []string {
	var out []string
	used := map[string]bool{}
	routes := x.ways()
	claims := map[netip.Prefix][]expectedClaim{}
	for _, l := range x.locals {
		if l.host || l.closed || x.owned(l) || !strings.HasPrefix(l.link, "cali") {
			continue
		}
		for _, n := range l.nets {
			dst := netip.PrefixFrom(n.Addr(), n.Addr().BitLen())
			claims[dst] = append(claims[dst], expectedClaim{l, slices.Contains(l.shared, n), "dev " + l.link + " mac " + l.mac + x.moves(l)})
		}
		for _, a := range x.floatingOf(l.key) {
			external := netip.MustParseAddr(a.external)
			dst := netip.PrefixFrom(external, external.BitLen())
			claims[dst] = append(claims[dst], expectedClaim{l, false, "dev " + l.link + " mac " + x.moves(l)})
		}
	}
	for dst, all := range claims { // an endpoint before a block
		routes[dst] = claimsLine(all)
	}
	for dst, to := range routes {
		out = append(out, fmt.Sprintf("route %s %s", dst, to))
	}
	for _, l := range x.locals {
		out = append(out, x.localLines(l, used)...)
	}
	for name := range used {
		out = append(out, x.ruleLines(name)...)
	}
	out = append(append(out, x.hostLines()...), x.peers()...)
	slices.Sort(out)
	return out
}
