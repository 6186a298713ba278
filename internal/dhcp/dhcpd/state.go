package dhcpd

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/dhcp6"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// Names of upstream's networking-calico.
const (
	orchestrator   = "openstack"
	annotationFQDN = "openstack.projectcalico.org/fqdn"
	annotationNet  = "openstack.projectcalico.org/network-id"
)

// endpoint is what the server needs of a WorkloadEndpoint.
type endpoint struct {
	link         string
	mac          [6]byte
	addrs        []netip.Addr // of both versions
	network      string       // its ID in Neutron; empty: not said
	host, domain string
}

// state is what the datastore has for this host. It has no lock: one goroutine may use it.
type state struct {
	nodeKey, endpointPrefix, subnetPrefix string

	endpoints map[string]endpoint // by key
	links     map[string]int      // how many endpoints have an interface of that name
	subnets   map[string]subnet.Subnet
	node      netip.Addr // this node's own address
}

func newState(node, region string) *state {
	namespace := "openstack"
	if region != "" {
		namespace += "-region-" + region
	}
	escaped := strings.ReplaceAll(node, "-", "--") // as api.WorkloadEndpointName has it
	return &state{
		nodeKey:        api.KeyPrefix(api.KindNode, "") + node,
		endpointPrefix: api.KeyPrefix(api.KindWorkloadEndpoint, namespace) + escaped + "-" + orchestrator + "-",
		subnetPrefix:   subnet.Prefix(region),
		endpoints:      map[string]endpoint{}, links: map[string]int{}, subnets: map[string]subnet.Subnet{},
	}
}

// prefixes are those of the datastore that concern this host.
func (s *state) prefixes() []string { return []string{s.nodeKey, s.endpointPrefix, s.subnetPrefix} }

// update takes over a key. What means nothing changes nothing, and is a problem.
func (s *state) update(u api.Update) (problems []string) {
	switch id, isSubnet := strings.CutPrefix(u.Key, s.subnetPrefix); {
	case isSubnet && u.Value == nil:
		delete(s.subnets, id)
	case isSubnet:
		n, problems, err := subnet.Parse(id, u.Value)
		if err != nil {
			return []string{err.Error() + "; what was known of it before stays"}
		}
		s.subnets[id] = n
		return problems
	case strings.HasPrefix(u.Key, s.endpointPrefix):
		return s.updateEndpoint(u)
	case u.Key == s.nodeKey:
		return s.updateNode(u)
	}
	return nil
}

func (s *state) updateNode(u api.Update) []string {
	if u.Value == nil {
		s.node = netip.Addr{}
		return nil
	}
	st, err := api.Admit(u)
	if err != nil {
		return []string{err.Error() + "; what was known of it before stays"}
	}
	s.node = netip.Addr{}
	if n, ok := st.Resource.(*api.Node); ok {
		s.node = n.AddressOf(false).Addr()
	}
	return nil
}

func (s *state) updateEndpoint(u api.Update) (problems []string) {
	var st api.Stored
	var err error
	if u.Value != nil {
		if st, err = api.Admit(u); err != nil {
			return []string{err.Error() + "; what was known of it before stays"}
		}
	}
	if was, known := s.endpoints[u.Key]; known {
		delete(s.endpoints, u.Key)
		if s.links[was.link]--; s.links[was.link] == 0 {
			delete(s.links, was.link)
		}
	}
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if !ok || st.Closed != "" { // gone, or it carries no traffic
		return nil
	}
	e, problems, err := read(w)
	if err != nil {
		return append(problems, err.Error())
	}
	s.endpoints[u.Key] = e
	s.links[e.link]++
	return problems
}

// read takes what DHCP needs from a WorkloadEndpoint.
func read(w *api.WorkloadEndpoint) (e endpoint, problems []string, err error) {
	mac, err := net.ParseMAC(w.Spec.MAC)
	if err != nil || len(mac) != len(e.mac) {
		return e, nil, fmt.Errorf("its MAC address is %q: its machine gets no address by DHCP", w.Spec.MAC)
	}
	e.link, e.network = w.Spec.InterfaceName, w.Metadata.Annotations[annotationNet]
	copy(e.mac[:], mac)
	for _, text := range w.Spec.IPNetworks {
		if p, err := netip.ParsePrefix(text); err == nil && !slices.Contains(w.Spec.AllowedIPs, text) {
			e.addrs = append(e.addrs, p.Addr())
		}
	}
	if fqdn := w.Metadata.Annotations[annotationFQDN]; fqdn != "" {
		if e.host, e.domain, err = names(fqdn); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return e, problems, nil
}

func names(fqdn string) (host, domain string, err error) {
	host, domain, ok := dhcp.SplitName(fqdn)
	if !ok {
		err = fmt.Errorf("%s is %q, which is no name of a host: its machine keeps its own", annotationFQDN, fqdn)
	}
	return host, domain, err
}

// serves reports whether an interface is that of an endpoint.
func (s *state) serves(link string) bool { return s.links[link] > 0 }

// fallback is a server's address where this node has none of its own. Workloads' interfaces answer ARP for it as for all.
var fallback = netip.AddrFrom4([4]byte{169, 254, 1, 1})

// id is the address of this server.
func (s *state) id() netip.Addr {
	if s.node.IsValid() {
		return s.node
	}
	return fallback
}

// find is the endpoint whose machine has a hardware address on an interface, and its key; false: there is none.
func (s *state) find(link string, mac [6]byte) (key string, e endpoint, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(s.endpoints)) {
		if e := s.endpoints[key]; e.link == link && e.mac == mac {
			return key, e, true
		}
	}
	return "", endpoint{}, false
}

// assigned are the addresses of one IP version of an endpoint that are served.
func (s *state) assigned(e endpoint, four bool) []dhcp.Address {
	addrs := slices.DeleteFunc(slices.Clone(e.addrs), func(a netip.Addr) bool { return a.Is4() != four })
	return dhcp.Assigned(addrs, e.network, slices.Collect(maps.Values(s.subnets)))
}

// machine is what an endpoint's machine is to have of IPv4.
func (s *state) machine(e endpoint) dhcp.Machine {
	return dhcp.Machine{MAC: e.mac, Addrs: s.assigned(e, true), Host: e.host, Domain: e.domain}
}

// machine6 is what it is to have of IPv6.
func (s *state) machine6(e endpoint) dhcp6.Machine {
	return dhcp6.Machine{Addrs: s.assigned(e, false), Domain: e.domain}
}
