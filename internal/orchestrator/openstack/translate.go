package openstack

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// Names of upstream's networking-calico, by which users' own policies select.
const (
	orchestrator     = api.OrchestratorOpenStack
	labelGroup       = "sg.projectcalico.org/openstack-"
	labelGroupName   = "sg-name.projectcalico.org/openstack-"
	labelProject     = "projectcalico.org/openstack-project-id"
	labelProjectName = "projectcalico.org/openstack-project-name"
	labelParent      = "projectcalico.org/openstack-project-parent-id"
	labelNetworkName = "projectcalico.org/openstack-network-name"
	annotationFQDN   = "openstack.projectcalico.org/fqdn"
	annotationNet    = "openstack.projectcalico.org/network-id"
	policyPrefix     = "ossg.default."
	// annotationRevision has Neutron's revision_number of what was written last.
	annotationRevision = "openstack." + api.AnnotationPrefix + "revision"
)

// maxLabel is how long a value, and the name within a key, of a label can be.
const maxLabel = 63

// region is that of Neutron's servers; empty: there is but one.
type region string

func (r region) namespace() string {
	if r == "" {
		return "openstack"
	}
	return "openstack-region-" + string(r)
}

// check refuses a name that openstackRegion of FelixConfiguration could not be.
func (r region) check() error {
	f, _ := api.New(api.KindFelixConfiguration).(*api.FelixConfiguration)
	f.Metadata.Name, f.Spec.OpenstackRegion = "default", string(r)
	if errs := api.Validate(f); len(errs) > 0 {
		return fmt.Errorf("region: %w", errs)
	}
	return nil
}

// subnets begins the keys of subnets, as upstream's DHCP agent reads them.
func (r region) subnets() string { return subnet.Prefix(string(r)) }

// endpoint is what becomes of a port; nil: it has none, and why, if that is not plain. problems is what of it has no effect. An error is why it cannot
// be expressed, which closes it (decision 106).
func (r region) endpoint(p *Port) (e *api.WorkloadEndpoint, problems []string, err error) {
	switch {
	case !strings.HasPrefix(p.DeviceOwner, "compute:") && !strings.HasPrefix(p.DeviceOwner, "kuryr:container"):
		return nil, nil, nil // of Neutron's own, such as a router
	case p.Host == "" || p.DeviceID == "":
		return nil, nil, nil // not bound yet
	case !p.AdminStateUp:
		return nil, []string{"admin_state_up is false: it has no endpoint, and carries no packets"}, nil
	}
	w, _ := api.New(api.KindWorkloadEndpoint).(*api.WorkloadEndpoint)
	w.Spec = api.WorkloadEndpointSpec{
		Orchestrator: orchestrator, Workload: p.DeviceID, Node: p.Host, Endpoint: p.ID, MAC: p.MAC, InterfaceName: "tap" + p.ID[:min(len(p.ID), 11)],
	}
	for _, ip := range p.FixedIPs {
		a, err := netip.ParseAddr(ip.Address)
		if err != nil {
			return nil, nil, fmt.Errorf("fixed_ips: %w", err)
		}
		w.Spec.IPNetworks = append(w.Spec.IPNetworks, netip.PrefixFrom(a, a.BitLen()).String())
		switch {
		case ip.Gateway == "":
		case a.Is4():
			w.Spec.IPv4Gateway = ip.Gateway
		default:
			w.Spec.IPv6Gateway = ip.Gateway
		}
	}
	problems, err = addPairs(w, p)
	if err != nil {
		return nil, nil, err
	}
	limits, more := limitsOf(p.QoSRules)
	w.Spec.QoSControls = limits
	problems = append(problems, more...)
	problems = append(problems, addFloating(w, p)...)
	if p.PortSecurityEnabled != nil && !*p.PortSecurityEnabled {
		problems = append(problems, "port_security_enabled is false: packets are filtered all the same, by security groups and policies")
	}
	if w.Metadata.Name, err = api.WorkloadEndpointName(w.Spec); err != nil {
		return nil, nil, err
	}
	w.Metadata.Namespace, w.Metadata.Labels, w.Metadata.Annotations = r.namespace(), labelsOf(p), annotationsOf(p)
	if errs := api.Validate(w); len(errs) > 0 {
		return nil, nil, errs
	}
	return w, problems, nil
}

// addFloating adds the addresses that stand for the port's own. One that stands for another address, such as one that the port has no more,
// is left out.
func addFloating(w *api.WorkloadEndpoint, p *Port) (problems []string) {
	for _, f := range p.FloatingIPs {
		nat := api.IPNAT{InternalIP: f.Fixed, ExternalIP: f.Floating}
		reason := nat.Bad(w.Spec.IPNetworks)
		if slices.ContainsFunc(w.Spec.IPNATs, func(n api.IPNAT) bool { return n.ExternalIP == nat.ExternalIP }) {
			reason = "is there twice"
		}
		if reason != "" {
			problems = append(problems, fmt.Sprintf("floating address %s for %s has no effect: it %s", f.Floating, f.Fixed, reason))
			continue
		}
		w.Spec.IPNATs = append(w.Spec.IPNATs, nat)
	}
	return problems
}

// addPairs adds the addresses that a port may use besides its own.
func addPairs(w *api.WorkloadEndpoint, p *Port) (problems []string, err error) {
	for _, pair := range p.AddressPairs {
		net, err := prefixOf(pair.Address)
		if err != nil {
			return nil, fmt.Errorf("allowed_address_pairs: %w", err)
		}
		if pair.MAC != "" && !strings.EqualFold(pair.MAC, p.MAC) {
			problems = append(problems, fmt.Sprintf("allowed_address_pairs: of %s the MAC address %s has no effect: packets go to the port's own", pair.Address, pair.MAC))
		}
		switch {
		case !net.IsSingleIP():
			w.Spec.AllowSpoofedSourcePrefixes = append(w.Spec.AllowSpoofedSourcePrefixes, net.String())
			problems = append(problems, fmt.Sprintf("allowed_address_pairs: from %s packets may be sent only if workloadSourceSpoofing of FelixConfiguration is Any, and none are routed to the port", net))
		case !slices.Contains(w.Spec.IPNetworks, net.String()):
			w.Spec.IPNetworks = append(w.Spec.IPNetworks, net.String())
			w.Spec.AllowedIPs = append(w.Spec.AllowedIPs, net.String())
		}
	}
	return problems, nil
}

func prefixOf(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return p.Masked(), err
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func labelsOf(p *Port) map[string]string {
	out := map[string]string{}
	for _, id := range p.SecurityGroups {
		name := labelValue(p.GroupNames[id], maxLabel-len(labelGroupName))
		out[labelGroup+id] = name
		if name != "" {
			out[labelGroupName+name] = id
		}
	}
	project := p.ProjectID
	if project == "" {
		project = p.TenantID
	}
	for key, value := range map[string]string{labelProject: project, labelProjectName: deref(p.ProjectName), labelParent: deref(p.ProjectParentID), labelNetworkName: p.NetworkName} {
		if value = labelValue(value, maxLabel); value != "" {
			out[key] = value
		}
	}
	return out
}

func annotationsOf(p *Port) map[string]string {
	out := map[string]string{annotationNet: p.NetworkID, annotationRevision: strconv.FormatInt(p.Revision, 10)}
	if len(p.DNSAssignment) > 0 && p.DNSAssignment[0].FQDN != "" {
		out[annotationFQDN] = p.DNSAssignment[0].FQDN
	}
	return out
}

var notOfLabels = regexp.MustCompile(`[^-_.A-Za-z0-9]`)

// labelValue makes of a name that somebody chose one that a label can have, as upstream does: other characters become _, and
// what is no letter or digit goes from both ends.
func labelValue(name string, most int) string {
	name = notOfLabels.ReplaceAllString(name, "_")
	return strings.Trim(name[:min(len(name), most)], "-_.")
}

// policy is what becomes of a security group. A rule that cannot be expressed is left out, so that it allows nothing; if all of them together
// cannot be, none of them allows anything.
func (r region) policy(g *SecurityGroup) (p *api.NetworkPolicy, problems []string) {
	p, _ = api.New(api.KindNetworkPolicy).(*api.NetworkPolicy)
	p.Metadata.Name, p.Metadata.Namespace = policyPrefix+g.ID, r.namespace()
	p.Metadata.Annotations = map[string]string{annotationRevision: strconv.FormatInt(g.Revision, 10)}
	p.Spec.Tier, p.Spec.Selector = api.TierDefault, memberOf(g.ID)
	p.Spec.Types = []api.PolicyType{api.Ingress, api.Egress}
	if g.Stateful != nil && !*g.Stateful {
		problems = append(problems, "stateful is false: replies are allowed all the same")
	}
	for _, rule := range g.Rules {
		out, err := rule.translated()
		if err == nil {
			err = refused(p, []api.Rule{out})
		}
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("rule %s allows nothing: %v", rule.ID, err))
		case rule.Direction == "ingress":
			p.Spec.Ingress = append(p.Spec.Ingress, out)
		case rule.Direction == "egress":
			p.Spec.Egress = append(p.Spec.Egress, out)
		default:
			problems = append(problems, fmt.Sprintf("rule %s allows nothing: its direction is %q, neither ingress nor egress", rule.ID, rule.Direction))
		}
	}
	if err := refused(p, nil); err != nil {
		p.Spec.Ingress, p.Spec.Egress = nil, nil
		problems = append(problems, fmt.Sprintf("none of its rules allows anything: %v", err))
	}
	return p, problems
}

// refused is why a policy could not be stored, with these rules in place of its own, if there are any.
func refused(p *api.NetworkPolicy, instead []api.Rule) error {
	of := *p
	if instead != nil {
		of.Spec.Ingress, of.Spec.Egress = instead, nil
	}
	if errs := api.Validate(&of); len(errs) > 0 {
		return errs
	}
	return nil
}

func memberOf(group string) string { return "has(" + labelGroup + group + ")" }

func (n *Rule) translated() (out api.Rule, err error) {
	out.Action = api.Allow
	version := map[string]int{"IPv4": 4, "IPv6": 6}[n.Ethertype]
	if version == 0 {
		return out, fmt.Errorf("its ethertype is %q, neither IPv4 nor IPv6", n.Ethertype)
	}
	out.IPVersion = &version
	protocol, err := n.protocol(version)
	if err != nil {
		return out, err
	}
	out.Protocol = protocol
	remote := &out.Source
	if n.Direction == "egress" {
		remote = &out.Destination
	}
	if n.RemoteAddressGroupID != "" {
		return out, fmt.Errorf("it is about address group %s, and those are not followed", n.RemoteAddressGroupID)
	}
	if n.RemoteGroupID != "" {
		remote.Selector = memberOf(n.RemoteGroupID)
	}
	if n.RemoteIPPrefix != "" {
		net, err := prefixOf(n.RemoteIPPrefix)
		if err != nil {
			return out, fmt.Errorf("remote_ip_prefix: %w", err)
		}
		remote.Nets = []string{net.String()}
	}
	return out, n.addPorts(&out)
}

// addPorts adds ports, or the type and code of ICMP, which are in their place. -1 stands for all.
func (n *Rule) addPorts(out *api.Rule) error {
	first, last := given(n.PortMin), given(n.PortMax)
	if first == nil && last == nil {
		return nil
	}
	number := uint8(0)
	if out.Protocol != nil {
		number, _ = out.Protocol.Number()
	}
	switch number {
	case 1, 58:
		out.ICMP = &api.ICMPFields{Type: first, Code: last}
		if first == nil {
			return fmt.Errorf("it has an ICMP code, %d, without a type", *last)
		}
		return within("the ICMP type or code", 255, first, last)
	case 6, 17, 132:
		if first == nil || last == nil || *first > *last {
			return fmt.Errorf("its ports are not a range")
		}
		if err := within("a port", 65535, first, last); err != nil {
			return err
		}
		out.Destination.Ports = []api.Port{{Min: uint16(*first), Max: uint16(*last)}}
		return nil
	default:
		return fmt.Errorf("its protocol, %s, has no ports here", textOf(n.Protocol))
	}
}

func given(n *int) *int {
	if n == nil || *n == -1 {
		return nil
	}
	return n
}

func within(what string, most int, ns ...*int) error {
	for _, n := range ns {
		if n != nil && (*n < 0 || *n > most) {
			return fmt.Errorf("%s is %d: want 0 to %d", what, *n, most)
		}
	}
	return nil
}

// numbers are those of the names that Neutron has for protocols, by IANA's registry of protocol numbers, where policy has no name.
var numbers = map[string]uint8{
	"ah": 51, "dccp": 33, "egp": 8, "esp": 50, "gre": 47, "igmp": 2, "ipip": 4, "ipv6-encap": 41, "ipv6-frag": 44, "ipv6-nonxt": 59, "ipv6-opts": 60,
	"ipv6-route": 43, "ospf": 89, "pgm": 113, "rsvp": 46, "vrrp": 112,
}

// protocol is that of a rule; nil: all.
func (n *Rule) protocol(version int) (*api.Protocol, error) {
	text := textOf(n.Protocol)
	switch name := strings.ToLower(text); name {
	case "", "null", "any", "0", "-1":
		return nil, nil
	case "tcp", "udp", "sctp":
		return &api.Protocol{Name: strings.ToUpper(name)}, nil
	case "udplite":
		return &api.Protocol{Name: "UDPLite"}, nil
	case "icmp", "1", "icmpv6", "ipv6-icmp", "58":
		switch {
		case version == 6 && name != "1": // of IPv6, icmp has always meant its own
			return &api.Protocol{Name: "ICMPv6"}, nil
		case version == 4 && (name == "icmp" || name == "1"):
			return &api.Protocol{Name: "ICMP"}, nil
		}
		return nil, fmt.Errorf("its protocol is %s, and its ethertype %s", text, n.Ethertype)
	default:
		if num, ok := numbers[name]; ok {
			return &api.Protocol{Num: num}, nil
		}
		num, err := strconv.ParseUint(name, 10, 8)
		if err != nil {
			return nil, fmt.Errorf("its protocol is %s: want a name that Neutron has, or a number up to 255", text)
		}
		return &api.Protocol{Num: uint8(num)}, nil
	}
}

// textOf is a text or a number of JSON.
func textOf(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

// subnet is the key of a subnet, and what is stored there; none if nobody serves its addresses by DHCP.
func (r region) subnet(s *Subnet) (kv api.Update, err error) {
	if s.ID == "" || strings.Contains(s.ID, "/") {
		return kv, fmt.Errorf("subnet %q: want an ID without a slash", s.ID)
	}
	kv.Key = r.subnets() + s.ID
	if !s.EnableDHCP {
		return kv, nil
	}
	net, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return kv, fmt.Errorf("cidr: %w", err)
	}
	out := subnet.Stored{NetworkID: s.NetworkID, CIDR: net.Masked().String(), HostRoutes: s.HostRoutes, Gateway: s.Gateway, DNSServers: s.DNSServers, RAMode: deref(s.RAMode), AddressMode: deref(s.AddressMode)}
	if len(out.HostRoutes) == 0 {
		out.HostRoutes = json.RawMessage("[]")
	}
	kv.Value, err = json.Marshal(out)
	return kv, err
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
