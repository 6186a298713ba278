package dhcp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/twillnet/twill/internal/dhcp/subnet"
)

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
	mac    = [6]byte{2, 0, 0, 0, 0, 1}
	self   = Server{ID: addr("192.0.2.1"), Lease: time.Hour}
	net65  = subnet.Subnet{ID: "s", NetworkID: "n", CIDR: prefix("10.65.0.0/24"), Gateway: addr("10.65.0.1"), DNS: []netip.Addr{addr("192.0.2.53"), addr("192.0.2.54")}}
	vm     = Machine{MAC: mac, Addrs: []Address{{addr("10.65.0.7"), net65}, {addr("10.65.0.8"), net65}}, MTU: 1450, Host: "web", Domain: "example.org"}
)

// asks is a request of a machine.
func asks(t testing.TB, kind dhcpv4.MessageType, with ...dhcpv4.Modifier) []byte {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(mac[:])}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m.ToBytes()
}

func wants(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(a)))
}
func has(a string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(a)) }
func of(a string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(a)))
}

// ask is what a datagram is answered.
func ask(s Server, m Machine, datagram []byte) (*Reply, error) {
	r, err := Parse(datagram)
	if err != nil {
		return nil, err
	}
	return Answer(s, m, r)
}

func TestWhatAMachineIsAnswered(t *testing.T) {
	const discover, request, inform = dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform
	bare := vm
	bare.Addrs = nil
	for _, tt := range []struct {
		name string
		of   Machine
		sent []byte
		want string // type, address, and where it goes
		err  error
	}{
		{name: "it has no address: the first one is offered", sent: asks(t, discover), want: "offer 10.65.0.7 to 10.65.0.7"},
		{name: "it cannot receive unicast yet", sent: asks(t, discover, dhcpv4.WithBroadcast(true)), want: "offer 10.65.0.7 to all"},
		{name: "it asks for another's: its own is offered", sent: asks(t, discover, wants("10.65.0.99")), want: "offer 10.65.0.7 to 10.65.0.7"},
		{name: "it selects the offer", sent: asks(t, request, wants("10.65.0.7"), of("192.0.2.1")), want: "ack 10.65.0.7 to 10.65.0.7"},
		{name: "it selects another server's", sent: asks(t, request, wants("10.65.0.7"), of("192.0.2.2")), err: ErrOther},
		{name: "it selects what is not its own", sent: asks(t, request, wants("10.65.0.9"), of("192.0.2.1")), want: "nak 10.65.0.9 to all"},
		{name: "it remembers its address", sent: asks(t, request, wants("10.65.0.7")), want: "ack 10.65.0.7 to 10.65.0.7"},
		{name: "it remembers the second", sent: asks(t, request, wants("10.65.0.8")), want: "ack 10.65.0.8 to 10.65.0.8"},
		{name: "it remembers what is not its own any more", sent: asks(t, request, wants("10.65.0.9")), want: "nak 10.65.0.9 to all"},
		{name: "it wants no address in particular", sent: asks(t, request), want: "nak 0.0.0.0 to all"},
		{name: "it renews", sent: asks(t, request, has("10.65.0.7")), want: "ack 10.65.0.7 to 10.65.0.7"},
		{name: "it renews, and its flags mean nothing then", sent: asks(t, request, has("10.65.0.7"), dhcpv4.WithBroadcast(true)), want: "ack 10.65.0.7 to 10.65.0.7"},
		{name: "it renews what is not its own any more", sent: asks(t, request, has("10.65.0.9")), want: "nak 10.65.0.9 to all"},
		{name: "it wants the rest alone", sent: asks(t, inform, has("10.65.0.7")), want: "ack invalid IP to 10.65.0.7"},
		{name: "it wants the rest for another's address", sent: asks(t, inform, has("10.65.0.9")), err: ErrNotOurs},
		{name: "another machine's hardware address", sent: asks(t, discover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 2})), err: ErrNotOurs},
		{name: "no hardware address", sent: asks(t, discover, dhcpv4.WithHwAddr(nil)), err: ErrNotOurs},
		{name: "of a relay", sent: asks(t, discover, dhcpv4.WithGatewayIP(net.IP{10, 0, 0, 1})), err: ErrNotOurs},
		{name: "a reply", sent: asks(t, discover, func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply }), err: ErrNotOurs},
		{name: "its address is not served", of: bare, sent: asks(t, request, wants("10.65.0.7")), err: ErrNoAddress},
		{name: "it gives its address back", sent: asks(t, dhcpv4.MessageTypeRelease, has("10.65.0.7")), err: ErrNoAnswer},
		{name: "another has its address", sent: asks(t, dhcpv4.MessageTypeDecline, wants("10.65.0.7")), err: ErrDeclined},
		{name: "a message of servers", sent: asks(t, dhcpv4.MessageTypeOffer), err: ErrNoAnswer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.of.MAC != mac {
				tt.of = vm
			}
			r, err := ask(self, tt.of, tt.sent)
			if !errors.Is(err, tt.err) || (r == nil) != (tt.err != nil) {
				t.Fatalf("%v, %v, want %v", r, err, tt.err)
			}
			if r == nil {
				return
			}
			to := r.To.String()
			if r.Broadcast {
				to = "all"
			}
			if got := r.Type + " " + r.Addr.String() + " to " + to; got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			whole(t, r, tt.sent)
		})
	}
}

// whole checks what holds of each reply.
func whole(t *testing.T, r *Reply, sent []byte) {
	t.Helper()
	got, err := dhcpv4.FromBytes(r.Payload)
	asked, err2 := dhcpv4.FromBytes(sent)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	yours := given(got.YourIPAddr)
	switch {
	case got.OpCode != dhcpv4.OpcodeBootReply, got.TransactionID != asked.TransactionID, !bytes.Equal(got.ClientHWAddr, mac[:]), given(got.ServerIdentifier()) != self.ID:
		t.Errorf("it is no reply to this: %s", got.Summary())
	case r.Type == "nak" && (!yours.IsUnspecified() || len(got.Options) > 3):
		t.Errorf("what is refused has more than it should: %s", got.Summary())
	case r.Type == "nak":
	case r.Addr.IsValid() && (yours != r.Addr || got.IPAddressLeaseTime(0) != time.Hour):
		t.Errorf("its address or lease is another: %s", got.Summary())
	case !r.Addr.IsValid() && (!yours.IsUnspecified() || got.IPAddressLeaseTime(0) != 0):
		t.Errorf("there is a lease that nobody asked for: %s", got.Summary())
	}
}

func TestWhatAMachineHasBesidesItsAddress(t *testing.T) {
	outside := subnet.Subnet{ID: "s", CIDR: prefix("10.65.0.7/32"), Gateway: addr("169.254.1.1")}
	routed := net65
	routed.Routes = []subnet.Route{{Dst: prefix("10.9.0.0/16"), Via: addr("10.65.0.9")}, {Dst: prefix("10.10.0.0/16"), Via: addr("10.66.0.1")}}
	own := net65
	own.Routes = []subnet.Route{{Dst: prefix("0.0.0.0/0"), Via: addr("10.65.0.254")}}
	for _, tt := range []struct {
		name   string
		n      subnet.Subnet
		mask   string
		router string
		routes string // of option 121
	}{
		{"a gateway in the subnet", net65, "ffffff00", "[10.65.0.1]", ""},
		{"no gateway", subnet.Subnet{CIDR: prefix("10.65.0.0/24")}, "ffffff00", "[]", ""},
		{"a gateway outside of it", outside, "ffffffff", "[169.254.1.1]", "route to 169.254.1.1/32 via 0.0.0.0; route to 0.0.0.0/0 via 169.254.1.1"},
		{"routes, and so the default one", routed, "ffffff00", "[10.65.0.1]", "route to 10.9.0.0/16 via 10.65.0.9; route to 10.66.0.1/32 via 0.0.0.0; route to 10.10.0.0/16 via 10.66.0.1; route to 0.0.0.0/0 via 10.65.0.1"},
		{"a default route of its own", own, "ffffff00", "[10.65.0.1]", "route to 0.0.0.0/0 via 10.65.0.254"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := vm
			m.Addrs = []Address{{addr("10.65.0.7"), tt.n}}
			for _, sent := range [][]byte{asks(t, dhcpv4.MessageTypeDiscover), asks(t, dhcpv4.MessageTypeInform, has("10.65.0.7"))} {
				r, err := ask(self, m, sent)
				if err != nil {
					t.Fatal(err)
				}
				got, err := dhcpv4.FromBytes(r.Payload)
				if err != nil {
					t.Fatal(err)
				}
				router := strings.ReplaceAll("["+strings.Trim(strings.Join(texts(got.Router()), " "), " ")+"]", "<nil>", "")
				if got.SubnetMask().String() != tt.mask || router != tt.router || dhcpv4.Routes(got.ClasslessStaticRoute()).String() != tt.routes {
					t.Errorf("mask %s, routers %s, routes %s, want %s, %s, %s", got.SubnetMask(), router, dhcpv4.Routes(got.ClasslessStaticRoute()), tt.mask, tt.router, tt.routes)
				}
				mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, got.Options)
				if mtu != 1450 || err != nil || got.HostName() != "web" || got.DomainName() != "example.org" {
					t.Errorf("MTU %d (%v), %s in %s", mtu, err, got.HostName(), got.DomainName())
				}
				if dns := texts(got.DNS()); !slices.Equal(dns, texts(slices4(tt.n.DNS))) {
					t.Errorf("DNS servers %q", dns)
				}
				if got.Options.Get(dhcpv4.GenericOptionCode(classlessOfWindows)) != nil != (tt.routes != "") {
					t.Error("the routes of older Windows are not those of others")
				}
			}
		})
	}
}

func texts(ips []net.IP) (out []string) {
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}

func TestTheSubnetOfAnAddress(t *testing.T) {
	small, wide, other := subnet.Subnet{ID: "b", NetworkID: "n", CIDR: prefix("10.65.0.0/24")}, subnet.Subnet{ID: "a", NetworkID: "n", CIDR: prefix("10.0.0.0/8")}, subnet.Subnet{ID: "c", NetworkID: "m", CIDR: prefix("10.65.0.0/25")}
	six := subnet.Subnet{ID: "d", NetworkID: "n", CIDR: prefix("fd00::/64")}
	for _, tt := range []struct{ name, addrs, network, want string }{
		{"the smallest", "10.65.0.7", "n", "10.65.0.7 of b"},
		{"of its network", "10.65.0.7", "m", "10.65.0.7 of c"},
		{"of any, if no network is known", "10.65.0.7", "", "10.65.0.7 of c"},
		{"in the endpoint's order", "10.65.1.9 10.65.0.7", "n", "10.65.1.9 of a, 10.65.0.7 of b"},
		{"not served", "192.0.2.1 10.65.0.7", "n", "10.65.0.7 of b"},
		{"of IPv6", "fd00::7 10.65.0.7", "n", "fd00::7 of d, 10.65.0.7 of b"},
		{"of another network", "10.65.0.7", "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var as []netip.Addr
			for a := range strings.FieldsSeq(tt.addrs) {
				as = append(as, addr(a))
			}
			var got []string
			for _, a := range Assigned(as, tt.network, []subnet.Subnet{small, wide, other, six}) {
				got = append(got, a.Addr.String()+" of "+a.Subnet.ID)
			}
			if s := strings.Join(got, ", "); s != tt.want {
				t.Errorf("%s, want %s", s, tt.want)
			}
		})
	}
}

func TestNamesOfMachines(t *testing.T) {
	for fqdn, want := range map[string]string{
		"web.example.org.": "web example.org", "web": "web ", "host-10-65-0-7.openstacklocal": "host-10-65-0-7 openstacklocal",
		"": "", "a b": "", "$(reboot).example.org": "", "-a": "", "a..b": "", strings.Repeat("a", 64) + ".org": "", strings.Repeat("a", 63) + ".org": strings.Repeat("a", 63) + " org", strings.Repeat("a", 254): "",
	} {
		host, domain, ok := SplitName(fqdn)
		if got := host + " " + domain; ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q, %v, want %q", fqdn, got, ok, want)
		}
	}
}

// FuzzAnswer: whatever a machine sends, nothing breaks, and nothing but its own address is confirmed.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform, dhcpv4.MessageTypeRelease} {
		f.Add(asks(f, kind, wants("10.65.0.7"), dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute, dhcpv4.OptionInterfaceMTU)))
		f.Add(asks(f, kind, has("10.65.0.9")))
	}
	f.Add([]byte{1, 1, 6})
	f.Fuzz(func(t *testing.T, sent []byte) {
		r, err := ask(self, vm, sent)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if r == nil {
			return
		}
		got, err := dhcpv4.FromBytes(r.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if a := given(got.YourIPAddr); !a.IsUnspecified() && vm.find(a) < 0 || !bytes.Equal(got.ClientHWAddr, mac[:]) {
			t.Errorf("it is given %s", got.Summary())
		}
	})
}
