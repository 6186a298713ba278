package metrics

import "github.com/prometheus/client_golang/prometheus"

// Relay is the metrics of `twill relay`.
type Relay struct {
	*Metrics
	streams                                 prometheus.Gauge
	made, madeBytes, sent, sentBytes, ended *prometheus.CounterVec
}

// NewRelay registers them.
func NewRelay(reg prometheus.Registerer) *Relay {
	r := &Relay{Metrics: &Metrics{reg: reg}}
	r.streams = r.gauge("twill_relay_streams", "Streams to clients: an agent has two, of resources and of blocks.").WithLabelValues()
	r.made = r.counter("twill_relay_made_total", "Snapshots and deltas that were encoded and compressed, each once for all clients.", "kind")
	r.madeBytes = r.counter("twill_relay_made_bytes_total", "How large they are, compressed.", "kind")
	r.sent = r.counter("twill_relay_sent_total", "Parts of snapshots, and of deltas, that were sent to clients.", "kind")
	r.sentBytes = r.counter("twill_relay_sent_bytes_total", "How large these are, compressed.", "kind")
	r.ended = r.counter("twill_relay_streams_ended_total", "Streams that ended: done (a snapshot was asked for, and sent), too far behind (what the client lacks is forgotten, or of another relay: it asks for a snapshot), no datastore (not read yet, or away), drained, or client went.", "reason")
	return r
}

// Clients says that there are more streams, or fewer.
func (r *Relay) Clients(by int) { r.streams.Add(float64(by)) }

// Made counts a snapshot or a delta that was encoded.
func (r *Relay) Made(kind string, bytes int) {
	r.made.WithLabelValues(kind).Inc()
	r.madeBytes.WithLabelValues(kind).Add(float64(bytes))
}

// Sent counts a part of one that a client was sent.
func (r *Relay) Sent(kind string, bytes int) {
	r.sent.WithLabelValues(kind).Inc()
	r.sentBytes.WithLabelValues(kind).Add(float64(bytes))
}

// Ended counts a stream that ended.
func (r *Relay) Ended(reason string) { r.ended.WithLabelValues(reason).Inc() }
