// Package metrics counts and times what an agent does, for Prometheus.
//
// In: a registry, and calls from the agent. Out: the metrics of docs/metrics.md,
// which a test holds to what is here. Where upstream's agent has a metric of
// the same meaning, it has the same name.
package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is one of them, for the reference.
type Metric struct {
	Name, Kind, Help string
	Labels           []string
}

// Metrics of one agent.
type Metrics struct {
	reg  prometheus.Registerer
	list []Metric

	change, calc            prometheus.Observer
	apply, resync           *prometheus.HistogramVec
	failures                *prometheus.CounterVec
	repairs                 *prometheus.CounterVec
	differences             *prometheus.GaugeVec
	endpoints               *prometheus.GaugeVec
	policies, routes        prometheus.Gauge
	byChains                prometheus.Gauge
	hosts, workloads        prometheus.Gauge
	hostEndpoints, profiles prometheus.Gauge
	allPolicies             prometheus.Gauge
	source, frozen, inForce prometheus.Gauge
	problems                prometheus.Gauge
}

// from 100 µs to about 26 s, each twice the one before.
var latencies = prometheus.ExponentialBuckets(100e-6, 2, 19)

// New registers all metrics.
func New(reg prometheus.Registerer) *Metrics {
	m := &Metrics{reg: reg}
	m.change = m.histogram("twill_change_to_kernel_seconds", "From the moment at which a change was received from the datastore until it is in force in the kernel.").WithLabelValues()
	m.calc = m.histogram("twill_calc_seconds", "Working out what one batch of changes means for this node.").WithLabelValues()
	m.apply = m.histogram("twill_dataplane_apply_seconds", "One turn of a driver: what is pending, into the kernel.", "driver")
	m.resync = m.histogram("twill_dataplane_read_back_seconds", "Reading back what the kernel has, by driver.", "driver")
	m.failures = m.counter("felix_int_dataplane_failures", "Turns of a driver that failed, and are tried again.", "driver")
	m.repairs = m.counter("twill_dataplane_repairs_total", "Things of ours that somebody else had changed, put right; by how that was found: event (a notification of the kernel), read-back, or take-over (what another agent left where ours belongs).", "driver", "cause")
	m.differences = m.gauge("twill_verify_differences", "How many things differed from what should be when the driver last read the kernel back; they have been put right since.", "driver")
	m.endpoints = m.gauge("felix_active_local_endpoints", "Endpoints of this node, by state: up, down or error.", "state")
	m.policies = m.gauge("felix_active_local_policies", "Policies and profiles that endpoints of this node use.").WithLabelValues()
	m.routes = m.gauge("twill_local_routes", "Routes of this node's endpoints and blocks.").WithLabelValues()
	m.hosts = m.gauge("felix_cluster_num_hosts", "Nodes of the cluster.").WithLabelValues()
	m.workloads = m.gauge("felix_cluster_num_workload_endpoints", "Workload endpoints of the cluster.").WithLabelValues()
	m.hostEndpoints = m.gauge("felix_cluster_num_host_endpoints", "Host endpoints of the cluster.").WithLabelValues()
	m.allPolicies = m.gauge("felix_cluster_num_policies", "Policies of the cluster, with those that are staged.").WithLabelValues()
	m.profiles = m.gauge("felix_cluster_num_profiles", "Profiles of the cluster.").WithLabelValues()
	m.byChains = m.gauge("twill_groups_by_chains", "Groups of endpoints with the same policies that are asked rule by rule although policyRendering is Compiled: they exceed a limit of it.").WithLabelValues()
	m.source = m.gauge("felix_resync_state", "The datastore: 1 does not answer, 2 is being listed, 3 is in sync.").WithLabelValues()
	m.frozen = m.gauge("twill_datastore_frozen", "1 while datastoreReady is false, and nothing is acted upon.").WithLabelValues()
	m.inForce = m.gauge("twill_dataplane_settled", "1 if all that is known is in force; 0 while something is pending or failed.").WithLabelValues()
	m.problems = m.gauge("twill_wrong_resources", "Things that are wrong in resources and settings; `twill status` names them.").WithLabelValues()
	return m
}

func (m *Metrics) note(kind, name, help string, labels []string) {
	m.list = append(m.list, Metric{Name: name, Kind: kind, Help: help, Labels: labels})
}

func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	m.note("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies}, labels)
	m.reg.MustRegister(v)
	return v
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.note("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.reg.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.note("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.reg.MustRegister(v)
	return v
}

// Change came into force.
func (m *Metrics) Change(took time.Duration) { m.change.Observe(took.Seconds()) }

// Calculated a batch.
func (m *Metrics) Calculated(took time.Duration) { m.calc.Observe(took.Seconds()) }

// Applied is a driver's turn.
func (m *Metrics) Applied(driver string, took time.Duration, err error) {
	m.apply.WithLabelValues(driver).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(driver).Inc()
	}
}

// Resynced is a driver's reading back.
func (m *Metrics) Resynced(driver string, took time.Duration, err error) {
	m.resync.WithLabelValues(driver).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(driver).Inc()
	}
}

// Repaired counts what was put right.
func (m *Metrics) Repaired(driver, cause string, n int) {
	m.repairs.WithLabelValues(driver, cause).Add(float64(n))
}

// Differed is what the last reading back found.
func (m *Metrics) Differed(driver string, n int) {
	m.differences.WithLabelValues(driver).Set(float64(n))
}

// Node is how much there is of everything.
type Node struct {
	Endpoints        map[string]int // by state
	Policies, Routes int
	ByChains         int // groups of endpoints whose policy is asked rule by rule, although the settings want look-ups
	Cluster          Cluster
}

// Has says how much there is.
func (m *Metrics) Has(n Node) {
	for state, count := range n.Endpoints {
		m.endpoints.WithLabelValues(state).Set(float64(count))
	}
	m.policies.Set(float64(n.Policies))
	m.routes.Set(float64(n.Routes))
	m.byChains.Set(float64(n.ByChains))
	for g, count := range map[prometheus.Gauge]int{
		m.hosts: n.Cluster.Hosts, m.workloads: n.Cluster.WorkloadEndpoints, m.hostEndpoints: n.Cluster.HostEndpoints,
		m.allPolicies: n.Cluster.Policies, m.profiles: n.Cluster.Profiles,
	} {
		g.Set(float64(count))
	}
}

// Cluster is how much there is in the cluster.
type Cluster struct {
	Hosts, WorkloadEndpoints, HostEndpoints, Policies, Profiles int
}

// Source is the state of the datastore, 1 to 3, as felix_resync_state has it.
func (m *Metrics) Source(state int) { m.source.Set(float64(state)) }

// Frozen says whether datastoreReady is false.
func (m *Metrics) Frozen(yes bool) { m.frozen.Set(number(yes)) }

// Settled says whether all is in force.
func (m *Metrics) Settled(yes bool) { m.inForce.Set(number(yes)) }

// Wrong is how much was found wrong in resources and settings.
func (m *Metrics) Wrong(n int) { m.problems.Set(float64(n)) }

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Reference is the table of docs/metrics.md.
func (m *Metrics) Reference() string {
	var b strings.Builder
	b.WriteString("| metric | kind | labels | what |\n|---|---|---|---|\n")
	for _, x := range m.list {
		b.WriteString("| `" + x.Name + "` | " + x.Kind + " | " + strings.Join(x.Labels, ", ") + " | " + x.Help + " |\n")
	}
	return b.String()
}
