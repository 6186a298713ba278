package metrics

import "github.com/prometheus/client_golang/prometheus"

// Traffic is what rules did to packets, as the kernel counts it, and what was reported of it.
type Traffic struct {
	Rules  []RuleCount
	Staged []RuleCount // packets for which staged policies would have decided otherwise
	// Reports that came, by "allow", "deny" and "log", those under unknown names, and the times when some were lost.
	Allowed, Denied, Logged, Unknown, Lost float64

	Objects Objects
}

// RuleCount is the packets that one rule decided about.
type RuleCount struct {
	Policy, Direction, Rule, Action string
	Packets, Bytes                  float64
}

// Traffic registers metrics that are read on each scrape.
func (m *Metrics) Traffic(read func() Traffic) {
	t := &traffic{read: read}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		m.note("counter", name, help, labels)
		return prometheus.NewDesc(name, help, labels, nil)
	}
	t.packets = desc("twill_policy_packets_total", "Packets that a rule of a policy or profile allowed, denied or logged on this node, since the rule is in the kernel as it is; of a flow only the first one is asked about. Rules that nothing has matched are left out.", "policy", "direction", "rule", "action")
	t.bytes = desc("twill_policy_bytes_total", "Bytes of these.", "policy", "direction", "rule", "action")
	t.staged = desc("twill_staged_policy_packets_total", "Packets for which staged policies would have decided otherwise, by what they would have done.", "policy", "direction", "rule", "action")
	t.reports = desc("twill_flow_reports_total", "Reports of packets that rules dropped or logged or, if settings ask for it, allowed.", "action")
	t.lost = desc("twill_flow_reports_lost_total", "Times at which the kernel threw reports away, because they came faster than they were read.")
	t.objects = newObjects(func(name, help string, labels ...string) *prometheus.Desc {
		m.note("gauge", name, help, labels)
		return prometheus.NewDesc(name, help, labels, nil)
	})
	m.reg.MustRegister(t)
}

type traffic struct {
	read                                  func() Traffic
	packets, bytes, staged, reports, lost *prometheus.Desc
	objects                               objects
}

// Describe is prometheus.Collector's.
func (t *traffic) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{t.packets, t.bytes, t.staged, t.reports, t.lost} {
		ch <- d
	}
	t.objects.describe(ch)
}

// Collect is prometheus.Collector's.
func (t *traffic) Collect(ch chan<- prometheus.Metric) {
	now := t.read()
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, r := range now.Rules {
		put(t.packets, r.Packets, r.Policy, r.Direction, r.Rule, r.Action)
		put(t.bytes, r.Bytes, r.Policy, r.Direction, r.Rule, r.Action)
	}
	for _, r := range now.Staged {
		put(t.staged, r.Packets, r.Policy, r.Direction, r.Rule, r.Action)
	}
	put(t.reports, now.Allowed, "allow")
	put(t.reports, now.Denied, "deny")
	put(t.reports, now.Logged, "log")
	put(t.reports, now.Unknown, "unknown")
	put(t.lost, now.Lost)
	t.objects.collect(now.Objects, ch)
}
