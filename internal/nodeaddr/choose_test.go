package nodeaddr

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func addrs(prefixes ...string) (out []Addr) {
	for _, p := range prefixes {
		p, unfit, _ := strings.Cut(p, " ")
		out = append(out, Addr{Prefix: netip.MustParsePrefix(p), Unsuitable: unfit})
	}
	return out
}

// host has what a host with containers, tunnels and two uplinks has.
func host() Host {
	return Host{
		Interfaces: []Interface{
			{"lo", true, addrs("127.0.0.1/8", "10.255.0.1/32", "::1/128", "2001:db8:ff::1/128")},
			{"eth0", false, addrs("198.51.100.1/24")},
			{"docker0", true, addrs("172.17.0.1/16")},
			{"eth1", true, addrs("169.254.7.7/16", "192.0.2.1/24", "192.0.2.2/24", "fe80::1/64", "2001:db8::aaaa/64 is temporary or deprecated", "2001:db8::1/64")},
			{"bond0", true, addrs("203.0.113.1/25", "2001:db8:1::1/64")},
			{"cali1234", true, addrs("169.254.1.1/32")},
			{"ibmveth0", true, nil},
		},
		SourceTo: func(dst string, four bool) (netip.Addr, error) {
			from := map[string]string{"203.0.113.9": "203.0.113.1", "10.255.0.9": "10.255.7.7", "127.0.0.9": "127.0.0.1"}
			if four && from[dst] != "" {
				return netip.MustParseAddr(from[dst]), nil
			}
			return netip.Addr{}, errors.New("route to " + dst + ": network is unreachable")
		},
	}
}

func TestAddressesAreChosen(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		v4, v6       string // the interface and address; or what the error says
	}{
		{"the first that is up and not left out", "first-found", "eth1 192.0.2.1/24", "eth1 2001:db8::1/64"},
		{"nothing is the first found", "", "eth1 192.0.2.1/24", "eth1 2001:db8::1/64"},
		{"by name", "interface=bond.*", "bond0 203.0.113.1/25", "bond0 2001:db8:1::1/64"},
		{"by name, the first pattern before the first interface", "interface=bond0, eth.*", "bond0 203.0.113.1/25", "bond0 2001:db8:1::1/64"},
		{"by name, the next pattern where the first has none", "interface=eth0,eth1", "eth1 192.0.2.1/24", "eth1 2001:db8::1/64"},
		{"by name, also one that is left out else", "interface=docker0", "docker0 172.17.0.1/16", "docker0 has no IPv6 address"},
		{"by name, an address of lo that is not its own", "interface=^lo$", "lo 10.255.0.1/32", "lo 2001:db8:ff::1/128"},
		{"by name, and it is down", "interface=eth0", "eth0 is down", "eth0 is down"},
		{"by name, and there is none", "interface=ens.*", "eth1 matches no pattern", "bond0 matches no pattern"},
		{"others than", "skip-interface=eth.*", "bond0 203.0.113.1/25", "bond0 2001:db8:1::1/64"},
		{"others than all", "skip-interface=^eth,bond0", "eth1 is to be skipped", "ibmveth0 has no IPv6 address"},
		{"in a prefix", "cidr=203.0.113.0/24,2001:db8:1::/48", "bond0 203.0.113.1/25", "bond0 2001:db8:1::1/64"},
		{"in a prefix, the second address", "cidr=192.0.2.2/32", "eth1 192.0.2.2/24", "2001:db8::1/64 is in no wanted prefix"},
		{"in a prefix, of any interface", "cidr=172.16.0.0/12", "docker0 172.17.0.1/16", "is in no wanted prefix"},
		{"by the way there", "can-reach=203.0.113.9", "bond0 203.0.113.1/25", "unreachable"},
		{"by the way there, from an address that no interface has", "can-reach=10.255.0.9", " 10.255.7.7/32", "unreachable"},
		{"by the way there, from loopback", "can-reach=127.0.0.9", "goes out from 127.0.0.1, which is a loopback address", "unreachable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for f, want := range map[Family]string{V4: tt.v4, V6: tt.v6} {
				w, err := ParseWant(f, "autodetect", tt.method)
				if err != nil {
					t.Fatal(err)
				}
				c, err := w.Choose(host())
				got := c.Interface + " " + c.Addr.String()
				if err != nil {
					got = err.Error()
				}
				if got != want && (err == nil || !strings.Contains(got, want)) {
					t.Errorf("%s: got %s, want %s", f.Name, got, want)
				}
			}
		})
	}
}

func TestTheAddressThatKubernetesHasIsTaken(t *testing.T) {
	for _, tt := range []struct{ name, node, v4, v6 string }{
		{"of its interface", `{"addresses":[{"address":"198.51.100.9","type":"ExternalIP"},{"address":"192.0.2.2","type":"InternalIP"},{"address":"2001:db8:1::1","type":"InternalIP"}]}`, "eth1 192.0.2.2/24", "bond0 2001:db8:1::1/64"},
		{"of no interface of this host", `{"addresses":[{"address":"192.0.2.77","type":"InternalIP"}]}`, " 192.0.2.77/32", "the Node has no such address of type InternalIP"},
		{"another type", `{"addresses":[{"address":"192.0.2.2","type":"CalicoNodeIP"},{"address":"h1","type":"InternalIP"}]}`, "no such address", "no such address"},
		{"one that nobody else can reach", `{"addresses":[{"address":"127.0.0.1","type":"InternalIP"}]}`, "InternalIP 127.0.0.1 is a loopback address", "no such address"},
		{"no Node", "", "no such address", "no such address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var n *api.Node
			if tt.node != "" {
				n = &api.Node{}
				if err := json.Unmarshal([]byte(tt.node), &n.Spec); err != nil {
					t.Fatal(err)
				}
			}
			h := host()
			h.Internal = Internal(n)
			for f, want := range map[Family]string{V4: tt.v4, V6: tt.v6} {
				w, err := ParseWant(f, "autodetect", "kubernetes-internal-ip")
				if err != nil {
					t.Fatal(err)
				}
				c, err := w.Choose(h)
				got := c.Interface + " " + c.Addr.String()
				if err != nil {
					got = err.Error()
				}
				if got != want && (err == nil || !strings.Contains(got, want)) {
					t.Errorf("%s: got %s, want %s", f.Name, got, want)
				}
			}
		})
	}
}

// TestAVirtualAddressIsNotTheNodes: one that VRRP moves between hosts must not become what other nodes send to, nor may another address
// that comes later.
func TestAVirtualAddressIsNotTheNodes(t *testing.T) {
	of := func(prefix string, secondary, lasting bool) Addr {
		return Addr{Prefix: netip.MustParsePrefix(prefix), Secondary: secondary, Lasting: lasting}
	}
	for _, tt := range []struct {
		name, has, method, want string
		addrs                   []Addr
	}{
		{name: "a single address, listed before the interface's own", want: "192.0.2.1/24", addrs: []Addr{of("192.0.2.9/32", false, true), of("192.0.2.1/24", false, true)}},
		{name: "the Node has it from before there was another", has: "192.0.2.9/32", want: "192.0.2.1/24", addrs: []Addr{of("192.0.2.9/32", false, true), of("192.0.2.1/24", false, false)}},
		{name: "the only one is taken", want: "192.0.2.9/32", addrs: []Addr{of("192.0.2.9/32", false, true)}},
		{name: "one that DHCP gave without a network, as clouds do", want: "192.0.2.1/32", addrs: []Addr{of("192.0.2.9/32", false, true), of("192.0.2.1/32", false, false)}},
		{name: "a second one of the network, listed first", want: "192.0.2.1/24", addrs: []Addr{of("192.0.2.9/24", true, true), of("192.0.2.1/24", false, true)}},
		{name: "a second one of the network before a single one", want: "192.0.2.8/24", method: "cidr=192.0.2.8/31", addrs: []Addr{of("192.0.2.9/32", false, true), of("192.0.2.1/24", false, true), of("192.0.2.8/24", true, true)}},
		{name: "of two that fit as well, that of the Node", has: "192.0.2.1/24", want: "192.0.2.1/24", addrs: []Addr{of("198.51.100.1/24", false, true), of("192.0.2.1/24", false, true)}},
		{name: "that of the Node with another length", has: "192.0.2.1/25", want: "192.0.2.1/24", addrs: []Addr{of("198.51.100.1/24", false, true), of("192.0.2.1/24", false, true)}},
		{name: "that of the Node has become second", has: "192.0.2.1/24", want: "192.0.2.7/24", addrs: []Addr{of("192.0.2.7/24", false, true), of("192.0.2.1/24", true, true)}},
		{name: "that of the Node does not fit the method", has: "192.0.2.1/24", method: "cidr=198.51.100.0/24", want: "198.51.100.1/24", addrs: []Addr{of("192.0.2.1/24", false, true), of("198.51.100.1/24", false, true)}},
		{name: "the Node has none of them", has: "203.0.113.1/24", want: "198.51.100.1/24", addrs: []Addr{of("198.51.100.1/24", false, true), of("192.0.2.1/24", false, true)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := ParseWant(V4, "autodetect", tt.method)
			if err != nil {
				t.Fatal(err)
			}
			h := Host{Interfaces: []Interface{{"eth0", true, tt.addrs}}, Has: Addrs(node("h1", tt.has, ""))}
			if c, err := w.Choose(h); c.Addr.String() != tt.want || err != nil {
				t.Errorf("got %v, %v; want %s", c, err, tt.want)
			}
		})
	}
}

// TestTheAddressThatAnotherProgramGaveStays: Calico takes the last interface that fits, and other nodes know its address.
func TestTheAddressThatAnotherProgramGaveStays(t *testing.T) {
	of := func(name string, up bool, prefix string) Interface {
		return Interface{name, up, []Addr{{Prefix: netip.MustParsePrefix(prefix)}}}
	}
	for _, tt := range []struct{ name, has, detected, method, want string }{
		{name: "it fits", has: "198.51.100.1/24", want: "198.51.100.1/24"},
		{name: "in another length", has: "198.51.100.1", want: "198.51.100.1/24"},
		{name: "the node found it itself", has: "198.51.100.1/24", detected: "198.51.100.1/24", want: "192.0.2.1/24"},
		{name: "its interface is down", has: "203.0.113.1/24", want: "192.0.2.1/24"},
		{name: "its interface is not to be taken", has: "198.51.100.1/24", method: "skip-interface=eth1", want: "192.0.2.1/24"},
		{name: "its interface is of another pattern", has: "198.51.100.1/24", method: "interface=eth0,eth1", want: "198.51.100.1/24"},
		{name: "it is a single one beside another", has: "192.0.2.9/32", want: "192.0.2.9/32"},
		{name: "it is nowhere", has: "203.0.113.77/24", want: "192.0.2.1/24"},
		{name: "there is none", want: "192.0.2.1/24"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := ParseWant(V4, "autodetect", tt.method)
			if err != nil {
				t.Fatal(err)
			}
			eth0 := of("eth0", true, "192.0.2.1/24")
			eth0.Addrs = append(eth0.Addrs, Addr{Prefix: netip.MustParsePrefix("192.0.2.9/32"), Lasting: true})
			h := Host{Interfaces: []Interface{eth0, of("eth1", true, "198.51.100.1/24"), of("eth2", false, "203.0.113.1/24")}}
			n := node("h1", tt.has, tt.detected)
			for range 2 { // what is written because of the first look changes nothing for the next
				h.Know(n)
				c, err := w.Choose(h)
				if c.Addr.String() != tt.want || err != nil {
					t.Errorf("got %v, %v; want %s", c, err, tt.want)
				}
				found := []Found{{w, c, err}}
				Apply(n, found, Settle(n, found))
			}
		})
	}
}

func TestAnAddressThatIsNotFoundIsExplained(t *testing.T) {
	w, err := ParseWant(V4, "", "")
	if err != nil {
		t.Fatal(err)
	}
	h := host()
	h.Interfaces = append(h.Interfaces[:3], h.Interfaces[5:]...)
	_, err = w.Choose(h)
	const want = `no IPv4 address of this host found by first-found: lo has a name (^lo) that is left out unless asked for by interface=; eth0 is down; ` +
		`docker0 has a name (^docker) that is left out unless asked for by interface=; cali1234 has a name (^cali) that is left out unless asked for by interface=; ibmveth0 has no IPv4 address. ` +
		`Give the address with --ip (IP), or another way with --ip-autodetection-method (IP_AUTODETECTION_METHOD): first-found, can-reach=ADDRESS, interface=PATTERN,…, skip-interface=PATTERN,…, cidr=PREFIX,… or kubernetes-internal-ip`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestWhatUsersWantIsRead(t *testing.T) {
	for _, tt := range []struct {
		name, ip, method, want string // the order and address; or what the error says
	}{
		{"nothing", "", "", "fill"},
		{"autodetect", "autodetect", "cidr=192.0.2.0/24", "detect"},
		{"none", "none", "", "keep"},
		{"an address", "192.0.2.1", "", "fixed 192.0.2.1/24"},
		{"an address with its length", "192.0.2.1/28", "", "fixed 192.0.2.1/28"},
		{"an address of nobody", "192.0.2.77", "", "fixed 192.0.2.77/32"},
		{"of the other family", "2001:db8::1", "", "want autodetect, none, or an IPv4 address"},
		{"no address", "eth0", "", `--ip (IP) is "eth0": want`},
		{"loopback", "127.0.0.1", "", "is a loopback address: no other node can reach this one by it"},
		{"link-local", "169.254.0.9/16", "", "holds on one link only"},
		{"multicast", "224.0.0.1", "", "is no unicast address"},
		{"unspecified", "0.0.0.0", "", "is no unicast address"},
		{"an unknown method", "", "best", `"best": want first-found, can-reach=`},
		{"an unknown method with a value", "", "mac=02", `"mac=02": want first-found, can-reach=`},
		{"a method without its value", "", "interface=", "nothing follows the ="},
		{"a pattern that is none", "", "interface=eth(", "interface: \"eth(\": error parsing regexp"},
		{"a prefix that is none", "", "cidr=192.0.2.0", "cidr: \"192.0.2.0\": want a prefix"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := ParseWant(V4, tt.ip, tt.method)
			got := map[Order]string{Fill: "fill", Detect: "detect", Keep: "keep", Fixed: "fixed"}[w.Order]
			if w.Order == Fixed && err == nil {
				c, _ := w.Choose(host())
				got += " " + c.Addr.String()
			}
			if err != nil {
				got = err.Error()
			}
			if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if w, err := ParseWant(V6, "", ""); w.Order != Keep || err != nil {
		t.Errorf("IPv6 unless asked for: %v, %v; want it left alone", w.Order, err)
	}
}

// TestInterfacesOfOthersAreLeftOut: each that upstream leaves out, where nobody says which interface.
func TestInterfacesOfOthersAreLeftOut(t *testing.T) {
	w, err := ParseWant(V4, "autodetect", "")
	if err != nil {
		t.Fatal(err)
	}
	out := "docker0 cbr0 dummy0 podman1 virbr0 lxcbr0 veth12 lo br-12ab cali1 tunl0 flannel.1 kube-ipvs0 cni0 vxlan.calico vxlan-v6.calico wireguard.cali wg-v6.cali nodelocaldns"
	for name := range strings.FieldsSeq(out) {
		if c, err := w.Choose(Host{Interfaces: []Interface{{name, true, addrs("192.0.2.1/24")}}}); err == nil {
			t.Errorf("%s is chosen: %v", name, c)
		}
	}
	for name := range strings.FieldsSeq("eth0 ens3 br0 bond0 mydocker0 vxlan-calico") {
		if c, err := w.Choose(Host{Interfaces: []Interface{{name, true, addrs("192.0.2.1/24")}}}); err != nil || c.Interface != name {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}
