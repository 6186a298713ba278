// Package advert decides what a machine's host advertises to it as its IPv6 router, and when (RFC 4861, 6.2; decision 086).
//
// In: the machine's addresses with their subnets, and the host's interface. Out: the router advertisement, and the times at which it is sent. It
// has no clock, socket or log.
package advert

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"

	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// HopLimit is that of packets that no router has forwarded; no other is an advertisement or a solicitation.
const HopLimit = ndp.HopLimit

const (
	lifetime = 3 * maxInterval // of the router and of DNS servers, RFC 4861, 6.2.1, and RFC 8106, 5.1
	leastMTU = 1280            // of IPv6
	hops     = 64              // that packets of the machine may take
)

// Router is the host's end of the machine's link.
type Router struct {
	MAC   [6]byte
	MTU   int           // in bytes
	Lease time.Duration // for which addresses are valid, at least
}

// Advertisement is what a router advertises; the zero value is nothing.
type Advertisement struct{ ra *ndp.RouterAdvertisement }

// Of is what is advertised to a machine with these addresses, which may be of both versions, and which looks for names in a domain.
//
// The prefix is never called on-link: whatever the machine sends goes to its host, since no neighbour is on its link.
func Of(addrs []dhcp.Address, domain string, r Router) Advertisement {
	ra := &ndp.RouterAdvertisement{CurrentHopLimit: hops}
	ra.Options = append(ra.Options, &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: net.HardwareAddr(r.MAC[:])})
	if r.MTU >= leastMTU {
		ra.Options = append(ra.Options, ndp.NewMTU(uint32(r.MTU)))
	}
	var dns []netip.Addr
	prefixes := map[netip.Prefix]bool{}
	some := false
	for _, a := range addrs {
		n := a.Subnet
		if a.Addr.Is4() {
			continue
		}
		some = true
		ra.ManagedConfiguration = ra.ManagedConfiguration || n.Mode == subnet.Stateful
		ra.OtherConfiguration = ra.OtherConfiguration || n.Mode == subnet.Stateless
		if n.Gateway.IsValid() {
			ra.RouterLifetime = lifetime
		}
		if n.Autonomous() && !prefixes[n.CIDR] {
			prefixes[n.CIDR] = true
			valid := max(r.Lease, lifetime)
			ra.Options = append(ra.Options, &ndp.PrefixInformation{
				Prefix: n.CIDR.Addr(), PrefixLength: uint8(n.CIDR.Bits()), AutonomousAddressConfiguration: true, ValidLifetime: valid, PreferredLifetime: valid,
			})
		}
		for _, d := range n.DNS {
			if !slices.Contains(dns, d) {
				dns = append(dns, d)
			}
		}
	}
	if !some {
		return Advertisement{}
	}
	if len(dns) > 0 {
		ra.Options = append(ra.Options, &ndp.RecursiveDNSServer{Lifetime: lifetime, Servers: dns})
	}
	if domain != "" {
		ra.Options = append(ra.Options, &ndp.DNSSearchList{Lifetime: lifetime, DomainNames: []string{domain}})
	}
	return Advertisement{ra}
}

// Withdrawn is the advertisement by which a machine gives up what it had of this one (RFC 4861, 6.2.5).
func (a Advertisement) Withdrawn() Advertisement {
	if a.ra == nil {
		return a
	}
	out := *a.ra
	out.RouterLifetime, out.ManagedConfiguration, out.OtherConfiguration, out.Options = 0, false, false, nil
	for _, o := range a.ra.Options {
		switch o := o.(type) {
		case *ndp.PrefixInformation:
			p := *o
			p.ValidLifetime, p.PreferredLifetime = 0, 0
			out.Options = append(out.Options, &p)
		case *ndp.RecursiveDNSServer:
			out.Options = append(out.Options, &ndp.RecursiveDNSServer{Servers: o.Servers})
		case *ndp.DNSSearchList:
			out.Options = append(out.Options, &ndp.DNSSearchList{DomainNames: o.DomainNames})
		default:
			out.Options = append(out.Options, o)
		}
	}
	return Advertisement{&out}
}

// Payload is the ICMPv6 message, with an empty checksum; nil: there is nothing to advertise.
func (a Advertisement) Payload() ([]byte, error) {
	if a.ra == nil {
		return nil, nil
	}
	return ndp.MarshalMessage(a.ra)
}

// Solicits reports whether an ICMPv6 message that arrived with a hop limit is a router solicitation (RFC 4861, 6.1.1).
func Solicits(payload []byte, hopLimit byte) bool {
	if hopLimit != HopLimit {
		return false
	}
	m, err := ndp.ParseMessage(payload)
	_, is := m.(*ndp.RouterSolicitation)
	return err == nil && is
}
