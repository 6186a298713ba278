package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// WireGuard is a device of WireGuard.
type WireGuard struct {
	Node, Interface, Key string
	Port                 int
	Peers                []WireGuardPeer
}

// WireGuardPeer is what a device says of another host.
type WireGuardPeer struct {
	Key, Endpoint  string
	Received, Sent float64 // bytes
	Handshake      float64 // of the last, in seconds since 1970; zero: none
}

// WireGuard registers metrics that are read on each scrape.
func (m *Metrics) WireGuard(read func() []WireGuard) {
	w := &wireguard{read: read}
	desc := func(kind, name, help string, labels ...string) *prometheus.Desc {
		m.note(kind, name, help, labels)
		return prometheus.NewDesc(name, help, labels, nil)
	}
	w.meta = desc("gauge", "wireguard_meta", "1 for each WireGuard device of this node, of which the labels say what it is. The metrics of WireGuard are there unless prometheusWireGuardMetricsEnabled is false.", "hostname", "iface", "listen_port", "public_key")
	w.received = desc("counter", "wireguard_bytes_rcvd", "Bytes that came from another host, since the device has its key.", "hostname", "peer_key", "peer_endpoint")
	w.sent = desc("counter", "wireguard_bytes_sent", "Bytes that were sent to it.", "hostname", "peer_key", "peer_endpoint")
	w.handshake = desc("gauge", "wireguard_latest_handshake_seconds", "When the last handshake with it was, in seconds since 1970; 0: there was none.", "hostname", "peer_key", "peer_endpoint")
	m.reg.MustRegister(w)
}

type wireguard struct {
	read                            func() []WireGuard
	meta, received, sent, handshake *prometheus.Desc
}

// Describe is prometheus.Collector's.
func (w *wireguard) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.meta, w.received, w.sent, w.handshake} {
		ch <- d
	}
}

// Collect is prometheus.Collector's. A peer has a key of its own, so that no two series are one.
func (w *wireguard) Collect(ch chan<- prometheus.Metric) {
	for _, d := range w.read() {
		ch <- prometheus.MustNewConstMetric(w.meta, prometheus.GaugeValue, 1, d.Node, d.Interface, strconv.Itoa(d.Port), d.Key)
		for _, p := range d.Peers {
			ch <- prometheus.MustNewConstMetric(w.received, prometheus.CounterValue, p.Received, d.Node, p.Key, p.Endpoint)
			ch <- prometheus.MustNewConstMetric(w.sent, prometheus.CounterValue, p.Sent, d.Node, p.Key, p.Endpoint)
			ch <- prometheus.MustNewConstMetric(w.handshake, prometheus.GaugeValue, p.Handshake, d.Node, p.Key, p.Endpoint)
		}
	}
}
