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

	IngressBandwidth Later `json:"ingressBandwidth,omitempty"`
	EgressBandwidth  Later `json:"egressBandwidth,omitempty"`
	IngressBurst     Later `json:"ingressBurst,omitempty"`
	EgressBurst      Later `json:"egressBurst,omitempty"`
	IngressPeakrate  Later `json:"ingressPeakrate,omitempty"`
	EgressPeakrate   Later `json:"egressPeakrate,omitempty"`
	IngressMinburst  Later `json:"ingressMinburst,omitempty"`
	EgressMinburst   Later `json:"egressMinburst,omitempty"`
	DSCP             Later `json:"dscp,omitempty"`
}

// DefaultPacketBurst is the burst of a packet rate that has none, as upstream's.
const DefaultPacketBurst = 5

// maxPacketRate is upstream's bound of rates and bursts of packets: XT_LIMIT_SCALE of xt_limit.h.
const maxPacketRate = 10_000

// Limit is one number of QoSControls.
type Limit struct {
	Field string // its name in JSON
	Value *int64
	max   int64
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
	}
}

// Bad says what is wrong with a limit; empty: nothing.
func (l Limit) Bad() string {
	switch {
	case *l.Value == 0:
		return ""
	case *l.Value < 0 || *l.Value > l.max:
		return fmt.Sprintf("is %d: want 1–%d, or 0 for no limit", *l.Value, l.max)
	case l.needs != nil && *l.needs == 0:
		return fmt.Sprintf("is %d, and there is no %s", *l.Value, l.what)
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
}
