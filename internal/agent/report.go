package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/logs"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/status/statusfile"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/usage"
)

// reporter passes events of the parts to logs, metrics, health and status. Its
// methods are called from the goroutines of calc and of the dataplane.
type reporter struct {
	log       *slog.Logger
	level     *slog.LevelVar
	logs      *logs.Logs
	usage     *usage.Reporter
	files     *statusfile.Writer
	cluster   calc.Cluster // guarded by mu
	metrics   *metrics.Metrics
	status    *status.Reporter
	problem   []config.Problem // in settings that are not the datastore's
	identity  Report           // what does not change
	memory    config.Memory    // used by calc's goroutine only
	leftovers *leftovers
	links     func() ([]rtnl.Link, error) // of the host; nil: none are known
	wireguard wgReader                    // nil: there is no WireGuard
	plugins   func() *endpointapi.Report  // of the Endpoint API; nil: there are none

	mu          sync.Mutex
	changes     changes
	versions    versions
	late        bool // a change was late at the last check
	lateTimer   bool // a timer runs for the next change that may become late
	all         bool // a batch with InSync was sent
	complete    bool // and has been in force
	synced      bool
	ready       api.Readiness
	unready     []string // of the graph
	findings    []Finding
	noEffect    []Finding
	unforwarded []string          // families
	protocol    int               // of routes to workloads, if it is not the agent's own
	failing     map[string]string // driver → what it last failed with
	datastore   Since
	kernel      Since
	tracker     *tracker
	others      *others
	progressed  chan struct{} // closed when the dataplane reports something
	size        tunnel.MTU
	repairs     map[string]int
	readBack    map[string]int // repairs by read-back since the driver last read back
}

func newReporter(cfg Config, store datastore.Store, m *metrics.Metrics) *reporter {
	now := time.Now()
	r := &reporter{
		log: cfg.Log, level: cfg.Level, logs: cfg.logs, metrics: m, problem: cfg.Problems,
		identity:  Report{Node: cfg.Node, Version: cfg.Version, Started: now},
		failing:   map[string]string{},
		datastore: Since{syncer.WaitForDatastore.String(), now}, kernel: Since{kernelUnknown, now},
		leftovers: &leftovers{log: cfg.Log.With("part", "leftovers")}, tracker: newTracker(), others: newOthers(), usage: usage.New(cfg.Log.With("part", "usage")), files: statusfile.New(cfg.Log.With("part", "endpoint files")), progressed: make(chan struct{}), repairs: map[string]int{}, readBack: map[string]int{},
	}
	r.status = status.New(status.Config{Node: cfg.Node, Version: cfg.Version, Store: store, Host: r.host, Log: cfg.Log.With("part", "status")})
	m.Source(1)
	for _, p := range cfg.Problems {
		cfg.Log.Warn("wrong setting", "from", p.From, "name", p.Name, "reason", p.Reason)
	}
	return r
}

// States of the kernel, as a whole.
const (
	kernelUnknown = "not yet programmed"
	kernelPending = "pending"
	kernelSettled = "in force"
)

// changeReceived notes that calc begins to work on a change: of the resources that the datastore sent, if it is no change of this agent's own.
func (r *reporter) changeReceived(at time.Time, us []api.Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions.note(us)
	r.changes.calc = at
	r.watch()
}

// changeIrrelevant notes that calc is done with the change for now.
func (r *reporter) changeIrrelevant() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.calc = time.Time{}
	r.watch()
}

// watch has the status written when a change becomes late, and when none is late any more.
func (r *reporter) watch() {
	now := time.Now()
	if is := r.changes.late(now) != ""; is != r.late {
		r.late = is
		r.status.Touch()
	}
	oldest := r.changes.oldest()
	if r.lateTimer || r.late || oldest.IsZero() {
		return
	}
	r.lateTimer = true
	time.AfterFunc(oldest.Add(lateAfter).Sub(now), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lateTimer = false
		r.watch()
	})
}

// nothingDecided notes that the change, of which calc has worked out what it means, does not concern this node.
func (r *reporter) nothingDecided() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.calc = time.Time{}
	r.watch()
	r.policies(r.versions.irrelevant())
}

// decided notes a batch that is about to be sent to the dataplane.
func (r *reporter) decided(b intent.Batch, arrived time.Time) {
	r.mu.Lock()
	r.changes.decide(arrived)
	r.versions.decide()
	r.watch()
	r.all = r.all || b.InSync
	if b.Host != nil {
		r.unforwarded, r.protocol = nil, b.Host.Routes.Protocol
		if b.Host.NoForwarding {
			r.unforwarded = append(r.unforwarded, "IPv4")
		}
		if b.Host.NoForwarding || b.Host.NoIPv6 {
			r.unforwarded = append(r.unforwarded, "IPv6")
		}
	}
	gone := r.tracker.onBatch(b)
	r.others.onBatch(b)
	r.mu.Unlock()
	r.status.Remove(gone)
	r.files.Sent(b)
}

// calculated notes that the graph has processed updates.
func (r *reporter) calculated(took time.Duration, g *calc.Graph) {
	r.metrics.Calculated(took)
	_, why := g.Ready()
	r.mu.Lock()
	changed := !slices.Equal(r.unready, why)
	r.unready = why
	r.cluster = g.Cluster()
	known := r.cluster.Known
	r.mu.Unlock()
	if known {
		r.usage.Know(usageOf(g, r.identity.Version))
	}
	if changed {
		r.status.Touch()
	}
}

// source takes the state of the syncer.
func (r *reporter) source(s syncer.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == syncer.InSync && r.datastore.State != s.String() {
		r.status.Answers()
	}
	r.datastore.become(s.String())
	r.synced = r.synced || s == syncer.InSync
	r.metrics.Source(int(s) + 1)
}

func (s *Since) become(state string) {
	if s.State != state {
		*s = Since{state, time.Now()}
	}
}

// problems takes the problems in resources.
func (r *reporter) problems(ps []api.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[Finding]time.Time{}
	for _, f := range slices.Concat(r.findings, r.noEffect) {
		known[Finding{Where: f.Where, Reason: f.Reason}] = f.Since
	}
	r.findings, r.noEffect = nil, nil
	for _, p := range ps {
		f := Finding{Where: strings.TrimSpace(p.Key + " " + p.Field), Reason: p.Reason}
		f.Since = cmp.Or(known[f], time.Now())
		if p.NoEffect {
			r.noEffect = append(r.noEffect, f)
			continue
		}
		r.findings = append(r.findings, f)
	}
	r.metrics.Wrong(len(r.findings) + len(r.problem))
}

// freeze takes what the datastore says of itself.
func (r *reporter) freeze(now api.Readiness) {
	r.mu.Lock()
	r.ready = now
	r.mu.Unlock()
	r.metrics.Frozen(now.Frozen())
	r.status.Freeze(now.Frozen())
}

// levels are the severities of settings.
var levels = map[string]slog.Level{
	"Trace": slog.LevelDebug - 4, "Debug": slog.LevelDebug, "Info": slog.LevelInfo, "Warning": slog.LevelWarn,
	"Error": slog.LevelError, "Fatal": slog.LevelError + 4, "None": logs.None,
}

// configure takes over settings that are not the dataplane's.
func (r *reporter) configure(s config.Settings) {
	logging(r.level, r.logs, s)
	r.usage.Configure(usage.Settings(s.Usage))
	r.files.Configure(s.EndpointFiles)
	if r.memory != s.Memory {
		r.memory = s.Memory
		limit(s.Memory)
	}
	r.mu.Lock()
	r.others.settings = s.WireGuard
	r.mu.Unlock()
	r.status.Configure(status.Settings{
		Region: s.Region, Interval: s.ReportingInterval, TTL: s.ReportingTTL, Endpoints: s.ReportEndpoints, Delay: s.EndpointReportDelay,
	})
}

// outcomes logs each failure once; success is logged at debug level.
func (r *reporter) outcomes(os []intent.Outcome) {
	r.mu.Lock()
	changed := r.tracker.update(os)
	news := r.tracker.changedStates(time.Now())
	r.progress()
	r.mu.Unlock()
	for _, o := range changed {
		switch {
		case o.Err != nil:
			r.log.Error("not in force", "intent", o.Key.String(), "err", o.Err)
		case o.Reason != "":
			r.log.Info("waits", "intent", o.Key.String(), "reason", o.Reason)
		case o.Chains != "":
			r.log.Info("its policy is asked rule by rule, not by look-ups", "intent", o.Key.String(), "reason", o.Chains)
		default:
			r.log.Debug("in force", "intent", o.Key.String())
		}
	}
	r.status.Set(news)
	r.files.Set(news)
}

// InForce waits until an endpoint's last version is in the kernel.
func (r *reporter) InForce(ctx context.Context, id intent.EndpointID) error {
	for {
		r.mu.Lock()
		state, answered := r.tracker.inForce(id)
		moved := r.progressed
		r.mu.Unlock()
		if answered && state.Status != status.Down {
			if state.Status == status.Error {
				return fmt.Errorf("%s: %s", id, state.Reason)
			}
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: %w", id, state.Reason, ctx.Err())
		}
	}
}

// count updates the metrics that count objects. It is called on
// scrapes: at each change it would cost more than the change.
func (r *reporter) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.tracker.counts()
	r.metrics.Has(metrics.Node{Endpoints: c.Endpoints, Policies: c.Policies, Routes: c.Routes, ByChains: c.ByChains, Cluster: metrics.Cluster{
		Hosts: r.cluster.Hosts, WorkloadEndpoints: r.cluster.WorkloadEndpoints, HostEndpoints: r.cluster.HostEndpoints, Policies: r.cluster.Policies, Profiles: r.cluster.Profiles,
	}})
}

// Merged is called by the dataplane, which merges batches in the order in which they were sent.
func (r *reporter) Merged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.merge()
	r.versions.merge()
	r.tracker.merged()
}

// Round is called by the dataplane: if no driver is pending, all merged batches are in force, except for intents that failed.
func (r *reporter) Round(settled bool, pending []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics.Settled(settled)
	r.kernel.become(map[bool]string{true: kernelSettled, false: kernelPending}[settled])
	now := time.Now()
	for _, arrived := range r.changes.round(pending) {
		r.metrics.Change(now.Sub(arrived))
	}
	if failed, changed := r.tracker.failedPolicies(); changed {
		r.status.Fail(failed)
	}
	r.policies(r.versions.round(pending))
	r.watch()
	if r.all && !r.complete && r.changes.arrived() {
		r.complete = true
		r.log.Info("all that the datastore asks for is in force", "endpoints", len(r.tracker.endpoints), "after", now.Sub(r.identity.Started).Round(time.Millisecond))
		go debug.FreeOSMemory() // a start needs more memory than later
		r.status.Complete()
		r.files.Complete()
		r.status.Touch()
	}
}

// Applied is called by the dataplane.
func (r *reporter) Applied(driver string, took time.Duration, err error) {
	r.metrics.Applied(driver, took, err)
	r.fails(driver, err)
}

// Resynced is called by the dataplane.
func (r *reporter) Resynced(driver string, took time.Duration, err error) {
	r.metrics.Resynced(driver, took, err)
	r.fails(driver+" read-back", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readBack[driver] = 0
	r.metrics.Differed(driver, 0) // what it found is repaired next
}

func (r *reporter) fails(driver string, err error) {
	what := ""
	if err != nil {
		what = err.Error()
	}
	r.mu.Lock()
	changed := r.failing[driver] != what
	r.failing[driver] = what
	r.mu.Unlock()
	if changed {
		r.status.Touch()
	}
}

// Repaired is called by the dataplane.
func (r *reporter) Repaired(driver string, cause intent.Cause, n int) {
	r.metrics.Repaired(driver, string(cause), n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repairs[driver+" by "+string(cause)] += n
	if cause == intent.ByReadBack {
		r.readBack[driver] += n
		r.metrics.Differed(driver, r.readBack[driver])
	}
}

// notReady returns why this node is not ready; none: it is.
func (r *reporter) notReady() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whyNot()
}

// unprobed returns why the readiness probe fails: as notReady, but for a datastore that is not ready. Somebody works on that, and may have to
// roll out new pods of this agent meanwhile, one when the one before is ready.
func (r *reporter) unprobed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lacking()
}

func (r *reporter) whyNot() []string {
	if r.synced && r.ready.Frozen() {
		return append([]string{r.ready.Why()}, r.lacking()...)
	}
	return r.lacking()
}

// lacking is what this node lacks, by what it may act upon.
func (r *reporter) lacking() []string {
	var out []string
	switch {
	case !r.synced:
		out = append(out, "never yet in sync with the datastore")
	case r.ready.Frozen():
	case !r.complete:
		out = append(out, "not all that the datastore asks for has been in force yet")
	}
	for _, driver := range slices.Sorted(maps.Keys(r.failing)) {
		if what := r.failing[driver]; what != "" {
			out = append(out, fmt.Sprintf("%s: %s", driver, what))
		}
	}
	if what := r.changes.late(time.Now()); what != "" {
		out = append(out, what)
	}
	return append(out, r.unready...)
}

// host returns the state for the agent's status in the datastore.
func (r *reporter) host() (bool, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	why := r.whyNot()
	failed := r.tracker.failed()
	slices.Sort(failed)
	return len(why) == 0, append(why, failed...)
}

// report returns the full report.
func (r *reporter) report() Report {
	left := r.leftovers.lines()
	sizes, encrypting := r.sizes(), r.encrypting()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.identity
	out.Leftovers = left
	if r.plugins != nil {
		out.Plugins = r.plugins()
	}
	out.NotReady = r.whyNot()
	out.Ready = len(out.NotReady) == 0
	out.Datastore, out.Kernel, out.Counts, out.Repairs = r.datastore, r.kernel, r.tracker.counts(), maps.Clone(r.repairs)
	if err := r.status.WriteError(); err != nil {
		out.Unwritten = err.Error()
	}
	out.Failed = r.tracker.failed()
	slices.Sort(out.Failed)
	for id, e := range r.tracker.endpoints {
		out.Endpoints = append(out.Endpoints, EndpointReport{
			Name: cmp.Or(e.label, id.String()), Interface: e.link, Status: e.state.Status, Reason: e.state.Reason, Chains: e.state.Chains, Note: e.state.Note, Since: e.since,
		})
	}
	slices.SortFunc(out.Endpoints, func(a, b EndpointReport) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Interface, b.Interface))
	})
	out.MTU = r.mtuReport(sizes)
	r.encryption(&out, encrypting)
	for _, p := range r.problem {
		out.Wrong = append(out.Wrong, Finding{Where: p.From + " " + p.Name, Reason: p.Reason, Since: out.Started})
	}
	out.Wrong = append(out.Wrong, r.findings...)
	out.NoEffect, out.Unforwarded, out.RouteProtocol = slices.Clone(r.noEffect), r.unforwarded, r.protocol
	return out
}

// run writes status.
func (r *reporter) run(ctx context.Context) error { return r.status.Run(ctx) }
