// Package dhcp6 decides what a DHCPv6 server answers a machine whose addresses are known before it asks (RFC 8415; decision 086).
//
// In: a message, and what the machine that sent it is to have. Out: the reply, or why there is none. There are no bindings to keep: an address is
// the machine's as long as its endpoint has it, and each renewal is answered from what is stored then. It has no clock, socket or log.
package dhcp6

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"

	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// Machine is what a machine is to have.
type Machine struct {
	Addrs  []dhcp.Address // of IPv6; of those it gets the ones whose subnet is [subnet.Stateful]
	Domain string         // in which it looks for names; empty: none
}

// Server is what a server says of itself.
type Server struct {
	ID    dhcpv6.DUIDUUID
	Lease time.Duration // the valid and the preferred lifetime: between a second and 136 years
}

// ID is the DUID of a node's server: the same whenever and wherever it is asked for, so that no file has to keep it.
func ID(node string) dhcpv6.DUIDUUID {
	sum := sha256.Sum256([]byte("twill dhcp " + node))
	u := dhcpv6.DUIDUUID{UUID: [16]byte(sum[:])}
	u.UUID[6] = u.UUID[6]&0x0f | 8<<4 // version 8, RFC 9562, 5.8
	u.UUID[8] = u.UUID[8]&0x3f | 2<<6
	return u
}

// Reply is an answer to a machine.
type Reply struct {
	Payload  []byte
	Type     string
	Addrs    []netip.Addr // that it says are the machine's
	Declined bool         // the machine found one of its addresses in use by another
}

// Reasons for which a message has no reply; package dhcp has others.
var (
	ErrNotServed = errors.New("no IPv6 address of the endpoint is in a subnet with DHCPv6")
	ErrTooLong   = errors.New("the reply would be longer than any link takes")
)

// longest is how many bytes a datagram has that every link of IPv6 takes (RFC 8200, 5).
const longest = 1280 - 40 - 8

// Request is what a machine sent to port 547.
type Request struct {
	msg       *dhcpv6.Message
	multicast bool
}

// Parse reads a datagram that was sent to all servers on the link, or by unicast, and refuses what is none of a machine.
func Parse(datagram []byte, multicast bool) (Request, error) {
	if len(datagram) > 0 && (dhcpv6.MessageType(datagram[0]) == dhcpv6.MessageTypeRelayForward || dhcpv6.MessageType(datagram[0]) == dhcpv6.MessageTypeRelayReply) {
		return Request{}, fmt.Errorf("%w: a relay sent it", dhcp.ErrNotOurs)
	}
	msg, err := dhcpv6.MessageFromBytes(datagram)
	if err != nil {
		return Request{}, fmt.Errorf("no DHCPv6: %w", err)
	}
	return Request{msg, multicast}, nil
}

// Answer is the reply to a request of [Parse]. The error says why there is none: [ErrNotServed] and the others.
func Answer(s Server, m Machine, r Request) (*Reply, error) {
	if err := s.check(r.msg); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(m.Addrs, func(a dhcp.Address) bool { return served(a.Subnet) }) {
		return nil, ErrNotServed
	}
	reply, err := s.answer(m, r)
	if err == nil && len(reply.Payload) > longest {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLong, len(reply.Payload))
	}
	return reply, err
}

func served(n subnet.Subnet) bool { return n.Mode == subnet.Stateful || n.Mode == subnet.Stateless }

// check refuses what is not for this server, or has not what its type must have (RFC 8415, 16).
func (s Server) check(msg *dhcpv6.Message) error {
	switch client, server := msg.Options.ClientID(), msg.Options.ServerID(); msg.Type() {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		if client == nil || msg.GetOneOption(dhcpv6.OptionServerID) != nil {
			return fmt.Errorf("%w: it names no client, or a server", dhcp.ErrNotOurs)
		}
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		if client == nil || server == nil {
			return fmt.Errorf("%w: it names no client, or no server", dhcp.ErrNotOurs)
		}
		return s.isThis(server)
	case dhcpv6.MessageTypeInformationRequest:
		if len(msg.GetOption(dhcpv6.OptionIANA))+len(msg.GetOption(dhcpv6.OptionIATA))+len(msg.GetOption(dhcpv6.OptionIAPD)) > 0 {
			return fmt.Errorf("%w: it wants addresses", dhcp.ErrNotOurs)
		}
		if server != nil {
			return s.isThis(server)
		}
	default:
		return dhcp.ErrNoAnswer
	}
	return nil
}

func (s Server) isThis(id dhcpv6.DUID) error {
	if !bytes.Equal(id.ToBytes(), s.ID.ToBytes()) {
		return dhcp.ErrOther
	}
	return nil
}

func (s Server) answer(m Machine, r Request) (*Reply, error) {
	kind := r.msg.Type()
	as := dhcpv6.MessageTypeReply
	if kind == dhcpv6.MessageTypeSolicit && r.msg.GetOneOption(dhcpv6.OptionRapidCommit) == nil {
		as = dhcpv6.MessageTypeAdvertise
	}
	out := s.begin(r.msg, as)
	reply := &Reply{Type: strings.ToLower(as.String())}
	if !r.multicast {
		if !slices.Contains([]dhcpv6.MessageType{dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline}, kind) {
			return nil, fmt.Errorf("%w: it was not sent to all servers", dhcp.ErrNotOurs)
		}
		out.AddOption(status(iana.StatusUseMulticast)) // RFC 8415, 18.4: it may only after a Server Unicast option, which is never sent
		reply.Payload = out.ToBytes()
		return reply, nil
	}
	switch kind {
	case dhcpv6.MessageTypeSolicit:
		if as == dhcpv6.MessageTypeReply {
			out.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
		}
		out.AddOption(dhcpv6.OptPreference(255)) // there is no other server on the link, and nothing to wait for
		reply.Addrs = s.associations(m, r.msg, out)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		reply.Addrs = s.associations(m, r.msg, out)
	case dhcpv6.MessageTypeConfirm:
		code, err := confirm(m, r.msg)
		if err != nil {
			return nil, err
		}
		out.AddOption(status(code))
	case dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		reply.Declined = kind == dhcpv6.MessageTypeDecline
		giveBack(m, r.msg, out)
	case dhcpv6.MessageTypeInformationRequest:
		out.AddOption(dhcpv6.OptInformationRefreshTime(max(s.Lease, leastRefresh)))
	}
	m.configure(out)
	reply.Payload = out.ToBytes()
	return reply, nil
}

const leastRefresh = 600 * time.Second // RFC 8415, 7.6, IRT_MINIMUM

// begin is a reply with the options that each has.
func (s Server) begin(req *dhcpv6.Message, as dhcpv6.MessageType) *dhcpv6.Message {
	out := &dhcpv6.Message{MessageType: as, TransactionID: req.TransactionID}
	if id := req.GetOneOption(dhcpv6.OptionClientID); id != nil {
		out.AddOption(id)
	}
	out.AddOption(dhcpv6.OptServerID(&s.ID))
	return out
}

func status(code iana.StatusCode) *dhcpv6.OptStatusCode {
	return &dhcpv6.OptStatusCode{StatusCode: code}
}

// configure adds DNS servers and the other options that are not addresses.
func (m *Machine) configure(out *dhcpv6.Message) {
	var dns []net.IP
	for _, a := range m.Addrs {
		for _, d := range a.Subnet.DNS {
			if ip := net.IP(d.AsSlice()); served(a.Subnet) && !slices.ContainsFunc(dns, ip.Equal) {
				dns = append(dns, ip)
			}
		}
	}
	if len(dns) > 0 {
		out.AddOption(dhcpv6.OptDNS(dns...))
	}
	if m.Domain != "" {
		out.AddOption(dhcpv6.OptDomainSearchList(&rfc1035label.Labels{Labels: []string{m.Domain}}))
	}
}
