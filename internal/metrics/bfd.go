package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/internal/bgp/bfd"
)

// BFD is the metrics of the BFD daemon.
type BFD struct {
	*Metrics
	late prometheus.Observer
}

// NewBFD registers what is counted as it happens.
func NewBFD(reg prometheus.Registerer) *BFD {
	b := &BFD{Metrics: &Metrics{reg: reg}}
	b.late = b.histogram("twill_bfd_late_seconds", "How late BFD packets were sent: how long this process had to wait for a processor.").WithLabelValues()
	return b
}

// Late is how late a packet was sent.
func (b *BFD) Late(d time.Duration) { b.late.Observe(d.Seconds()) }

// Follow registers metrics that are read on each scrape.
func (b *BFD) Follow(read func() ([]bfd.Status, bfd.Counts)) {
	c := &bfdCollector{read: read}
	desc := func(kind, name, help string, labels ...string) *prometheus.Desc {
		b.note(kind, name, help, labels)
		d := prometheus.NewDesc(name, help, labels, nil)
		c.all = append(c.all, d)
		return d
	}
	c.up = desc("gauge", "twill_bfd_session_up", "1 while BFD with the peer is up; no series for peers with which there is no BFD.", "peer")
	c.losses = desc("counter", "twill_bfd_losses_total", "Times at which the path to the peer was found dead.", "peer")
	c.packets = desc("counter", "twill_bfd_packets_total", "BFD packets: sent, unsent (the kernel refused), received, strange (of nobody who is a peer), invalid, far (from farther away than one hop).", "what")
	b.reg.MustRegister(c)
}

type bfdCollector struct {
	read                func() ([]bfd.Status, bfd.Counts)
	up, losses, packets *prometheus.Desc
	all                 []*prometheus.Desc
}

// Describe is prometheus.Collector's.
func (c *bfdCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.all {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (c *bfdCollector) Collect(ch chan<- prometheus.Metric) {
	statuses, n := c.read()
	for _, s := range statuses {
		if s.State == bfd.Off {
			continue
		}
		peer := s.Peer.String()
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, number(s.State == bfd.Up.String()), peer)
		ch <- prometheus.MustNewConstMetric(c.losses, prometheus.CounterValue, float64(s.Losses), peer)
	}
	for what, v := range map[string]uint64{"sent": n.Sent, "unsent": n.Unsent, "received": n.Received, "strange": n.NoSession, "invalid": n.Invalid, "far": n.BadTTL} {
		ch <- prometheus.MustNewConstMetric(c.packets, prometheus.CounterValue, float64(v), what)
	}
}
