package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
)

// LabelExcluded of a Node, if it is "true", says that no service is reached by it from outside.
const LabelExcluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// ServicePrefixes are the datastore's keys of which [Resources] needs updates while [Resources.Services] is true, in addition to those of [Prefixes].
func ServicePrefixes() []string {
	return []string{api.KeyPrefix(api.KindKubernetesService, ""), api.KeyPrefix(api.KindKubernetesEndpointSlice, "")}
}

// service is a Kubernetes Service's addresses, as far as they can be advertised.
type service struct {
	cluster, external, balancer []netip.Addr
	local                       bool // only nodes that have an endpoint of it serve those from outside
}

// slice is what an EndpointSlice says of where its service is served.
type slice struct {
	service string // namespace/name
	family  int
	nodes   map[string]bool // that have an endpoint which is ready
	ready   bool            // there is one, on whichever node
}

// serviceOf reads a service; nil: it has no addresses that lead anywhere.
func serviceOf(s *api.KubernetesService) *service {
	if s.Spec.Type == api.ServiceExternalName || len(s.Spec.ClusterIPs) == 0 || s.Spec.ClusterIPs[0] == api.ServiceHeadless {
		return nil
	}
	out := &service{cluster: addresses(s.Spec.ClusterIPs), external: addresses(s.Spec.ExternalIPs), local: s.Spec.ExternalTrafficPolicy == api.ServiceLocal}
	for _, i := range s.Status.LoadBalancer.Ingress {
		out.balancer = append(out.balancer, addresses([]string{i.IP})...)
	}
	return out
}

// addresses reads those of a list that are addresses.
func addresses(list []string) (out []netip.Addr) {
	for _, text := range list {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// sliceOf reads a slice; nil: it is of no service, or of names. Whether an endpoint that does not say so is ready is not known, and
// Kubernetes takes it for ready.
func sliceOf(s *api.KubernetesEndpointSlice) *slice {
	if s.Service() == "" || s.AddressType != "IPv4" && s.AddressType != "IPv6" {
		return nil
	}
	out := &slice{service: s.Metadata.Namespace + "/" + s.Service(), family: family(s.AddressType == "IPv4"), nodes: map[string]bool{}}
	for _, e := range s.Endpoints {
		if c := e.Conditions; c != nil && c.Ready != nil && !*c.Ready {
			continue
		}
		if out.ready = true; e.NodeName != "" {
			out.nodes[e.NodeName] = true
		}
	}
	return out
}

// serviceRanges are the prefixes of which addresses of services are advertised.
type serviceRanges struct {
	cluster, external, balancer []netip.Prefix
	single                      bool // those of load balancers one by one, and not as a whole
}

func (w *Resources) ranges(own, all *api.BGPConfigurationSpec) serviceRanges {
	return serviceRanges{
		cluster:  prefixesOf(or(own.ServiceClusterIPs, all.ServiceClusterIPs)),
		external: prefixesOf(or(own.ServiceExternalIPs, all.ServiceExternalIPs)),
		balancer: prefixesOf(or(own.ServiceLoadBalancerIPs, all.ServiceLoadBalancerIPs)),
		single:   cmp.Or(own.ServiceLoadBalancerAggregation, all.ServiceLoadBalancerAggregation) == "Disabled",
	}
}

func prefixesOf(blocks []api.BGPServiceBlock) (out []netip.Prefix) {
	for _, b := range blocks {
		if c := address(b.CIDR); c.IsValid() {
			out = append(out, c.Masked())
		}
	}
	return out
}

func (r serviceRanges) all() []netip.Prefix {
	return inOrder(slices.Concat(r.cluster, r.external, r.balancer))
}

func inOrder(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, comparePrefixes)
	return slices.Compact(prefixes)
}

// Services reports whether a node's plan depends on services: some addresses of theirs are to be advertised.
func (w *Resources) Services(node string) bool {
	return len(w.ranges(w.config("node."+node), w.config("default")).all()) > 0
}

// originated are the prefixes, and single addresses, of services that a node advertises. A single one is for packets that must not go to
// every node (its service says Local), or not as a part of a prefix; one that is named as a prefix by itself is advertised as its
// service says, and not while there is none: nobody would serve it.
func (w *Resources) originated(node string, r serviceRanges) []netip.Prefix {
	n := w.nodes[node]
	if n != nil && n.Metadata.Labels[LabelExcluded] == "true" {
		return nil
	}
	here, anywhere := w.served(kubernetesNames(node, n))
	singles := map[netip.Prefix]bool{} // of services that are decided one by one: whether this node advertises it
	for key, s := range w.services {
		for _, of := range []struct {
			addrs  []netip.Addr
			ranges []netip.Prefix
			single bool
		}{{s.cluster, r.cluster, false}, {s.external, r.external, false}, {s.balancer, r.balancer, r.single}} {
			for _, a := range of.addrs {
				p := netip.PrefixFrom(a, a.BitLen())
				served := serving{key, family(a.Is4())}
				switch {
				case !slices.ContainsFunc(of.ranges, func(r netip.Prefix) bool { return r.Contains(a) }):
				case s.local:
					singles[p] = singles[p] || here[served]
				case of.single:
					singles[p] = singles[p] || anywhere[served]
				case slices.Contains(of.ranges, p):
					singles[p] = true
				}
			}
		}
	}
	var out []netip.Prefix
	whole := slices.Concat(r.cluster, r.external)
	if !r.single {
		whole = append(whole, r.balancer...)
	}
	for _, p := range whole {
		if _, decided := singles[p]; !decided && !p.IsSingleIP() {
			out = append(out, p)
		}
	}
	for p, advertised := range singles {
		if advertised {
			out = append(out, p)
		}
	}
	return inOrder(out)
}

// serviceRules are a session's rules for addresses of services. What was learned is not passed on where this node would be the next hop,
// unless it reflects: it may serve none of it, be excluded, and has no route to who does. So nor is it as part of a pool for load balancers.
// 0.0.0.0/0 is all addresses, and not those of services.
func (d *planner) serviceRules(s Session) (out []Rule) {
	own := !d.self.cluster.IsValid() && (s.NextHop == NextHopSelf || s.NextHop == NextHopAuto && !s.Internal())
	for _, p := range d.services {
		if p.Addr().Is4() != s.Peer.Is4() {
			continue
		}
		r := within(fmt.Sprintf("service prefix %s", p), p, true)
		r.Own = own
		out = append(out, r)
		if own && p.Bits() > 0 {
			learned := within(fmt.Sprintf("service prefix %s, learned,", p), p, false)
			learned.Learned = true
			out = append(out, learned)
		}
	}
	return out
}

// serving is a service in one family.
type serving struct {
	service string
	family  int
}

// served says which services have an endpoint that is ready on a node, which has these names, and on any.
func (w *Resources) served(names []string) (here, anywhere map[serving]bool) {
	here, anywhere = map[serving]bool{}, map[serving]bool{}
	for _, s := range w.slices {
		at := serving{s.service, s.family}
		anywhere[at] = anywhere[at] || s.ready
		here[at] = here[at] || slices.ContainsFunc(names, func(name string) bool { return s.nodes[name] })
	}
	return here, anywhere
}

// kubernetesNames are those by which Kubernetes knows a node.
func kubernetesNames(node string, n *api.Node) []string {
	names := []string{node}
	if n == nil {
		return names
	}
	for _, r := range n.Spec.OrchRefs {
		if r.Orchestrator == "k8s" && r.NodeName != "" {
			names = append(names, r.NodeName)
		}
	}
	return names
}
