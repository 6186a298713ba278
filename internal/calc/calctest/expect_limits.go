package calctest

import (
	"fmt"

	"github.com/twillnet/twill/api"
)

// limitLines are what a workload limits. A rate without a burst has upstream's, of 5 packets.
func limitLines(l expectedLocal) (out []string) {
	if l.limits == nil {
		return nil
	}
	line := func(way string, rate, burst, connections int64) {
		switch {
		case rate == 0 && connections == 0:
			return
		case rate == 0:
			burst = 0
		case burst == 0:
			burst = 5
		}
		out = append(out, fmt.Sprintf("%s %s packets %d burst %d connections %d", l.id, way, rate, burst, connections))
	}
	line("receives", l.limits.IngressPacketRate, l.limits.IngressPacketBurst, l.limits.IngressMaxConnections)
	line("sends", l.limits.EgressPacketRate, l.limits.EgressPacketBurst, l.limits.EgressMaxConnections)
	bits := func(way string, rate, burst, peak, atOnce int64) {
		if rate > 0 {
			out = append(out, fmt.Sprintf("%s %s bits %d burst %d peak %d at once %d", l.id, way, rate, burst, peak, atOnce))
		}
	}
	bits("Ingress", l.limits.IngressBandwidth, l.limits.IngressBurst, l.limits.IngressPeakrate, l.limits.IngressMinburst)
	bits("Egress", l.limits.EgressBandwidth, l.limits.EgressBurst, l.limits.EgressPeakrate, l.limits.EgressMinburst)
	if d := l.codePoint(); d != "" {
		out = append(out, fmt.Sprintf("%s DSCP %s", l.id, d))
	}
	return out
}

// codePoint is the DSCP of a workload or a host endpoint as a number; empty: none. These are the texts that random worlds have.
func (l expectedLocal) codePoint() string {
	if l.limits == nil || l.closed && l.host {
		return ""
	}
	return map[api.DSCP]string{"EF": "46", "af11": "10", "0": "0", "63": "63"}[l.limits.DSCP]
}
