package metrics

import "github.com/prometheus/client_golang/prometheus"

// Relay is the metrics of `twill relay`.
type Relay struct {
	*Metrics
	streams, clients                        prometheus.Gauge
	accepted, moved                         prometheus.Counter
	keys                                    *prometheus.GaugeVec
	updates                                 *prometheus.CounterVec
	made, madeBytes, sent, sentBytes, ended *prometheus.CounterVec
}

// NewRelay registers them.
func NewRelay(reg prometheus.Registerer) *Relay {
	r := &Relay{Metrics: &Metrics{reg: reg}}
	r.streams = r.gauge("twill_relay_streams", "Streams to clients: an agent has two, of resources and of blocks.").WithLabelValues()
	r.clients = r.gauge("typha_connections_active", "Clients of the relay, each a program of a host with one connection.").WithLabelValues()
	r.accepted = r.counter("typha_connections_accepted", "Clients that were served, ever.").WithLabelValues()
	r.moved = r.counter("typha_connections_dropped", "Clients that were sent to another relay, since there were more than this one's share.").WithLabelValues()
	r.updates = r.counter("typha_updates_total", "Updates that came from the datastore.", "prefix")
	r.keys = r.gauge("typha_cache_size", "Keys that the relay has, by the prefix that it follows.", "prefix")
	r.made = r.counter("twill_relay_made_total", "Snapshots and deltas that were encoded and compressed, each once for all clients; merged: several changes in one, for a client that is slow.", "kind")
	r.madeBytes = r.counter("twill_relay_made_bytes_total", "How large they are, compressed.", "kind")
	r.sent = r.counter("twill_relay_sent_total", "Parts of snapshots, and of deltas, that were sent to clients.", "kind")
	r.sentBytes = r.counter("twill_relay_sent_bytes_total", "How large these are, compressed.", "kind")
	r.ended = r.counter("twill_relay_streams_ended_total", "Streams that ended: done (a snapshot was asked for, and sent), too far behind (what the client lacks is forgotten, or of another relay: it asks for a snapshot), no datastore (not read yet, or away), drained, sent elsewhere (more clients than the share, or than the most that it takes), or client went.", "reason")
	return r
}

// Streams says that there are more streams, or fewer.
func (r *Relay) Streams(by int) { r.streams.Add(float64(by)) }

// Clients says that there are more clients, or fewer; or that one was sent to another relay.
func (r *Relay) Clients(by int, moved bool) {
	r.clients.Add(float64(by))
	if by > 0 {
		r.accepted.Add(float64(by))
	}
	if moved {
		r.moved.Inc()
	}
}

// Read says how many updates of a prefix the datastore brought, and how many keys there are now.
func (r *Relay) Read(prefix string, n, keys int) {
	r.updates.WithLabelValues(prefix).Add(float64(n))
	r.keys.WithLabelValues(prefix).Set(float64(keys))
}

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
