package openstack

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
)

// TestRulesOfQualityOfServiceLimitAPort: in the units of endpoints. A burst is in thousands of bits, as Neutron's API reference has it, whatever the name of its field.
func TestRulesOfQualityOfServiceLimitAPort(t *testing.T) {
	for _, c := range []struct {
		rules   string
		want    *api.QoSControls
		problem string
	}{
		{`null`, nil, ""},
		{`[{"type": "bandwidth_limit", "direction": "egress", "max_kbps": 3000, "max_burst_kbps": 300}]`, &api.QoSControls{EgressBandwidth: 3_000_000, EgressBurst: 300_000}, ""},
		{
			`[{"type": "bandwidth_limit", "direction": "ingress", "max_kbps": 1}, {"type": "packet_rate_limit", "direction": "ingress", "max_kpps": 2, "max_burst_kpps": 3}, {"type": "packet_rate_limit", "direction": "egress", "max_kpps": 10}]`,
			&api.QoSControls{IngressBandwidth: 1000, IngressPacketRate: 2000, IngressPacketBurst: 3000, EgressPacketRate: 10_000},
			"",
		},
		{`[{"type": "bandwidth_limit", "direction": "egress", "max_kbps": 0, "max_burst_kbps": 300}]`, nil, ""},
		{`[{"type": "packet_rate_limit", "direction": "egress", "max_kpps": 11, "max_burst_kpps": 1}]`, nil, "egressPacketRate limits nothing"},
		{`[{"type": "bandwidth_limit", "direction": "egress", "max_kbps": 9223372036854775807}]`, nil, "egressBandwidth limits nothing"},
		{`[{"type": "bandwidth_limit", "direction": "egress", "max_kbps": -9223372036854775808}]`, nil, "egressBandwidth limits nothing"},
		{`[{"type": "bandwidth_limit", "direction": "egress", "max_kbps": 100, "max_burst_kbps": 2147483647}]`, &api.QoSControls{EgressBandwidth: 100_000}, "egressBurst limits nothing"},
		{`[{"type": "dscp_marking", "direction": "egress", "dscp_mark": 10}]`, nil, "dscp_marking"},
		{`[{"type": "bandwidth_limit", "direction": "up", "max_kbps": 100}]`, nil, `"up"`},
	} {
		w, problems, err := region("").endpoint(port(t, `{"qos_rules": `+c.rules+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, w.Spec.QoSControls); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.rules, d)
		}
		if has := slices.ContainsFunc(problems, func(p string) bool { return c.problem != "" && strings.Contains(p, c.problem) }); has != (c.problem != "") || (c.problem == "") != (len(problems) == 0) {
			t.Errorf("%s: problems %q, want %q", c.rules, problems, c.problem)
		}
		if errs := api.Validate(w); len(errs) > 0 {
			t.Errorf("%s: %v", c.rules, errs)
		}
	}
}
