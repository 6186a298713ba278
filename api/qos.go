package api

import (
	"fmt"
	"math"
)

// QoSControls limit what a workload receives (ingress) and sends (egress). Zero and what is missing limit nothing.
type QoSControls struct {
	IngressPacketRate     int64 `json:"ingressPacketRate,omitempty"` // packets a second, 1–10000
	EgressPacketRate      int64 `json:"egressPacketRate,omitempty"`
	IngressPacketBurst    int64 `json:"ingressPacketBurst,omitempty"` // packets that may exceed the rate at once, 1–10000; default [DefaultPacketBurst]
	EgressPacketBurst     int64 `json:"egressPacketBurst,omitempty"`
	IngressMaxConnections int64 `json:"ingressMaxConnections,omitempty"` // of TCP, at one time, 1–4294967295
	EgressMaxConnections  int64 `json:"egressMaxConnections,omitempty"`

	IngressBandwidth int64 `json:"ingressBandwidth,omitempty"` // bits a second, 1000–10^15
	EgressBandwidth  int64 `json:"egressBandwidth,omitempty"`
	IngressBurst     int64 `json:"ingressBurst,omitempty"` // bits, 1000–34359738360
	EgressBurst      int64 `json:"egressBurst,omitempty"`
	IngressPeakrate  int64 `json:"ingressPeakrate,omitempty"` // bits a second, more than the bandwidth, up to 1.01·10^15
	EgressPeakrate   int64 `json:"egressPeakrate,omitempty"`
	IngressMinburst  int64 `json:"ingressMinburst,omitempty"` // bytes, 1000–10^8
	EgressMinburst   int64 `json:"egressMinburst,omitempty"`
	DSCP             DSCP  `json:"dscp,omitempty"` // of what leaves the cluster, by a name or a number
}

// DefaultPacketBurst is the burst of a packet rate that has none, as upstream's.
const DefaultPacketBurst = 5

// maxPacketRate is upstream's bound of rates and bursts of packets: XT_LIMIT_SCALE of xt_limit.h.
const maxPacketRate = 10_000

// Upstream's bounds of bandwidth. A burst is counted in 32 bits of bytes.
const (
	minBandwidth = 1000
	maxBandwidth = 1_000_000_000_000_000
	maxPeakrate  = maxBandwidth / 100 * 101
	maxBurst     = math.MaxUint32 * 8
	maxMinburst  = 100_000_000
)

// Limit is one number of QoSControls.
type Limit struct {
	Field string // its name in JSON
	Value *int64
	min   int64 // zero: 1
	max   int64
	above *int64 // it must be more than that; nil: than nothing
	needs *int64 // without which it means nothing; nil: nothing
	what  string // that is
}

// Limits are the numbers of q, each after what it needs.
func (q *QoSControls) Limits() []Limit {
	return []Limit{
		{Field: "ingressPacketRate", Value: &q.IngressPacketRate, max: maxPacketRate},
		{Field: "egressPacketRate", Value: &q.EgressPacketRate, max: maxPacketRate},
		{Field: "ingressPacketBurst", Value: &q.IngressPacketBurst, max: maxPacketRate, needs: &q.IngressPacketRate, what: "ingressPacketRate"},
		{Field: "egressPacketBurst", Value: &q.EgressPacketBurst, max: maxPacketRate, needs: &q.EgressPacketRate, what: "egressPacketRate"},
		{Field: "ingressMaxConnections", Value: &q.IngressMaxConnections, max: math.MaxUint32},
		{Field: "egressMaxConnections", Value: &q.EgressMaxConnections, max: math.MaxUint32},
		{Field: "ingressBandwidth", Value: &q.IngressBandwidth, min: minBandwidth, max: maxBandwidth},
		{Field: "egressBandwidth", Value: &q.EgressBandwidth, min: minBandwidth, max: maxBandwidth},
		{Field: "ingressBurst", Value: &q.IngressBurst, min: minBandwidth, max: maxBurst, needs: &q.IngressBandwidth, what: "ingressBandwidth"},
		{Field: "egressBurst", Value: &q.EgressBurst, min: minBandwidth, max: maxBurst, needs: &q.EgressBandwidth, what: "egressBandwidth"},
		{Field: "ingressPeakrate", Value: &q.IngressPeakrate, min: minBandwidth, max: maxPeakrate, needs: &q.IngressBandwidth, what: "ingressBandwidth", above: &q.IngressBandwidth},
		{Field: "egressPeakrate", Value: &q.EgressPeakrate, min: minBandwidth, max: maxPeakrate, needs: &q.EgressBandwidth, what: "egressBandwidth", above: &q.EgressBandwidth},
		{Field: "ingressMinburst", Value: &q.IngressMinburst, min: minBandwidth, max: maxMinburst, needs: &q.IngressPeakrate, what: "ingressPeakrate"},
		{Field: "egressMinburst", Value: &q.EgressMinburst, min: minBandwidth, max: maxMinburst, needs: &q.EgressPeakrate, what: "egressPeakrate"},
	}
}

// Bad says what is wrong with a limit; empty: nothing.
func (l Limit) Bad() string {
	switch {
	case *l.Value == 0:
		return ""
	case *l.Value < max(l.min, 1) || *l.Value > l.max:
		return fmt.Sprintf("is %d: want %d–%d, or 0 for no limit", *l.Value, max(l.min, 1), l.max)
	case l.needs != nil && *l.needs == 0:
		return fmt.Sprintf("is %d, and there is no %s", *l.Value, l.what)
	case l.above != nil && *l.Value <= *l.above:
		return fmt.Sprintf("is %d: want more than %s, which is %d", *l.Value, l.what, *l.above)
	}
	return ""
}

const qosPath = "spec.qosControls."

func (v *validator) limits(q *QoSControls) {
	if q == nil {
		return
	}
	for _, l := range q.Limits() {
		v.check(qosPath+l.Field, l.Bad())
	}
	v.check(qosPath+"dscp", q.DSCP.Bad())
}

// limits keeps those that are right. One that is not limits nothing: to close the workload would stop it for a number.
func (d *decoder) limits(q *QoSControls) {
	if q == nil {
		return
	}
	for _, l := range q.Limits() {
		if reason := l.Bad(); reason != "" {
			d.problem(qosPath+l.Field, reason+"; ignored")
			*l.Value = 0
		}
	}
	d.dscp(qosPath+"dscp", &q.DSCP)
}

// dscp forgets a code point that is none.
func (d *decoder) dscp(path string, is *DSCP) {
	if reason := is.Bad(); reason != "" {
		d.problem(path, reason+"; ignored")
		*is = ""
	}
}
