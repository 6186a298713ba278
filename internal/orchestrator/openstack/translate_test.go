package openstack

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
)

// vm is a port as Neutron's API prints it, with what the driver adds.
const vm = `{
  "id": "6d6c0bb1-9d5b-4f0f-8d8c-2f3a1b0c9e11", "name": "", "network_id": "net-1", "project_id": "p-1", "tenant_id": "p-1",
  "device_id": "0a1b", "device_owner": "compute:nova", "binding:host_id": "compute-1", "mac_address": "fa:16:3e:00:00:01",
  "admin_state_up": true, "port_security_enabled": true, "security_groups": ["g1"], "revision_number": 7,
  "fixed_ips": [{"subnet_id": "s4", "ip_address": "10.65.0.5", "gateway_ip": "10.65.0.1"}, {"subnet_id": "s6", "ip_address": "2001:db8::5", "gateway_ip": "2001:db8::1"}],
  "allowed_address_pairs": [{"ip_address": "10.65.0.9", "mac_address": "fa:16:3e:00:00:01"}],
  "dns_assignment": [{"fqdn": "vm.example.org."}],
  "security_group_names": {"g1": "web servers!"}, "network_name": "blue",
  "floating_ips": [{"fixed_ip_address": "10.65.0.5", "floating_ip_address": "192.0.2.5"}]
}`

func port(t *testing.T, change string) *Port {
	t.Helper()
	var p Port
	for _, text := range []string{vm, change} {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
	}
	return &p
}

// TestAPortBecomesAnEndpoint: in the form of upstream's networking-calico, by which users' policies select.
func TestAPortBecomesAnEndpoint(t *testing.T) {
	e, problems, err := region("").endpoint(port(t, `{}`))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	want := api.WorkloadEndpointSpec{
		Orchestrator: "openstack", Workload: "0a1b", Node: "compute-1", Endpoint: "6d6c0bb1-9d5b-4f0f-8d8c-2f3a1b0c9e11",
		IPNetworks: []string{"10.65.0.5/32", "2001:db8::5/128", "10.65.0.9/32"}, IPv4Gateway: "10.65.0.1", IPv6Gateway: "2001:db8::1",
		AllowedIPs: []string{"10.65.0.9/32"}, InterfaceName: "tap6d6c0bb1-9d", MAC: "fa:16:3e:00:00:01", IPNATs: []api.IPNAT{{InternalIP: "10.65.0.5", ExternalIP: "192.0.2.5"}},
	}
	if d := cmp.Diff(want, e.Spec); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	if e, _, _ := region("").endpoint(port(t, `{"allowed_address_pairs": [{"ip_address": "10.65.0.5"}]}`)); len(e.Spec.AllowedIPs) != 0 { // DHCP would not serve it
		t.Errorf("a pair of its own address: %v", e.Spec.AllowedIPs)
	}
	labels := map[string]string{
		"sg.projectcalico.org/openstack-g1": "web_servers", "sg-name.projectcalico.org/openstack-web_servers": "g1",
		"projectcalico.org/openstack-project-id": "p-1", "projectcalico.org/openstack-network-name": "blue",
	}
	if d := cmp.Diff(labels, e.Metadata.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if name := "compute--1-openstack-0a1b-6d6c0bb1--9d5b--4f0f--8d8c--2f3a1b0c9e11"; e.Metadata.Name != name || e.Metadata.Namespace != "openstack" {
		t.Errorf("it is %s/%s", e.Metadata.Namespace, e.Metadata.Name)
	}
	annotations := map[string]string{"openstack.projectcalico.org/network-id": "net-1", "openstack.projectcalico.org/fqdn": "vm.example.org.", "openstack.twill.net/revision": "7"}
	if d := cmp.Diff(annotations, e.Metadata.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	if errs := api.Validate(e); len(errs) > 0 {
		t.Error(errs)
	}
	e, _, _ = region("").endpoint(port(t, `{"security_group_names": {"g1": "a name that is longer than labels are"}}`))
	if _, ok := e.Metadata.Labels["sg-name.projectcalico.org/openstack-a_name_that_is_longer_than_"]; ok || e.Metadata.Labels["sg-name.projectcalico.org/openstack-a_name_that_is_longer_than"] != "g1" {
		t.Errorf("a long name of a group: %v", e.Metadata.Labels)
	}
	if errs := api.Validate(e); len(errs) > 0 {
		t.Error(errs)
	}
	if e, _, _ = region("paris").endpoint(port(t, `{}`)); e.Metadata.Namespace != "openstack-region-paris" {
		t.Errorf("in a region its namespace is %s", e.Metadata.Namespace)
	}
}

// TestWhatAPortCannotBe: what has no endpoint, what is refused, and what has no effect.
func TestWhatAPortCannotBe(t *testing.T) {
	for _, c := range []struct{ name, change, problem, err string }{
		{"a router's", `{"device_owner": "network:router_interface"}`, "", ""},
		{"not bound", `{"binding:host_id": ""}`, "", ""},
		{"down", `{"admin_state_up": false}`, "admin_state_up is false", ""},
		{"no address", `{"fixed_ips": [{"ip_address": "10.65.0"}]}`, "", "fixed_ips"},
		{"no pair", `{"allowed_address_pairs": [{"ip_address": "10.65.0.0/40"}]}`, "", "allowed_address_pairs"},
		{"no name", `{"device_id": "-x"}`, "", "dash"},
		{"a slash", `{"device_id": "a/b"}`, "", "must not contain /"},
		{"no MAC address", `{"mac_address": "fa"}`, "", "spec.mac"},
	} {
		e, problems, err := region("").endpoint(port(t, c.change))
		if e != nil || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || strings.Join(problems, " ") != "" != (c.problem != "") {
			t.Errorf("%s: endpoint %v, problems %q, error %v", c.name, e != nil, problems, err)
		}
	}
	for _, c := range []struct{ change, problem string }{
		{`{"port_security_enabled": false}`, "port_security_enabled"},
		{`{"allowed_address_pairs": [{"ip_address": "10.65.0.9", "mac_address": "fa:16:3e:00:00:02"}]}`, "fa:16:3e:00:00:02"},
		{`{"allowed_address_pairs": [{"ip_address": "10.66.0.0/16"}]}`, "10.66.0.0/16 packets may be sent only if workloadSourceSpoofing of FelixConfiguration is Any"},
		{`{"floating_ips": [{"fixed_ip_address": "10.65.0.6", "floating_ip_address": "192.0.2.5"}]}`, "10.65.0.6"},
		{`{"floating_ips": [{"fixed_ip_address": "10.65.0.5", "floating_ip_address": "192.0.2"}]}`, "192.0.2"},
		{`{"floating_ips": [{"fixed_ip_address": "10.65.0.5", "floating_ip_address": "192.0.2.5"}, {"fixed_ip_address": "10.65.0.5", "floating_ip_address": "192.0.2.5"}]}`, "twice"},
	} {
		if e, problems, err := region("").endpoint(port(t, c.change)); e == nil || err != nil || len(problems) != 1 || !strings.Contains(problems[0], c.problem) {
			t.Errorf("%s: endpoint %v, problems %q, error %v", c.change, e != nil, problems, err)
		}
	}
}

// TestARuleOfASecurityGroup: each kind of rule that Neutron's API has; one that cannot be expressed allows nothing.
func TestARuleOfASecurityGroup(t *testing.T) {
	v4, v6 := 4, 6
	tcp, icmp, icmp6 := &api.Protocol{Name: "TCP"}, &api.Protocol{Name: "ICMP"}, &api.Protocol{Name: "ICMPv6"}
	eight, zero := 8, 0
	rule := func(r api.Rule, version *int) *api.Rule {
		r.Action, r.IPVersion = api.Allow, version
		return &r
	}
	for text, want := range map[string]*api.Rule{
		`"direction": "egress", "ethertype": "IPv4"`:                                                                   rule(api.Rule{}, &v4),
		`"direction": "ingress", "ethertype": "IPv6", "protocol": "any"`:                                               rule(api.Rule{}, &v6),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "0"`:                                                 rule(api.Rule{}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "g2"`:                                         rule(api.Rule{Source: api.EntityRule{Selector: "has(sg.projectcalico.org/openstack-g2)"}}, &v4),
		`"direction": "egress", "ethertype": "IPv4", "remote_ip_prefix": "192.0.2.9/24"`:                               rule(api.Rule{Destination: api.EntityRule{Nets: []string{"192.0.2.0/24"}}}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 80, "port_range_max": 80`:   rule(api.Rule{Protocol: tcp, Destination: api.EntityRule{Ports: []api.Port{{Min: 80, Max: 80}}}}, &v4),
		`"direction": "egress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 1, "port_range_max": 99`:     rule(api.Rule{Protocol: tcp, Destination: api.EntityRule{Ports: []api.Port{{Min: 1, Max: 99}}}}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": -1, "port_range_max": -1`:   rule(api.Rule{Protocol: tcp}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_min": 8, "port_range_max": 0`:    rule(api.Rule{Protocol: icmp, ICMP: &api.ICMPFields{Type: &eight, Code: &zero}}, &v4),
		`"direction": "ingress", "ethertype": "IPv6", "protocol": "icmp", "port_range_min": 8`:                         rule(api.Rule{Protocol: icmp6, ICMP: &api.ICMPFields{Type: &eight}}, &v6),
		`"direction": "ingress", "ethertype": "IPv6", "protocol": "ipv6-icmp"`:                                         rule(api.Rule{Protocol: icmp6}, &v6),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "vrrp"`:                                              rule(api.Rule{Protocol: &api.Protocol{Num: 112}}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": 50`:                                                  rule(api.Rule{Protocol: &api.Protocol{Num: 50}}, &v4),
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "6", "port_range_min": 22, "port_range_max": 22`:     rule(api.Rule{Protocol: &api.Protocol{Num: 6}, Destination: api.EntityRule{Ports: []api.Port{{Min: 22, Max: 22}}}}, &v4),
		`"direction": "ingress", "ethertype": "IPv5"`:                                                                  nil,
		`"direction": "up", "ethertype": "IPv4"`:                                                                       nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "quic"`:                                              nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "256"`:                                               nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "icmpv6"`:                                            nil,
		`"direction": "ingress", "ethertype": "IPv6", "protocol": "1"`:                                                 nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 9, "port_range_max": 8`:     nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 9`:                          nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "udp", "port_range_min": 1, "port_range_max": 70000`: nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "dccp", "port_range_min": 1, "port_range_max": 2`:    nil,
		`"direction": "ingress", "ethertype": "IPv4", "port_range_min": 1, "port_range_max": 2`:                        nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_max": 0`:                         nil,
		`"direction": "ingress", "ethertype": "IPv4", "protocol": "icmp", "port_range_min": 256`:                       nil,
		`"direction": "ingress", "ethertype": "IPv4", "remote_address_group_id": "a"`:                                  nil,
		`"direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "192.0.2"`:                                   nil,
		`"direction": "ingress", "ethertype": "IPv4", "remote_ip_prefix": "2001:db8::/32"`:                             nil,
		`"direction": "ingress", "ethertype": "IPv4", "remote_group_id": "g 2"`:                                        nil,
	} {
		var g SecurityGroup
		if err := json.Unmarshal([]byte(`{"id": "g1", "security_group_rules": [{"id": "r1", `+text+`}]}`), &g); err != nil {
			t.Fatal(err)
		}
		p, problems := region("").policy(&g)
		all := append(append([]api.Rule{}, p.Spec.Ingress...), p.Spec.Egress...)
		if want == nil {
			if len(all) != 0 || len(problems) != 1 || !strings.Contains(problems[0], "r1") {
				t.Errorf("%s: rules %v, problems %q", text, all, problems)
			}
			continue
		}
		if d := cmp.Diff([]api.Rule{*want}, all); d != "" || len(problems) > 0 {
			t.Errorf("%s: problems %q, (-want +got):\n%s", text, problems, d)
		}
		if in := strings.Contains(text, "ingress"); in != (len(p.Spec.Ingress) == 1) {
			t.Errorf("%s: it is of the other direction", text)
		}
		if p.Spec.Selector != "has(sg.projectcalico.org/openstack-g1)" || p.Metadata.Name != "ossg.default.g1" || len(p.Spec.Types) != 2 {
			t.Errorf("it is %s, of %s, types %v", p.Metadata.Name, p.Spec.Selector, p.Spec.Types)
		}
		if errs := api.Validate(p); len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
		}
	}
}

// TestASubnetIsWhatADHCPServerNeeds: the key and fields that upstream's DHCP agent reads.
func TestASubnetIsWhatADHCPServerNeeds(t *testing.T) {
	var s Subnet
	if err := json.Unmarshal([]byte(`{"id": "s4", "network_id": "n", "cidr": "10.65.0.7/24", "gateway_ip": null, "enable_dhcp": true, "dns_nameservers": ["192.0.2.53"], "ipv6_ra_mode": null}`), &s); err != nil {
		t.Fatal(err)
	}
	kv, err := region("").subnet(&s)
	if want := `{"network_id":"n","cidr":"10.65.0.0/24","host_routes":[],"gateway_ip":null,"dns_servers":["192.0.2.53"]}`; err != nil || kv.Key != "/calico/dhcp/v2/no-region/subnet/s4" || string(kv.Value) != want {
		t.Errorf("%s = %s, %v", kv.Key, kv.Value, err)
	}
	if kv, _ = region("paris").subnet(&s); kv.Key != "/calico/dhcp/v2/region-paris/subnet/s4" {
		t.Errorf("in a region its key is %s", kv.Key)
	}
	if s.EnableDHCP = false; true {
		if kv, err = region("").subnet(&s); err != nil || kv.Value != nil {
			t.Errorf("without DHCP it is %s, %v", kv.Value, err)
		}
	}
	for _, id := range []string{"", "a/b"} {
		if _, err := region("").subnet(&Subnet{ID: id, EnableDHCP: true, CIDR: "10.0.0.0/8"}); err == nil {
			t.Errorf("a subnet of ID %q is taken", id)
		}
	}
}
