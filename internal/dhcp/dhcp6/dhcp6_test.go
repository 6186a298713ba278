package dhcp6

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

var (
	addr      = netip.MustParseAddr
	self      = Server{ID: ID("h1"), Lease: time.Hour}
	stateful  = subnet.Subnet{ID: "s", CIDR: netip.MustParsePrefix("fd00:65::/64"), DNS: []netip.Addr{addr("fd00::53")}, Mode: subnet.Stateful}
	stateless = subnet.Subnet{ID: "t", CIDR: netip.MustParsePrefix("fd00:66::/64"), DNS: []netip.Addr{addr("fd00::53"), addr("fd00::54")}, Mode: subnet.Stateless}
	slaac     = subnet.Subnet{ID: "u", CIDR: netip.MustParsePrefix("fd00:67::/64"), DNS: []netip.Addr{addr("fd00::55")}, Mode: subnet.SLAAC}
	vm        = Machine{Addrs: []dhcp.Address{{Addr: addr("fd00:65::7"), Subnet: stateful}, {Addr: addr("fd00:65::8"), Subnet: stateful}, {Addr: addr("fd00:67::9"), Subnet: slaac}}, Domain: "example.org"}
	mac       = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	client    = &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}
)

// asks is a message of a machine.
func asks(kind dhcpv6.MessageType, with ...dhcpv6.Modifier) []byte {
	m := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	for _, mod := range append([]dhcpv6.Modifier{dhcpv6.WithClientID(client)}, with...) {
		mod(m)
	}
	return m.ToBytes()
}

// ia is an association with addresses that the machine names.
func ia(id byte, addrs ...string) dhcpv6.Modifier {
	o := &dhcpv6.OptIANA{IaId: [4]byte{0, 0, 0, id}}
	for _, a := range addrs {
		o.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a)})
	}
	return func(d dhcpv6.DHCPv6) { d.AddOption(o) } // another one, if there is one
}

func without(code dhcpv6.OptionCode) dhcpv6.Modifier {
	return func(d dhcpv6.DHCPv6) { d.(*dhcpv6.Message).Options.Del(code) }
}

func to(node string) dhcpv6.Modifier {
	id := ID(node)
	return dhcpv6.WithServerID(&id)
}

// text is a reply in words: its type, status, associations and the rest.
func text(t testing.TB, r *Reply) string {
	t.Helper()
	m, err := dhcpv6.MessageFromBytes(r.Payload)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{strings.ToLower(m.Type().String())}
	if s := m.Options.Status(); s != nil {
		out = append(out, s.StatusCode.String())
	}
	of := func(name string, id [4]byte, as []*dhcpv6.OptIAAddress, s *dhcpv6.OptStatusCode) {
		words := []string{fmt.Sprintf("%s %d:", name, id[3])}
		for _, a := range as {
			words = append(words, fmt.Sprintf("%s for %s/%s", a.IPv6Addr, a.PreferredLifetime, a.ValidLifetime))
		}
		if s != nil {
			words = append(words, s.StatusCode.String())
		}
		out = append(out, strings.Join(words, " "))
	}
	for _, o := range m.Options.IANA() {
		of(fmt.Sprintf("NA %s/%s", o.T1, o.T2), o.IaId, o.Options.Addresses(), o.Options.Status())
	}
	for _, o := range m.Options.IATA() {
		of("TA", o.IaId, o.Options.Addresses(), o.Options.Status())
	}
	for _, o := range m.Options.IAPD() {
		of("PD", o.IaId, nil, o.Options.Status())
	}
	return strings.Join(out, "; ")
}

func TestWhatAMachineIsAnsweredOfIPv6(t *testing.T) {
	const solicit, request, renew, rebind, confirm, release, decline, inform = dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind,
		dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline, dhcpv6.MessageTypeInformationRequest
	const both = "fd00:65::7 for 1h0m0s/1h0m0s fd00:65::8 for 1h0m0s/1h0m0s"
	none := Machine{Addrs: []dhcp.Address{{Addr: addr("fd00:66::7"), Subnet: stateless}}}
	alone := Machine{Addrs: []dhcp.Address{{Addr: addr("fd00:67::9"), Subnet: slaac}}}
	for _, tt := range []struct {
		name    string
		of      Machine
		sent    []byte
		unicast bool
		want    string
		err     error
	}{
		{name: "it has none: it is offered all", of: vm, sent: asks(solicit, ia(1)), want: "advertise; NA 30m0s/48m0s 1: " + both},
		{name: "it wants them at once", of: vm, sent: asks(solicit, ia(1), dhcpv6.WithRapidCommit), want: "reply; NA 30m0s/48m0s 1: " + both},
		{name: "it would like another's", of: vm, sent: asks(solicit, ia(1, "fd00:65::9")), want: "advertise; NA 30m0s/48m0s 1: " + both},
		{name: "two associations: the lowest has all", of: vm, sent: asks(solicit, ia(2), ia(1)), want: "advertise; NA 0s/0s 2: NoAddrsAvail; NA 30m0s/48m0s 1: " + both},
		{name: "temporary addresses and prefixes: none", of: vm, sent: asks(solicit, ia(1), dhcpv6.WithIATA([4]byte{0, 0, 0, 2}), dhcpv6.WithIAPD([4]byte{0, 0, 0, 3})), want: "advertise; NA 30m0s/48m0s 1: " + both + "; TA 2: NoAddrsAvail; PD 3: NoPrefixAvail"},
		{name: "it makes its addresses itself", of: none, sent: asks(solicit, ia(1)), want: "advertise; NA 0s/0s 1: NoAddrsAvail"},
		{name: "DHCPv6 is not for it", of: alone, sent: asks(solicit, ia(1)), err: ErrNotServed},
		{name: "it selects the offer", of: vm, sent: asks(request, to("h1"), ia(1, "fd00:65::7")), want: "reply; NA 30m0s/48m0s 1: " + both},
		{name: "it selects another server's", of: vm, sent: asks(request, to("h2"), ia(1)), err: dhcp.ErrOther},
		{name: "it selects what is of another network", of: vm, sent: asks(request, to("h1"), ia(1, "fd00:99::7")), want: "reply; NA 0s/0s 1: NotOnLink"},
		{name: "it renews", of: vm, sent: asks(renew, to("h1"), ia(1, "fd00:65::7", "fd00:65::8")), want: "reply; NA 30m0s/48m0s 1: " + both},
		{name: "it renews what is not its own any more", of: vm, sent: asks(renew, to("h1"), ia(1, "fd00:65::6", "fd00:65::6")), want: "reply; NA 30m0s/48m0s 1: " + both + " fd00:65::6 for 0s/0s"},
		{name: "it renews, and has none any more", of: none, sent: asks(renew, to("h1"), ia(1, "fd00:65::7")), want: "reply; NA 0s/0s 1: fd00:65::7 for 0s/0s"},
		{name: "it renews nothing, and has none", of: none, sent: asks(renew, to("h1"), ia(1)), want: "reply; NA 0s/0s 1: NoBinding"},
		{name: "its server is gone", of: vm, sent: asks(rebind, ia(1, "fd00:65::7")), want: "reply; NA 30m0s/48m0s 1: " + both},
		{name: "it may have moved, and has not", of: vm, sent: asks(confirm, ia(1, "fd00:65::7")), want: "reply; Success"},
		{name: "it has moved", of: vm, sent: asks(confirm, ia(1, "fd00:65::7", "fd00:65::6")), want: "reply; NotOnLink"},
		{name: "it confirms nothing", of: vm, sent: asks(confirm, ia(1)), err: dhcp.ErrNoAnswer},
		{name: "it gives its addresses back", of: vm, sent: asks(release, to("h1"), ia(1, "fd00:65::7")), want: "reply; Success"},
		{name: "it gives another's back", of: vm, sent: asks(release, to("h1"), ia(1, "fd00:65::6")), want: "reply; Success; NA 0s/0s 1: NoBinding"},
		{name: "another has its address", of: vm, sent: asks(decline, to("h1"), ia(1, "fd00:65::7")), want: "reply; Success"},
		{name: "it wants the rest alone", of: none, sent: asks(inform), want: "reply"},
		{name: "it wants the rest, and names itself not", of: none, sent: asks(inform, without(dhcpv6.OptionClientID)), want: "reply"},
		{name: "it wants the rest of another server", of: none, sent: asks(inform, to("h2")), err: dhcp.ErrOther},
		{name: "it wants the rest and addresses", of: vm, sent: asks(inform, ia(1)), err: dhcp.ErrNotOurs},
		{name: "it selects by unicast", of: vm, unicast: true, sent: asks(request, to("h1"), ia(1)), want: "reply; UseMulticast"},
		{name: "it begins by unicast", of: vm, unicast: true, sent: asks(solicit, ia(1)), err: dhcp.ErrNotOurs},
		{name: "it does not name itself", of: vm, sent: asks(solicit, ia(1), without(dhcpv6.OptionClientID)), err: dhcp.ErrNotOurs},
		{name: "it begins, and names a server", of: vm, sent: asks(solicit, to("h1"), ia(1)), err: dhcp.ErrNotOurs},
		{name: "it selects, and names no server", of: vm, sent: asks(request, ia(1)), err: dhcp.ErrNotOurs},
		{name: "a message of servers", of: vm, sent: asks(dhcpv6.MessageTypeAdvertise, to("h1")), err: dhcp.ErrNoAnswer},
		{name: "of a relay", of: vm, sent: append([]byte{byte(dhcpv6.MessageTypeRelayForward)}, make([]byte, 33)...), err: dhcp.ErrNotOurs},
		{name: "more associations than fit", of: vm, sent: asks(solicit, slices.Repeat([]dhcpv6.Modifier{ia(1)}, 80)...), err: ErrTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ask(tt.of, tt.sent, !tt.unicast)
			if !errors.Is(err, tt.err) || (r == nil) != (tt.err != nil) {
				t.Fatalf("%v, %v, want %v", r, err, tt.err)
			}
			if r != nil {
				if got := text(t, r); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				whole(t, tt.of, r, tt.sent)
			}
		})
	}
}

// ask is what a datagram is answered.
func ask(m Machine, datagram []byte, multicast bool) (*Reply, error) {
	r, err := Parse(datagram, multicast)
	if err != nil {
		return nil, err
	}
	return Answer(self, m, r)
}

// whole checks what holds of each reply: it is to this message, and gives nothing that is not the machine's.
func whole(t *testing.T, m Machine, r *Reply, sent []byte) {
	t.Helper()
	got, err := dhcpv6.MessageFromBytes(r.Payload)
	asked, err2 := dhcpv6.MessageFromBytes(sent)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if got.TransactionID != asked.TransactionID || self.isThis(got.Options.ServerID()) != nil || len(r.Payload) > longest {
		t.Errorf("it is no reply to this: %s", got.Summary())
	}
	given := map[string]bool{}
	for _, o := range got.Options.IANA() {
		for _, a := range o.Options.Addresses() {
			text := a.IPv6Addr.String()
			mine := slices.ContainsFunc(m.Addrs, func(of dhcp.Address) bool { return of.Addr.String() == text && of.Subnet.Mode == subnet.Stateful })
			if a.ValidLifetime != 0 && (!mine || given[text]) || a.PreferredLifetime > a.ValidLifetime {
				t.Errorf("it is given %s: %s", text, got.Summary())
			}
			given[text] = given[text] || a.ValidLifetime != 0
		}
	}
}

func TestWhatAMachineHasBesidesItsIPv6Addresses(t *testing.T) {
	m := Machine{Addrs: []dhcp.Address{{Addr: addr("fd00:65::7"), Subnet: stateful}, {Addr: addr("fd00:66::7"), Subnet: stateless}, {Addr: addr("fd00:67::9"), Subnet: slaac}}, Domain: "example.org"}
	r, err := ask(m, asks(dhcpv6.MessageTypeInformationRequest), true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := dhcpv6.MessageFromBytes(r.Payload)
	if err != nil {
		t.Fatal(err)
	}
	if dns := fmt.Sprint(got.Options.DNS()); dns != "[fd00::53 fd00::54]" {
		t.Errorf("DNS servers %s", dns)
	}
	if l := got.Options.DomainSearchList(); l == nil || !slices.Equal(l.Labels, []string{"example.org"}) {
		t.Errorf("domains %v", l)
	}
	if d := got.Options.InformationRefreshTime(0); d != time.Hour {
		t.Errorf("it is to ask again after %s", d)
	}
	if ID("h1") != self.ID || ID("h2") == self.ID {
		t.Error("the server of a node has another identity, or that of another")
	}
}

// FuzzAnswer: whatever a machine sends, nothing breaks, and nothing but its own addresses is given.
func FuzzAnswer(f *testing.F) {
	for kind := dhcpv6.MessageTypeSolicit; kind <= dhcpv6.MessageTypeInformationRequest; kind++ {
		f.Add(asks(kind, ia(1, "fd00:65::7", "fd00:99::1"), ia(2), dhcpv6.WithIATA([4]byte{1}), dhcpv6.WithIAPD([4]byte{2})), true)
		f.Add(asks(kind, to("h1"), ia(1, "fd00:65::7", "fd00:65::6"), dhcpv6.WithRapidCommit), true)
		f.Add(asks(kind, to("h1")), false)
	}
	f.Add([]byte{1, 1, 6}, true)
	f.Fuzz(func(t *testing.T, sent []byte, multicast bool) {
		r, err := ask(vm, sent, multicast)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if r != nil {
			whole(t, vm, r, sent)
		}
	})
}
