package verdict_test

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/verdict"
)

// TestWhatIsForwardedToAServiceThatIsNotThereIsDropped, after policy, whatever the state of its connection; what the host sends or receives is not.
func TestWhatIsForwardedToAServiceThatIsNotThereIsDropped(t *testing.T) {
	open, shut := intent.PolicyID{Kind: "Profile", Name: "open"}, intent.PolicyID{Kind: "Profile", Name: "shut"}
	any := []intent.Rule{{Action: intent.Allow}}
	base := intent.Batch{
		Policies: []intent.Policy{{ID: open, Ingress: any, Egress: any}, {ID: shut}},
		Endpoints: []intent.Endpoint{
			{ID: intent.EndpointID{Namespace: "prod", Name: "web"}, Link: "cali1", Group: intent.GroupOf(intent.Stages{}, open)},
			{ID: intent.EndpointID{Namespace: "prod", Name: "shut"}, Link: "cali2", Group: intent.GroupOf(intent.Stages{}, shut)},
		},
	}
	nets := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	all := intent.HostSettings{Services: intent.ServicePrefixes{
		Cluster: nets("10.96.0.0/12", "fd96::/112"), External: nets("0.0.0.0/0", "198.51.100.9/32"), Balancer: nets("203.0.113.0/24", "::/0"),
	}}
	rejects, passes := all, all
	rejects.ServiceLoops, passes.ServiceLoops = intent.LoopsReject, intent.LoopsPass
	for _, tt := range []struct {
		name, in, out, dst string
		state              verdict.ConnState
		host               intent.HostSettings
		want               string // the reason of a denial; empty: allowed
		rejected           bool
	}{
		{"from a workload, of services in the cluster", "cali1", "eth0", "10.96.0.9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"of IPv6", "cali1", "eth0", "fd96::9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"external addresses", "cali1", "eth0", "198.51.100.9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"of load balancers", "cali1", "eth0", "203.0.113.9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"through the host", "eth0", "eth1", "10.96.0.9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"to a workload that has such an address", "eth0", "cali1", "10.96.0.9", verdict.New, all, intent.ReasonServiceLoop, false},
		{"of an established flow", "cali1", "eth0", "10.96.0.9", verdict.Established, all, intent.ReasonServiceLoop, false},
		{"policy is asked first", "cali2", "eth0", "10.96.0.9", verdict.New, all, intent.ReasonNoProfileMatch, false},
		{"an address of no services", "cali1", "eth0", "192.0.2.9", verdict.New, all, "", false},
		{"the prefix of all addresses is none of services", "cali1", "eth0", "2001:db8::9", verdict.New, all, "", false},
		{"to the host itself", "eth0", "", "10.96.0.9", verdict.New, all, "", false},
		{"from the host itself", "", "eth0", "10.96.0.9", verdict.New, all, "", false},
		{"the sender is to know", "cali1", "eth0", "10.96.0.9", verdict.New, rejects, intent.ReasonServiceLoop, true},
		{"nobody wants it", "cali1", "eth0", "10.96.0.9", verdict.New, passes, "", false},
		{"no service is advertised", "cali1", "eth0", "10.96.0.9", verdict.New, intent.HostSettings{}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s verdict.State
			s.Merge(base)
			s.Merge(intent.Batch{Host: &tt.host})
			v := s.Judge(verdict.Packet{InLink: tt.in, OutLink: tt.out, Src: netip.MustParseAddr("192.0.2.7"), Dst: netip.MustParseAddr(tt.dst), Proto: 17, DstPort: 53, State: tt.state})
			if v.Allowed != (tt.want == "") || tt.want != "" && v.Reason != tt.want || v.Rejected != tt.rejected {
				t.Errorf("allowed %v, %s, rejected %v; want %q, rejected %v", v.Allowed, v.Reason, v.Rejected, tt.want, tt.rejected)
			}
		})
	}
}
