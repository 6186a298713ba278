package subnet

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestWhatIsStoredOfASubnet(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	six := func(m Mode) Subnet {
		return Subnet{ID: "s", CIDR: prefix("fd00::/64"), Gateway: addr("fd00::1"), DNS: []netip.Addr{addr("fd00::53")}, Mode: m}
	}
	for _, tt := range []struct {
		name, value string
		want        Subnet
		problems    string // that are named, in order
		err         string
	}{
		{
			name:  "as upstream writes it",
			value: `{"network_id": "n", "cidr": "10.65.0.0/24", "gateway_ip": "10.65.0.1", "host_routes": [{"destination": "10.9.0.0/16", "nexthop": "10.65.0.9"}], "dns_servers": ["192.0.2.53"]}`,
			want: Subnet{
				ID: "s", NetworkID: "n", CIDR: prefix("10.65.0.0/24"), Gateway: addr("10.65.0.1"),
				Routes: []Route{{prefix("10.9.0.0/16"), addr("10.65.0.9")}}, DNS: []netip.Addr{addr("192.0.2.53")},
			},
		},
		{name: "no gateway, no routes", value: `{"cidr": "10.65.0.7/24", "gateway_ip": null}`, want: Subnet{ID: "s", CIDR: prefix("10.65.0.0/24")}},
		{
			name:     "what is wrong of routes and servers is left out and named",
			value:    `{"cidr": "10.65.0.0/24", "host_routes": [{"destination": "x", "nexthop": "10.65.0.9"}, {"destination": "fd00::/64", "nexthop": "fd00::1"}, {"destination": "10.9.0.1/16", "nexthop": "10.65.0.9"}], "dns_servers": ["fd00::53", "192.0.2.53"]}`,
			want:     Subnet{ID: "s", CIDR: prefix("10.65.0.0/24"), Routes: []Route{{prefix("10.9.0.0/16"), addr("10.65.0.9")}}, DNS: []netip.Addr{addr("192.0.2.53")}},
			problems: `fd00::53 is of the other IP version.*"x" via "10.65.0.9".*fd00::/64 is of the other`,
		},
		{name: "routes that are none", value: `{"cidr": "10.65.0.0/24", "host_routes": "x"}`, want: Subnet{ID: "s", CIDR: prefix("10.65.0.0/24")}, problems: "host_routes"},
		{name: "IPv6, as Neutron has it without modes", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"]}`, want: six(Stateful)},
		{name: "addresses of the prefix", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"], "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}`, want: six(SLAAC)},
		{name: "one mode is enough", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"], "ipv6_address_mode": "dhcpv6-stateless"}`, want: six(Stateless)},
		{name: "two modes", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"], "ipv6_ra_mode": "slaac", "ipv6_address_mode": "dhcpv6-stateful"}`, want: six(SLAAC), problems: `ipv6_address_mode: "dhcpv6-stateful" is not ipv6_ra_mode`},
		{name: "a mode that is none", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"], "ipv6_ra_mode": "x"}`, want: six(Stateful), problems: `ipv6_ra_mode: "x" is none`},
		{name: "a prefix of which no machine makes an address", value: `{"cidr": "fd00::/80", "ipv6_ra_mode": "slaac"}`, want: Subnet{ID: "s", CIDR: prefix("fd00::/80"), Mode: SLAAC}, problems: "make no addresses of fd00::/80"},
		{name: "routes of IPv6", value: `{"cidr": "fd00::/64", "gateway_ip": "fd00::1", "dns_servers": ["fd00::53"], "host_routes": [{"destination": "fd01::/64", "nexthop": "fd00::9"}]}`, want: six(Stateful), problems: "host_routes: no machine gets them"},
		{name: "no network", value: `{"cidr": "10.65.0.0"}`, err: "subnet s: cidr"},
		{name: "a gateway that is none", value: `{"cidr": "10.65.0.0/24", "gateway_ip": "fd00::1"}`, err: "subnet s: gateway_ip: fd00::1 is of the other IP version"},
		{name: "no JSON", value: `{`, err: "subnet s: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, problems, err := Parse("s", []byte(tt.value))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("it is %+v, %v, want %+v", got, err, tt.want)
			}
			rest := strings.Join(problems, "; ")
			for part := range strings.SplitSeq(tt.problems, ".*") {
				_, after, ok := strings.Cut(rest, part)
				if !ok || tt.problems == "" && rest != "" {
					t.Errorf("problems %q, want %s", problems, tt.problems)
				}
				rest = after
			}
		})
	}
}
