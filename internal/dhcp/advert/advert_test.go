package advert

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"

	"github.com/twillnet/twill/internal/dhcp"
	"github.com/twillnet/twill/internal/dhcp/subnet"
)

var router = Router{MAC: [6]byte{2, 0, 0, 0, 0, 1}, MTU: 1450, Lease: time.Hour}

// text is what an advertisement is on the wire, in words.
func text(t *testing.T, a Advertisement) string {
	t.Helper()
	b, err := a.Payload()
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		return "nothing"
	}
	m, err := ndp.ParseMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	ra := m.(*ndp.RouterAdvertisement)
	out := []string{fmt.Sprintf("router for %s", ra.RouterLifetime)}
	for word, is := range map[string]bool{"managed": ra.ManagedConfiguration, "other": ra.OtherConfiguration} {
		if is {
			out = append(out, word)
		}
	}
	for _, o := range ra.Options {
		switch o := o.(type) {
		case *ndp.LinkLayerAddress:
			out = append(out, o.Addr.String())
		case *ndp.MTU:
			out = append(out, fmt.Sprintf("mtu %d", o.MTU))
		case *ndp.PrefixInformation:
			out = append(out, fmt.Sprintf("%s/%d on-link %v autonomous %v %s/%s", o.Prefix, o.PrefixLength, o.OnLink, o.AutonomousAddressConfiguration, o.PreferredLifetime, o.ValidLifetime))
		case *ndp.RecursiveDNSServer:
			out = append(out, fmt.Sprintf("dns %s for %s", o.Servers, o.Lifetime))
		case *ndp.DNSSearchList:
			out = append(out, fmt.Sprintf("domain %s for %s", o.DomainNames, o.Lifetime))
		}
	}
	return strings.Join(out, ", ")
}

func TestWhatARouterAdvertises(t *testing.T) {
	in := func(cidr string, mode subnet.Mode, gateway string, dns ...string) dhcp.Address {
		p := netip.MustParsePrefix(cidr)
		n := subnet.Subnet{CIDR: p.Masked(), Mode: mode}
		if gateway != "" {
			n.Gateway = netip.MustParseAddr(gateway)
		}
		for _, d := range dns {
			n.DNS = append(n.DNS, netip.MustParseAddr(d))
		}
		return dhcp.Address{Addr: p.Addr(), Subnet: n}
	}
	const end = "02:00:00:00:00:01, mtu 1450"
	for _, tt := range []struct {
		name   string
		of     []dhcp.Address
		domain string
		want   string
		last   string // when it is withdrawn
	}{
		{name: "no IPv6", of: []dhcp.Address{in("10.65.0.7/24", "", "10.65.0.1")}, want: "nothing", last: "nothing"},
		{name: "addresses by DHCPv6", of: []dhcp.Address{in("fd00::7/64", subnet.Stateful, "fd00::1")}, want: "router for 30m0s, managed, " + end, last: "router for 0s, " + end},
		{name: "no gateway: no default route", of: []dhcp.Address{in("fd00::7/64", subnet.Stateful, "")}, want: "router for 0s, managed, " + end, last: "router for 0s, " + end},
		{
			name: "the rest by DHCPv6", of: []dhcp.Address{in("fd00::7/64", subnet.Stateless, "fd00::1", "fd00::53")},
			want: "router for 30m0s, other, " + end + ", fd00::/64 on-link false autonomous true 1h0m0s/1h0m0s, dns [fd00::53] for 30m0s",
			last: "router for 0s, " + end + ", fd00::/64 on-link false autonomous true 0s/0s, dns [fd00::53] for 0s",
		},
		{
			name: "nothing by DHCPv6", of: []dhcp.Address{in("fd00::7/64", subnet.SLAAC, "fd00::1")}, domain: "example.org",
			want: "router for 30m0s, " + end + ", fd00::/64 on-link false autonomous true 1h0m0s/1h0m0s, domain [example.org] for 30m0s",
			last: "router for 0s, " + end + ", fd00::/64 on-link false autonomous true 0s/0s, domain [example.org] for 0s",
		},
		{name: "a prefix of which it can make no address", of: []dhcp.Address{in("fd00::7/80", subnet.SLAAC, "fd00::1")}, want: "router for 30m0s, " + end, last: "router for 0s, " + end},
		{
			name: "two subnets, one of them twice", of: []dhcp.Address{in("fd00::7/64", subnet.SLAAC, "", "fd00::53"), in("fd01::7/64", subnet.Stateful, "fd01::1", "fd00::53"), in("fd00::8/64", subnet.SLAAC, "")},
			want: "router for 30m0s, managed, " + end + ", fd00::/64 on-link false autonomous true 1h0m0s/1h0m0s, dns [fd00::53] for 30m0s",
			last: "router for 0s, " + end + ", fd00::/64 on-link false autonomous true 0s/0s, dns [fd00::53] for 0s",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := Of(tt.of, tt.domain, router)
			if got := text(t, a); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if got := text(t, a.Withdrawn()); got != tt.last {
				t.Errorf("withdrawn it is %s, want %s", got, tt.last)
			}
		})
	}
}

func TestWhatSolicits(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []byte
		hops    byte
		want    bool
	}{
		{"a solicitation", []byte{133, 0, 0, 0, 0, 0, 0, 0}, 255, true},
		{"that a router has forwarded", []byte{133, 0, 0, 0, 0, 0, 0, 0}, 254, false},
		{"an advertisement", append([]byte{134}, make([]byte, 15)...), 255, false},
		{"an option of no length", []byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 255, false},
		{"too short", []byte{133, 0, 0, 0}, 255, false},
		{"nothing", nil, 255, false},
	} {
		if got := Solicits(tt.payload, tt.hops); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// FuzzSolicits: nothing that a machine sends breaks it.
func FuzzSolicits(f *testing.F) {
	f.Add([]byte{133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 1})
	for kind := range byte(8) {
		f.Add(append([]byte{133, 0, 0, 0, 0, 0, 0, 0, kind, 1}, make([]byte, 6)...))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if Solicits(sent, HopLimit) && sent[0] != 133 {
			t.Errorf("%x is a solicitation", sent)
		}
	})
}

func TestWhenARouterAdvertises(t *testing.T) {
	at := time.Unix(1000, 0)
	begin := at
	var s Schedule
	step := func(name string, want time.Duration) {
		t.Helper()
		if got := s.Next().Sub(begin); got != want {
			t.Errorf("%s: the next is after %s, want %s", name, got, want)
		}
	}
	s.Solicited(at, 0.5)
	if s.Changed(at); !s.Next().IsZero() {
		t.Error("the first is not sent at once")
	}
	s.Sent(at, 1)
	step("the first ones follow each other soon", 16*time.Second)
	s.Solicited(at, 0)
	step("never within three seconds", 3*time.Second)
	at = begin.Add(3 * time.Second)
	s.Sent(at, 1)
	step("the second", 19*time.Second)
	at = begin.Add(19 * time.Second)
	s.Sent(at, 0.5)
	step("from the third on at random times", 419*time.Second)
	at = begin.Add(100 * time.Second)
	s.Solicited(at, 0.5)
	step("a machine asks", 100*time.Second+250*time.Millisecond)
	s.Solicited(at, 0.9)
	step("and again, which delays nothing", 100*time.Second+250*time.Millisecond)
	s.Sent(begin.Add(101*time.Second), 0)
	step("it goes on", 301*time.Second)
	s.Changed(begin.Add(102 * time.Second))
	step("it has changed", 104*time.Second)
	s.Sent(begin.Add(104*time.Second), 0)
	step("and is repeated soon", 120*time.Second)
}
