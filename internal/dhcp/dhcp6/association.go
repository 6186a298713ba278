package dhcp6

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

// addresses are those that the machine gets by DHCPv6.
func (m *Machine) addresses() (out []netip.Addr) {
	for _, a := range m.Addrs {
		if a.Subnet.Mode == subnet.Stateful && !slices.Contains(out, a.Addr) {
			out = append(out, a.Addr)
		}
	}
	return out
}

// onLink reports whether an address is in a network of the machine's.
func (m *Machine) onLink(a netip.Addr) bool {
	return slices.ContainsFunc(m.Addrs, func(of dhcp.Address) bool { return of.Subnet.CIDR.Contains(a) })
}

// asked are the addresses of an association, each once.
func asked(in dhcpv6.IdentityOptions) (out []netip.Addr) {
	for _, o := range in.Addresses() {
		if a, ok := netip.AddrFromSlice(o.IPv6Addr.To16()); ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// associations answers each association of a message, and returns the addresses that are given. A machine may have several (RFC 8415, 12); the one
// with the lowest IAID has all of its addresses, so that it is the same one in each message.
func (s Server) associations(m Machine, req, out *dhcpv6.Message) []netip.Addr {
	all := req.Options.IANA()
	mine := m.addresses()
	none, noPrefix := iana.StatusNoAddrsAvail, iana.StatusNoPrefixAvail
	if req.Type() == dhcpv6.MessageTypeRenew || req.Type() == dhcpv6.MessageTypeRebind {
		none, noPrefix = iana.StatusNoBinding, iana.StatusNoBinding
	}
	var given []netip.Addr
	if len(all) > 0 {
		first := slices.MinFunc(all, func(a, b *dhcpv6.OptIANA) int { return bytes.Compare(a.IaId[:], b.IaId[:]) })
		for _, ia := range all {
			has := mine
			if ia != first {
				has = nil
			}
			answer := s.association(m, has, ia, req.Type())
			if answer.Options.Status() == nil {
				given = append(given, has...)
			}
			out.AddOption(answer)
		}
	}
	for _, ia := range req.Options.IATA() {
		out.AddOption(&dhcpv6.OptIATA{IaId: ia.IaId, Options: only(none)})
	}
	for _, ia := range req.Options.IAPD() {
		out.AddOption(&dhcpv6.OptIAPD{IaId: ia.IaId, Options: dhcpv6.PDOptions{Options: dhcpv6.Options{status(noPrefix)}}})
	}
	return given
}

func only(code iana.StatusCode) dhcpv6.IdentityOptions {
	return dhcpv6.IdentityOptions{Options: dhcpv6.Options{status(code)}}
}

// association is the answer to one, which is to have these addresses (RFC 8415, 18.3.1, 18.3.2, 18.3.4, 18.3.5).
func (s Server) association(m Machine, mine []netip.Addr, ia *dhcpv6.OptIANA, kind dhcpv6.MessageType) *dhcpv6.OptIANA {
	out := &dhcpv6.OptIANA{IaId: ia.IaId}
	wants := asked(ia.Options)
	foreign := func(a netip.Addr) bool { return !m.onLink(a) }
	renews := kind == dhcpv6.MessageTypeRenew || kind == dhcpv6.MessageTypeRebind
	switch {
	case kind == dhcpv6.MessageTypeRequest && slices.ContainsFunc(wants, foreign):
		out.Options = only(iana.StatusNotOnLink)
		return out
	case len(mine) == 0 && !renews:
		out.Options = only(iana.StatusNoAddrsAvail)
		return out
	case len(mine) == 0 && len(wants) == 0:
		out.Options = only(iana.StatusNoBinding)
		return out
	}
	if len(mine) > 0 {
		out.T1, out.T2 = s.Lease/2, s.Lease*4/5 // of the preferred lifetime, RFC 8415, 21.4
	}
	for _, a := range mine {
		out.Options.Add(address(a, s.Lease))
	}
	for _, a := range wants {
		if renews && !slices.Contains(mine, a) {
			out.Options.Add(address(a, 0)) // the machine gives it up at once
		}
	}
	return out
}

func address(a netip.Addr, lifetime time.Duration) *dhcpv6.OptIAAddress {
	return &dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice(), PreferredLifetime: lifetime, ValidLifetime: lifetime}
}

// confirm says whether a machine that may have moved still has its addresses (RFC 8415, 18.3.3). Another's address is not appropriate for its link,
// though it is in the same network: the link is the machine's alone.
func confirm(m Machine, req *dhcpv6.Message) (iana.StatusCode, error) {
	var wants []netip.Addr
	for _, ia := range req.Options.IANA() {
		wants = append(wants, asked(ia.Options)...)
	}
	for _, ia := range req.Options.IATA() {
		wants = append(wants, asked(ia.Options)...)
	}
	if len(wants) == 0 {
		return 0, dhcp.ErrNoAnswer
	}
	mine := m.addresses()
	for _, a := range wants {
		if !slices.Contains(mine, a) {
			return iana.StatusNotOnLink, nil
		}
	}
	return iana.StatusSuccess, nil
}

// giveBack answers a machine that releases or declines addresses (RFC 8415, 18.3.7, 18.3.8). They stay its own: Neutron has given them to it.
func giveBack(m Machine, req, out *dhcpv6.Message) {
	out.AddOption(status(iana.StatusSuccess))
	mine := m.addresses()
	for _, ia := range req.Options.IANA() {
		has := asked(ia.Options)
		if len(has) == 0 || slices.ContainsFunc(has, func(a netip.Addr) bool { return !slices.Contains(mine, a) }) {
			out.AddOption(&dhcpv6.OptIANA{IaId: ia.IaId, Options: only(iana.StatusNoBinding)})
		}
	}
}
