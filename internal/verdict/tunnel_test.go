package verdict_test

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/verdict"
)

// TestWhatSettingsForbidWhateverPolicySays: tunnels from workloads, also of flows that are established, and packets of no connection.
func TestWhatSettingsForbidWhateverPolicySays(t *testing.T) {
	open := intent.PolicyID{Kind: "Profile", Name: "open"}
	any := []intent.Rule{{Action: intent.Allow}}
	base := intent.Batch{
		Policies:  []intent.Policy{{ID: open, Ingress: any, Egress: any}},
		Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "prod", Name: "web"}, Link: "cali1", Group: intent.GroupOf(intent.Stages{}, open)}},
	}
	out := verdict.Packet{InLink: "cali1", OutLink: "eth0", Src: netip.MustParseAddr("10.65.0.1"), Dst: netip.MustParseAddr("192.0.2.2")}
	in := verdict.Packet{InLink: "eth0", OutLink: "cali1", Src: out.Dst, Dst: out.Src}
	of := func(p verdict.Packet, proto uint8, port uint16, state verdict.ConnState) verdict.Packet {
		p.Proto, p.DstPort, p.State = proto, port, state
		return p
	}
	for _, tt := range []struct {
		name string
		host intent.HostSettings
		p    verdict.Packet
		want string // the reason of a denial; empty: allowed
	}{
		{"VXLAN", intent.HostSettings{}, of(out, 17, 4789, verdict.New), intent.ReasonTunnel},
		{"VXLAN of an established flow", intent.HostSettings{}, of(out, 17, 4789, verdict.Established), intent.ReasonTunnel},
		{"VXLAN that is allowed", intent.HostSettings{AllowVXLAN: true}, of(out, 17, 4789, verdict.New), ""},
		{"the port is UDP's", intent.HostSettings{}, of(out, 6, 4789, verdict.New), ""},
		{"VXLAN to another port", intent.HostSettings{VXLAN: intent.VXLANSettings{Port: 8472}}, of(out, 17, 4789, verdict.New), ""},
		{"VXLAN to the port of the settings", intent.HostSettings{VXLAN: intent.VXLANSettings{Port: 8472}}, of(out, 17, 8472, verdict.New), intent.ReasonTunnel},
		{"VXLAN to a workload", intent.HostSettings{}, of(in, 17, 4789, verdict.New), ""},
		{"IPIP", intent.HostSettings{AllowVXLAN: true}, of(out, 4, 0, verdict.Established), intent.ReasonTunnel},
		{"IPIP that is allowed", intent.HostSettings{AllowIPIP: true}, of(out, 4, 0, verdict.New), ""},
		{"invalid from a workload", intent.HostSettings{}, of(out, 6, 80, verdict.Invalid), intent.ReasonInvalid},
		{"invalid to a workload", intent.HostSettings{}, of(in, 6, 80, verdict.Invalid), intent.ReasonInvalid},
		{"invalid, and left to policy", intent.HostSettings{AllowInvalid: true}, of(out, 6, 80, verdict.Invalid), ""},
		{"invalid to a workload, and left to policy", intent.HostSettings{AllowInvalid: true}, of(in, 6, 80, verdict.Invalid), ""},
		{"an invalid tunnel", intent.HostSettings{AllowInvalid: true}, of(out, 4, 0, verdict.Invalid), intent.ReasonTunnel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s verdict.State
			s.Merge(base)
			s.Merge(intent.Batch{Host: &tt.host})
			if v := s.Judge(tt.p); v.Allowed != (tt.want == "") || tt.want != "" && v.Reason != tt.want {
				t.Errorf("allowed %v, %s; want %q", v.Allowed, v.Reason, tt.want)
			}
		})
	}
}

// TestTheServerOfMetadataNeedsNoPolicy if it is on the workload's host: the setting's address, port and protocol, and from a workload.
func TestTheServerOfMetadataNeedsNoPolicy(t *testing.T) {
	var s verdict.State
	s.Merge(intent.Batch{
		Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "prod", Name: "vm"}, Link: "cali1"}}, // without policy: it may send nothing
		Host:      &intent.HostSettings{Metadata: netip.MustParseAddrPort("192.0.2.1:8775")},
	})
	of := func(out, dst string, proto uint8, port uint16) verdict.Packet {
		return verdict.Packet{InLink: "cali1", OutLink: out, Src: netip.MustParseAddr("10.65.0.1"), Dst: netip.MustParseAddr(dst), Proto: proto, DstPort: port}
	}
	for _, tt := range []struct {
		name string
		p    verdict.Packet
		want bool
	}{
		{"the server", of("", "192.0.2.1", 6, 8775), true},
		{"another port", of("", "192.0.2.1", 6, 80), false},
		{"UDP", of("", "192.0.2.1", 17, 8775), false},
		{"another address of the host", of("", "192.0.2.9", 6, 8775), false},
		{"by way of the host", of("eth0", "192.0.2.1", 6, 8775), false},
	} {
		if v := s.Judge(tt.p); v.Allowed != tt.want || tt.want && v.Reason != intent.ReasonMetadata {
			t.Errorf("%s: allowed %v, %s; want %v", tt.name, v.Allowed, v.Reason, tt.want)
		}
	}
}

// TestDNSOfAHostOfOpenStackNeedsNoPolicy: UDP to port 53 of the host, of either family and any of its addresses, from a workload, if the setting says so.
func TestDNSOfAHostOfOpenStackNeedsNoPolicy(t *testing.T) {
	of := func(out, dst string, proto uint8, port uint16) verdict.Packet {
		return verdict.Packet{InLink: "cali1", OutLink: out, Src: netip.MustParseAddr("10.65.0.1"), Dst: netip.MustParseAddr(dst), Proto: proto, DstPort: port}
	}
	shut := of("", "192.0.2.1", 17, 53)
	shut.InLink = "cali2"
	for _, tt := range []struct {
		name string
		host intent.HostSettings
		p    verdict.Packet
		want bool
	}{
		{"a host of OpenStack", intent.HostSettings{DNS: true}, of("", "192.0.2.1", 17, 53), true},
		{"of IPv6", intent.HostSettings{DNS: true}, of("", "2001:db8::1", 17, 53), true},
		{"another host", intent.HostSettings{EndpointToHost: intent.ToHostAccept}, of("", "192.0.2.1", 17, 53), false},
		{"TCP", intent.HostSettings{DNS: true}, of("", "192.0.2.1", 6, 53), false},
		{"another port", intent.HostSettings{DNS: true}, of("", "192.0.2.1", 17, 5353), false},
		{"by way of the host", intent.HostSettings{DNS: true}, of("eth0", "203.0.113.1", 17, 53), false},
		{"of a closed workload", intent.HostSettings{DNS: true}, shut, false},
		{"the port of VXLAN", intent.HostSettings{DNS: true, VXLAN: intent.VXLANSettings{Port: 53}}, of("", "192.0.2.1", 17, 53), false},
	} {
		var s verdict.State
		s.Merge(intent.Batch{
			Endpoints: []intent.Endpoint{ // without policy: they may send nothing
				{ID: intent.EndpointID{Namespace: "prod", Name: "vm"}, Link: "cali1"},
				{ID: intent.EndpointID{Namespace: "prod", Name: "shut"}, Link: "cali2", Closed: "is wrong"},
			},
			Host: &tt.host,
		})
		if v := s.Judge(tt.p); v.Allowed != tt.want || tt.want && v.Reason != intent.ReasonDNS {
			t.Errorf("%s: allowed %v, %s; want %v", tt.name, v.Allowed, v.Reason, tt.want)
		}
	}
}
