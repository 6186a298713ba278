package openstack

import (
	"fmt"
	"math"

	"github.com/twillnet/twill/api"
)

// limitsOf is what becomes of a port's rules of quality of service; nil: nothing is limited. What is outside of what can be limited is a problem, and
// limits nothing.
func limitsOf(rules []QoSRule) (q *api.QoSControls, problems []string) {
	var out api.QoSControls
	for _, r := range rules {
		in := r.Direction == "ingress"
		if !in && r.Direction != "egress" {
			problems = append(problems, fmt.Sprintf("qos: a rule has no effect: its direction is %q, neither ingress nor egress", r.Direction))
			continue
		}
		rate, burst, limit, peak := &out.EgressBandwidth, &out.EgressBurst, r.Kbps, r.BurstKb
		switch {
		case r.Type == "bandwidth_limit" && in:
			rate, burst = &out.IngressBandwidth, &out.IngressBurst
		case r.Type == "bandwidth_limit":
		case r.Type == "packet_rate_limit" && in:
			rate, burst, limit, peak = &out.IngressPacketRate, &out.IngressPacketBurst, r.Kpps, r.BurstK
		case r.Type == "packet_rate_limit":
			rate, burst, limit, peak = &out.EgressPacketRate, &out.EgressPacketBurst, r.Kpps, r.BurstK
		default:
			problems = append(problems, fmt.Sprintf("qos: a rule of type %q has no effect", r.Type))
			continue
		}
		if *rate = thousands(limit); *rate != 0 {
			*burst = thousands(peak)
		}
	}
	for _, l := range out.Limits() {
		if reason := l.Bad(); reason != "" {
			problems = append(problems, fmt.Sprintf("qos: %s limits nothing: it %s", l.Field, reason))
			*l.Value = 0
		}
	}
	if out == (api.QoSControls{}) {
		return nil, problems
	}
	return &out, problems
}

func thousands(n int64) int64 { return max(min(n, math.MaxInt64/1000), math.MinInt64/1000) * 1000 }
