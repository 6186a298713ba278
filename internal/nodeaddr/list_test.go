package nodeaddr

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/api"
)

func TestWhichInterfacesANodeLists(t *testing.T) {
	of := func(name string, addrs ...string) Interface {
		i := Interface{Name: name}
		for _, a := range addrs {
			i.Addrs = append(i.Addrs, Addr{Prefix: netip.MustParsePrefix(a)})
		}
		return i
	}
	checked := of("eth0", "2001:db8::1/64", "192.0.2.1/24")
	checked.Addrs = append(checked.Addrs, Addr{Prefix: netip.MustParsePrefix("2001:db8::2/64"), Unsuitable: "is temporary or deprecated"})
	for _, tt := range []struct {
		name, want string
		had        []api.NodeInterface
		has        []Interface
	}{
		{name: "none", want: "[]"},
		{name: "sorted, with the addresses that others can use", has: []Interface{of("eth1", "198.51.100.1/24", "fe80::1/64"), checked}, want: "[{eth0 [192.0.2.1 2001:db8::1]} {eth1 [198.51.100.1]}]"},
		{name: "not those of containers, tunnels, bridges and loopback", has: []Interface{of("cali1234", "192.0.2.9/32"), of("docker0", "172.17.0.1/16"), of("vxlan.calico", "10.65.0.1/32"), of("lo", "192.0.2.8/32")}, want: "[]"},
		{name: "not one without an address, such as a virtual machine's", has: []Interface{of("tap0"), of("eth0", "fe80::1/64")}, want: "[]"},
		{name: "one that had an address stays while it exists", had: []api.NodeInterface{{Name: "eth0", Addresses: []string{"192.0.2.1"}}, {Name: "gone"}}, has: []Interface{of("eth0")}, want: "[{eth0 []}]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := api.New(api.KindNode).(*api.Node)
			n.Spec.Interfaces = tt.had
			if got := fmt.Sprint(List(n, Host{Interfaces: tt.has})); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got := fmt.Sprint(List(nil, Host{Interfaces: tt.has})); tt.had == nil && got != tt.want {
				t.Errorf("without a Node: got %s, want %s", got, tt.want)
			}
		})
	}
}
