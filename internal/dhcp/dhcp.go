// Package dhcp decides what a DHCP server answers a machine whose addresses are known before it asks (RFC 2131; decision 079).
//
// In: a datagram, and what the machine on that interface is to have. Out: the reply and where it goes, or why there is none. There are no leases
// to keep: an address is the machine's as long as its endpoint has it, and each renewal is answered from what is stored then. It has no clock,
// socket or log.
package dhcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// Machine is what the machine on an interface is to have.
type Machine struct {
	MAC          [6]byte
	Addrs        []Address // the first is offered; another is confirmed if it is asked for
	MTU          int       // of its interface, in bytes; 0: nothing is advertised
	Host, Domain string    // empty: it keeps its own
}

// Address is one of a machine's, in a subnet that is served.
type Address struct {
	Addr   netip.Addr
	Subnet subnet.Subnet
}

// Server is what a server says of itself.
type Server struct {
	ID    netip.Addr    // by which machines reach it
	Lease time.Duration // between a second and 136 years
}

// Reply is an answer to a machine.
type Reply struct {
	Payload   []byte
	To        netip.Addr
	Broadcast bool // to all hardware addresses; else to the machine's own
	Type      string
	Addr      netip.Addr // that it says is the machine's, if any
}

// Why a datagram has no reply.
var (
	ErrNotOurs   = errors.New("it is none of this machine's")
	ErrOther     = errors.New("it is about another server")
	ErrNoAnswer  = errors.New("it wants no answer")
	ErrNoAddress = errors.New("no IPv4 address of the endpoint is in a subnet with DHCP")
	ErrDeclined  = errors.New("the machine found its address in use by another")
)

// Request is what a machine sent to port 67.
type Request struct{ msg *dhcpv4.DHCPv4 }

// Parse reads a datagram, and refuses what is no request of a machine that has an Ethernet address.
func Parse(datagram []byte) (Request, error) {
	msg, err := dhcpv4.FromBytes(datagram)
	switch {
	case err != nil:
		return Request{}, fmt.Errorf("no DHCP: %w", err)
	case msg.OpCode != dhcpv4.OpcodeBootRequest:
		return Request{}, fmt.Errorf("%w: it is no request", ErrNotOurs)
	case msg.HWType != iana.HWTypeEthernet || len(msg.ClientHWAddr) != 6:
		return Request{}, fmt.Errorf("%w: it has no Ethernet address", ErrNotOurs)
	case !given(msg.GatewayIPAddr).IsUnspecified():
		return Request{}, fmt.Errorf("%w: a relay sent it", ErrNotOurs)
	}
	return Request{msg}, nil
}

// MAC is the hardware address of the machine, as it says.
func (r Request) MAC() [6]byte { return [6]byte(r.msg.ClientHWAddr) }

// Answer is the reply to a request of [Parse]. The error says why there is none: [ErrNotOurs] and the others.
func Answer(s Server, m Machine, r Request) (*Reply, error) {
	req := r.msg
	if r.MAC() != m.MAC {
		return nil, fmt.Errorf("%w: its hardware address is %s", ErrNotOurs, req.ClientHWAddr)
	}
	if id := req.ServerIdentifier(); id != nil && given(id) != s.ID {
		return nil, ErrOther
	}
	if len(m.Addrs) == 0 {
		return nil, ErrNoAddress
	}
	switch req.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return s.reply(m, req, dhcpv4.MessageTypeOffer, m.Addrs[0])
	case dhcpv4.MessageTypeRequest:
		return s.request(m, req)
	case dhcpv4.MessageTypeInform:
		if at := m.find(given(req.ClientIPAddr)); at >= 0 {
			return s.inform(m, req, m.Addrs[at])
		}
		return nil, fmt.Errorf("%w: it informs about %s", ErrNotOurs, req.ClientIPAddr)
	case dhcpv4.MessageTypeDecline:
		return nil, ErrDeclined
	}
	return nil, ErrNoAnswer
}

// given is an address of a datagram; without one, the unspecified.
func given(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok {
		return netip.IPv4Unspecified()
	}
	return a
}

func (m *Machine) find(a netip.Addr) int {
	return slices.IndexFunc(m.Addrs, func(of Address) bool { return of.Addr == a })
}

// request answers a machine that selects an offer, remembers an address, or renews it (RFC 2131, 4.3.2): the address is its own, or it is
// refused, so that it asks for another at once.
func (s Server) request(m Machine, req *dhcpv4.DHCPv4) (*Reply, error) {
	wants := given(req.ClientIPAddr)
	if wants.IsUnspecified() {
		wants = given(req.RequestedIPAddress())
	}
	if at := m.find(wants); at >= 0 {
		return s.reply(m, req, dhcpv4.MessageTypeAck, m.Addrs[at])
	}
	out, err := s.begin(req, dhcpv4.MessageTypeNak)
	if err != nil {
		return nil, err
	}
	// To all, since the machine may have none of the addresses that it knows of (4.1).
	return &Reply{Payload: out.ToBytes(), To: everyone, Broadcast: true, Type: "nak", Addr: wants}, nil
}

var everyone = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// begin is a reply without options but those that each has.
func (s Server) begin(req *dhcpv4.DHCPv4, as dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	return dhcpv4.New(dhcpv4.WithReply(req), dhcpv4.WithMessageType(as), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(s.ID.AsSlice())),
		dhcpv4.WithOptionCopied(req, dhcpv4.OptionClientIdentifier)) // RFC 6842
}

// reply offers or confirms an address.
func (s Server) reply(m Machine, req *dhcpv4.DHCPv4, as dhcpv4.MessageType, a Address) (*Reply, error) {
	out, err := s.begin(req, as)
	if err != nil {
		return nil, err
	}
	m.configure(out, req, a.Subnet)
	out.YourIPAddr = a.Addr.AsSlice()
	out.UpdateOption(dhcpv4.OptIPAddressLeaseTime(s.Lease))
	r := &Reply{To: a.Addr, Type: strings.ToLower(as.String()), Addr: a.Addr}
	if as == dhcpv4.MessageTypeAck {
		out.ClientIPAddr = req.ClientIPAddr
	}
	if given(req.ClientIPAddr).IsUnspecified() && req.IsBroadcast() {
		r.To, r.Broadcast = everyone, true
	}
	r.Payload = out.ToBytes()
	return r, nil
}

// inform answers a machine that has its address by other means: without address and lease (RFC 2131, 4.3.5).
func (s Server) inform(m Machine, req *dhcpv4.DHCPv4, a Address) (*Reply, error) {
	out, err := s.begin(req, dhcpv4.MessageTypeAck)
	if err != nil {
		return nil, err
	}
	m.configure(out, req, a.Subnet)
	out.ClientIPAddr = req.ClientIPAddr
	return &Reply{Payload: out.ToBytes(), To: a.Addr, Type: "ack"}, nil
}

// classlessOfWindows is 121 under the number of older Windows, which is sent to whoever asks for it.
const classlessOfWindows = 249

// configure adds the options of the machine's network and name.
func (m *Machine) configure(out, req *dhcpv4.DHCPv4, n subnet.Subnet) {
	out.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(n.CIDR.Bits(), 32)))
	if n.Gateway.IsValid() {
		out.UpdateOption(dhcpv4.OptRouter(n.Gateway.AsSlice()))
	}
	if dns := slices4(n.DNS); len(dns) > 0 {
		out.UpdateOption(dhcpv4.OptDNS(dns...))
	}
	if m.Host != "" {
		out.UpdateOption(dhcpv4.OptHostName(m.Host))
	}
	if m.Domain != "" {
		out.UpdateOption(dhcpv4.OptDomainName(m.Domain))
	}
	if m.MTU >= 68 && m.MTU <= 0xffff { // RFC 2132, 5.1
		out.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, dhcpv4.Uint16(m.MTU).ToBytes()))
	}
	routes := routesOf(n)
	if len(routes) == 0 {
		return
	}
	out.UpdateOption(dhcpv4.OptClasslessStaticRoute(routes...))
	if req.IsOptionRequested(dhcpv4.GenericOptionCode(classlessOfWindows)) {
		out.UpdateOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(classlessOfWindows), dhcpv4.Routes(routes).ToBytes()))
	}
}

func slices4(as []netip.Addr) (out []net.IP) {
	for _, a := range as {
		out = append(out, a.AsSlice())
	}
	return out
}

// routesOf are the routes of option 121, none if the router and the mask say all. Who understands the option passes the router over (RFC 3442), so
// that the default route is among them; a next hop that is not in the subnet is on the link, since the host answers there for all.
func routesOf(n subnet.Subnet) (out []*dhcpv4.Route) {
	outside := func(a netip.Addr) bool { return !n.CIDR.Contains(a) }
	routes := slices.Clone(n.Routes)
	byDefault := slices.ContainsFunc(routes, func(r subnet.Route) bool { return r.Dst.Bits() == 0 })
	if n.Gateway.IsValid() && !byDefault && (len(routes) > 0 || outside(n.Gateway)) {
		routes = append(routes, subnet.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: n.Gateway})
	}
	on := map[netip.Addr]bool{}
	for _, r := range routes {
		if outside(r.Via) && !r.Via.IsUnspecified() && !on[r.Via] {
			on[r.Via] = true
			out = append(out, route(netip.PrefixFrom(r.Via, 32), netip.IPv4Unspecified()))
		}
		out = append(out, route(r.Dst, r.Via))
	}
	return out
}

func route(dst netip.Prefix, via netip.Addr) *dhcpv4.Route {
	return &dhcpv4.Route{Dest: &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), 32)}, Router: via.AsSlice()}
}

// Assigned are the addresses of an endpoint that are served, in the endpoint's order: each in the smallest subnet that it is in, of the
// endpoint's network if it says which that is.
func Assigned(addrs []netip.Addr, network string, subnets []subnet.Subnet) (out []Address) {
	for _, a := range addrs {
		of := slices.DeleteFunc(slices.Clone(subnets), func(s subnet.Subnet) bool {
			return !s.CIDR.Contains(a) || network != "" && s.NetworkID != network
		})
		if len(of) == 0 {
			continue
		}
		smallest := slices.MinFunc(of, func(a, b subnet.Subnet) int {
			return cmp.Or(cmp.Compare(b.CIDR.Bits(), a.CIDR.Bits()), cmp.Compare(a.ID, b.ID))
		})
		out = append(out, Address{a, smallest})
	}
	return out
}

var (
	validName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$`)
	longLabel = regexp.MustCompile(`[^.]{64}`) // RFC 1035, 2.3.4
)

// SplitName is the name and the domain of a machine; false: it is no name of a host (RFC 1123, 2.1), and scripts of machines shall not see it.
func SplitName(fqdn string) (host, domain string, ok bool) {
	fqdn = strings.TrimSuffix(fqdn, ".")
	if !validName.MatchString(fqdn) || strings.Contains(fqdn, "..") || longLabel.MatchString(fqdn) {
		return "", "", false
	}
	host, domain, _ = strings.Cut(fqdn, ".")
	return host, domain, true
}
