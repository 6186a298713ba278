package autohep

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func node(change func(*api.Node)) *api.Node {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata.Name, n.Metadata.Labels = "h1", map[string]string{"rack": "a", "zone": "north"}
	n.Spec.BGP = &api.NodeBGPSpec{IPv4Address: "192.0.2.1/24", IPv6Address: "2001:db8::1/64"}
	if change != nil {
		change(n)
	}
	return n
}

// brief is what tells host endpoints apart, one a line.
func brief(hs []*api.HostEndpoint) string {
	var out []string
	for _, h := range hs {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", h.Metadata.Name, h.Spec.InterfaceName, strings.Join(h.Spec.ExpectedIPs, " "))))
	}
	return strings.Join(out, "\n")
}

func TestWantedHostEndpoints(t *testing.T) {
	on := func(ts ...api.HostEndpointTemplate) api.AutoHostEndpoints {
		return api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Disabled, Templates: ts}
	}
	interfaces := func(n *api.Node) {
		n.Spec.Interfaces = []api.NodeInterface{{Name: "eth0", Addresses: []string{"192.0.2.1", "198.51.100.1"}}, {Name: "eth1"}, {Name: "lo", Addresses: []string{"127.0.0.1"}}, {Name: "UP"}}
	}
	long := strings.Repeat("n", 240)
	for _, tt := range []struct {
		name   string
		change func(*api.Node)
		cfg    api.AutoHostEndpoints
		want   string
		wrong  string // in the error
	}{
		{name: "off", cfg: api.AutoHostEndpoints{AutoCreate: api.Disabled, CreateDefaultHostEndpoint: api.Enabled}},
		{name: "the one for all interfaces", cfg: api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Enabled}, want: "h1-auto-hep * 192.0.2.1 2001:db8::1"},
		{name: "a node without addresses", change: func(n *api.Node) { n.Spec.BGP = nil }, cfg: api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Enabled}, want: "h1-auto-hep *"},
		{
			name: "all addresses, each once", change: func(n *api.Node) {
				n.Spec.BGP.IPv4IPIPTunnelAddr, n.Spec.IPv4VXLANTunnelAddr, n.Spec.IPv6VXLANTunnelAddr = "10.65.0.1", "10.65.0.2", "fd00::2"
				n.Spec.Wireguard = &api.NodeWireguardSpec{InterfaceIPv4Address: "10.65.0.3", InterfaceIPv6Address: "fd00::3"}
				n.Spec.Addresses = []api.NodeAddress{{Address: "192.0.2.1", Type: "InternalIP"}, {Address: "10.0.0.9", Type: "InternalIP"}, {Address: "203.0.113.9", Type: "ExternalIP"}, {Address: "x", Type: "InternalIP"}}
				interfaces(n)
			}, cfg: api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Enabled},
			want: "h1-auto-hep * 192.0.2.1 2001:db8::1 10.65.0.1 10.65.0.2 fd00::2 10.65.0.3 fd00::3 10.0.0.9 198.51.100.1 127.0.0.1",
		},
		{name: "a template takes the addresses in its prefixes", cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"192.0.2.0/28", "10.0.0.0/8"}}), want: "h1-t-auto-hep  192.0.2.1"},
		{name: "a template without a name gives no part of one", cfg: on(api.HostEndpointTemplate{InterfaceCIDRs: []string{"192.0.2.0/28"}}), want: "h1-auto-hep  192.0.2.1"},
		{name: "a template for no address of the node", cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"10.0.0.0/8"}})},
		{name: "a template for other nodes", cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"::/0"}, NodeSelector: "rack == 'b'"})},
		{name: "a template for such nodes", cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"::/0"}, NodeSelector: "rack == 'a'"}), want: "h1-t-auto-hep  2001:db8::1"},
		{
			name: "a template for interfaces", change: interfaces, cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfacePattern: "^eth", InterfaceCIDRs: []string{"2001:db8::/32"}}),
			want: "h1-t-eth0-auto-hep eth0 2001:db8::1 192.0.2.1 198.51.100.1\nh1-t-eth1-auto-hep eth1 2001:db8::1",
		},
		{name: "an interface whose name is none for a resource", change: interfaces, cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfacePattern: "^(UP|eth1)$"}), want: "h1-t-eth1-auto-hep eth1", wrong: "h1-t-UP-auto-hep"},
		{
			name: "what cannot be read takes nothing else with it",
			cfg:  on(api.HostEndpointTemplate{GenerateName: "s", NodeSelector: "("}, api.HostEndpointTemplate{GenerateName: "p", InterfacePattern: "("}, api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"::/0", "x"}}), want: "h1-t-auto-hep  2001:db8::1", wrong: "template s",
		},
		{name: "two of one name: the first", cfg: on(api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"::/0"}}, api.HostEndpointTemplate{GenerateName: "t", InterfaceCIDRs: []string{"0.0.0.0/0"}}), want: "h1-t-auto-hep  2001:db8::1"},
		{name: "a name that is too long is a hash", change: func(n *api.Node) { n.Metadata.Name = long }, cfg: on(api.HostEndpointTemplate{GenerateName: "template", InterfaceCIDRs: []string{"::/0"}}), want: name(long, "template") + "  2001:db8::1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Wanted(node(tt.change), tt.cfg)
			if b := brief(got); b != tt.want {
				t.Errorf("got\n%s\nwant\n%s", b, tt.want)
			}
			if (err != nil) != (tt.wrong != "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("error %v, want %q", err, tt.wrong)
			}
			for _, h := range got {
				if err := api.Validate(h).Err(); err != nil || !Made(h) || h.Spec.Node != node(tt.change).Metadata.Name || strings.Join(h.Spec.Profiles, " ") != "projectcalico-default-allow" {
					t.Errorf("%+v: %v", h, err)
				}
			}
		})
	}
	if got, err := Wanted(nil, api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Enabled}); got != nil || err != nil {
		t.Errorf("without a node: %v, %v", got, err)
	}
}

func TestLabelsAreTheNodesThenTheTemplatesThenWhoMadeIt(t *testing.T) {
	n := node(func(n *api.Node) { n.Metadata.Labels[api.LabelCreatedBy] = "somebody" })
	got, _ := Wanted(n, api.AutoHostEndpoints{AutoCreate: api.Enabled, CreateDefaultHostEndpoint: api.Enabled, Templates: []api.HostEndpointTemplate{
		{GenerateName: "t", InterfaceCIDRs: []string{"::/0"}, Labels: map[string]string{"zone": "south", "role": "edge"}},
	}})
	for i, want := range []string{
		"map[projectcalico.org/created-by:calico-kube-controllers rack:a zone:north]",
		"map[projectcalico.org/created-by:calico-kube-controllers rack:a role:edge zone:south]",
	} {
		if l := fmt.Sprint(got[i].Metadata.Labels); l != want {
			t.Errorf("%s has %s, want %s", got[i].Metadata.Name, l, want)
		}
	}
	if n.Metadata.Labels[api.LabelCreatedBy] != "somebody" {
		t.Error("the node was changed")
	}
}
