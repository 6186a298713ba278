// Package subnet is a subnet of Neutron's in the form in which the datastore has it for DHCP servers: that of upstream's networking-calico.
//
// In: what is stored under a key. Out: a [Subnet], and what of it has no effect. `twill openstack-plugin` writes [Stored], `twill dhcp` reads it.
package subnet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/twillnet/twill/api"
)

// Prefix begins the keys of the subnets of a region; empty: there is but one. The ID of the subnet follows.
func Prefix(region string) string {
	if region == "" {
		return api.Root + "dhcp/v2/no-region/subnet/"
	}
	return api.Root + "dhcp/v2/region-" + region + "/subnet/"
}

// Stored is a value, as upstream's DHCP agent reads it.
type Stored struct {
	NetworkID   string          `json:"network_id"`
	CIDR        string          `json:"cidr"`
	HostRoutes  json.RawMessage `json:"host_routes"` // a list of HostRoute
	Gateway     *string         `json:"gateway_ip"`
	DNSServers  []string        `json:"dns_servers,omitempty"`
	RAMode      string          `json:"ipv6_ra_mode,omitempty"`
	AddressMode string          `json:"ipv6_address_mode,omitempty"`
}

// HostRoute is a route that machines are to have.
type HostRoute struct {
	Destination string `json:"destination"`
	NextHop     string `json:"nexthop"`
}

// Subnet is a subnet whose addresses are served by DHCP.
type Subnet struct {
	ID, NetworkID string
	CIDR          netip.Prefix
	Gateway       netip.Addr // the zero value: machines have no default route
	Routes        []Route
	DNS           []netip.Addr
	Mode          Mode // of IPv6; none of IPv4
}

// Mode is how machines get their IPv6 addresses, in Neutron's words.
type Mode string

// Modes of IPv6 subnets.
const (
	Stateful  Mode = "dhcpv6-stateful"  // from a DHCPv6 server
	Stateless Mode = "dhcpv6-stateless" // they make them of the prefix, and get the rest from a DHCPv6 server
	SLAAC     Mode = "slaac"            // they make them of the prefix
)

// Autonomous reports whether machines make their addresses of the prefix.
func (s Subnet) Autonomous() bool {
	return (s.Mode == SLAAC || s.Mode == Stateless) && s.CIDR.Bits() == autonomousBits
}

// autonomousBits is the only length of a prefix to which an interface of Ethernet adds an identifier of its own (RFC 2464, 4).
const autonomousBits = 64

// Route is a route that machines are to have besides the default one.
type Route struct {
	Dst netip.Prefix
	Via netip.Addr
}

// Parse reads what is stored of a subnet. problems are what has no effect, such as routes and DNS servers that are none: they are left out. It is an error if the network or
// the gateway cannot be read: then machines would have addresses that lead nowhere.
func Parse(id string, value []byte) (s Subnet, problems []string, err error) {
	var in Stored
	if err := json.Unmarshal(value, &in); err != nil {
		return s, nil, fmt.Errorf("subnet %s: %w", id, err)
	}
	s = Subnet{ID: id, NetworkID: in.NetworkID}
	cidr, err := netip.ParsePrefix(in.CIDR)
	if err != nil {
		return s, nil, fmt.Errorf("subnet %s: cidr: %w", id, err)
	}
	s.CIDR = cidr.Masked()
	if in.Gateway != nil && *in.Gateway != "" {
		if s.Gateway, err = s.address(*in.Gateway); err != nil {
			return s, nil, fmt.Errorf("subnet %s: gateway_ip: %w", id, err)
		}
	}
	for _, text := range in.DNSServers {
		a, err := s.address(text)
		if err != nil {
			problems = append(problems, fmt.Sprintf("dns_servers: %v", err))
			continue
		}
		s.DNS = append(s.DNS, a)
	}
	var routes []HostRoute
	if len(in.HostRoutes) > 0 {
		if err := json.Unmarshal(in.HostRoutes, &routes); err != nil {
			problems = append(problems, fmt.Sprintf("host_routes: %v", err))
		}
	}
	for _, r := range routes {
		route, err := s.route(r)
		if err != nil {
			problems = append(problems, fmt.Sprintf("host_routes: %q via %q: %v", r.Destination, r.NextHop, err))
			continue
		}
		s.Routes = append(s.Routes, route)
	}
	if s.CIDR.Addr().Is4() {
		return s, problems, nil
	}
	if len(s.Routes) > 0 {
		s.Routes, problems = nil, append(problems, "host_routes: no machine gets them: DHCPv6 has no routes, and those of router advertisements have no next hop")
	}
	return s, append(problems, s.readMode(in)...), nil
}

// readMode reads how machines get their addresses. Nothing else than this host is on a machine's link, so that who advertises and who has the
// addresses are one: one of both modes is enough. Neither is what Neutron's own agent and upstream's take for [Stateful].
func (s *Subnet) readMode(in Stored) (problems []string) {
	s.Mode = Mode(cmp.Or(in.RAMode, in.AddressMode, string(Stateful)))
	if in.RAMode != "" && in.AddressMode != "" && in.RAMode != in.AddressMode {
		problems = append(problems, fmt.Sprintf("ipv6_address_mode: %q is not ipv6_ra_mode, which counts: %q", in.AddressMode, in.RAMode))
	}
	switch s.Mode {
	case Stateful:
	case Stateless, SLAAC:
		if !s.Autonomous() {
			problems = append(problems, fmt.Sprintf("cidr: machines make no addresses of %s: %s wants a prefix of %d bits", s.CIDR, s.Mode, autonomousBits))
		}
	default:
		problems = append(problems, fmt.Sprintf("ipv6_ra_mode: %q is none; want %s, %s or %s: %s is what machines get", s.Mode, Stateful, Stateless, SLAAC, Stateful))
		s.Mode = Stateful
	}
	return problems
}

var (
	errFamily = errors.New("is of the other IP version than the subnet")
	errZone   = errors.New("has a zone")
)

// address reads one of the subnet's IP version.
func (s *Subnet) address(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	switch {
	case err != nil:
		return a, err
	case a.Is4() != s.CIDR.Addr().Is4():
		return a, fmt.Errorf("%s %w", a, errFamily)
	case a.Zone() != "":
		return a, fmt.Errorf("%s %w", a, errZone)
	}
	return a, nil
}

func (s *Subnet) route(r HostRoute) (out Route, err error) {
	if out.Dst, err = netip.ParsePrefix(r.Destination); err != nil {
		return out, err
	}
	out.Dst = out.Dst.Masked()
	if out.Dst.Addr().Is4() != s.CIDR.Addr().Is4() {
		return out, fmt.Errorf("%s %w", out.Dst, errFamily)
	}
	out.Via, err = s.address(r.NextHop)
	return out, err
}
