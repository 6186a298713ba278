package kubecontrollers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
)

// lookEvery is how long it takes between looks at what agents report: as often as they do.
const lookEvery = 30 * time.Second

// availableConfig is what the controller of nodes' networks needs.
type availableConfig struct {
	Store    datastore.Store // in which agents report
	Cluster  datastore.Store // which shows Kubernetes' nodes; the same as Store where its API is the datastore
	Settings func() Settings
	// Network says whether a node of Kubernetes has a network, and reports whether that is a change.
	Network func(ctx context.Context, node string, available bool, reason, message string) (changed bool, err error)
	Turn    func(key string, err error)
	Log     *slog.Logger
}

// available says on Kubernetes' nodes whether their network is available: not where the agent reports no more, and again once it says that all
// is in force (decision 038).
type available struct {
	cfg    availableConfig
	loop   *controller.Controller
	agents map[string]*agentSeen // by node
	looked time.Time             // when the last look ended; zero: it failed, or there was none
	held   bool                  // it was logged that too many report no more
}

// agentSeen is an agent, as this process saw it.
type agentSeen struct {
	uid    string // of the Node
	report status.Process
	since  time.Time // when its report changed last, as far as this process saw
	fresh  bool      // it did change
	wrote  string    // what this process wrote last, or found written; empty: nothing
}

const (
	networkIs, networkIsNot = "available", "unavailable"
	reasonInForce           = "PolicyInForce"
	reasonLapsed            = "AgentNotReporting"
)

func newAvailable(cfg availableConfig) *available {
	a := &available{cfg: cfg, agents: map[string]*agentSeen{}}
	a.loop = controller.New(controller.Config{
		Name: "networks of nodes", Log: cfg.Log,
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			every := a.every()
			if every == 0 {
				a.looked = time.Time{}
				cfg.Turn(key, nil)
				return time.Now().Add(lookEvery), nil
			}
			err := a.look(ctx, every)
			cfg.Turn(key, err)
			return time.Now().Add(every), err
		},
	})
	a.loop.Update(nil, true) // it watches nothing
	return a
}

func (a *available) run(ctx context.Context) error {
	a.loop.Enqueue(allNodes, 0)
	return a.loop.Run(ctx)
}

// every is the time between two looks; 0: the settings turn it off.
func (a *available) every() time.Duration {
	s := a.cfg.Settings().Node
	if s == nil {
		return 0
	}
	return min(lookEvery, s.Period)
}

// look compares what agents report with what they did.
func (a *available) look(ctx context.Context, every time.Duration) error {
	last := a.looked
	a.looked = time.Time{}
	reports, err := a.reports(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if last.IsZero() || now.Sub(last) > 3*every { // nobody looked: agents may not have been able to report, either
		for _, s := range a.agents {
			s.since, s.fresh = now, false
		}
	}
	a.observe(reports, now)
	lapsed := a.lapsed(reports, now, 2*every)
	held := 2*len(lapsed) > len(reports)
	if held && !a.held {
		a.cfg.Log.Warn("more than half of all agents do not report: no node's network is set to unavailable", "silent", len(lapsed), "of", len(reports))
	}
	if a.held && !held { // what kept most of them from reporting may have kept these for a little longer
		for _, node := range lapsed {
			a.agents[node].since = now
		}
		lapsed = nil
	}
	a.held = held
	err = nil
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		s := a.agents[node]
		switch gone := slices.Contains(lapsed, node); {
		case gone:
			if s.fresh = false; !held {
				err = errors.Join(err, a.write(ctx, node, networkIsNot, reasonLapsed, "the agent has not reported since "+cmp.Or(s.report.Time, "its start")+": what changes is not enforced"))
			}
		case s.fresh && s.report.Ready:
			err = errors.Join(err, a.write(ctx, node, networkIs, reasonInForce, "the agent says that policy and routes are in force"))
		}
	}
	a.looked = time.Now()
	return err
}

// report is what the agent of a node has said.
type report struct {
	uid   string // of the Node
	last  status.Process
	alive bool // by the agent's clock, or since its key has not expired
}

// reports are those of Kubernetes' nodes whose agents say what is in force: others do not report, or never did.
func (a *available) reports(ctx context.Context) (map[string]report, error) {
	in, err := nodesOf(ctx, a.cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("ask Kubernetes for its nodes: %w", err)
	}
	names := map[string]string{} // of nodes of Kubernetes, by what agents call them
	for name := range in {
		names[name] = name
	}
	if a.cfg.Store != a.cfg.Cluster {
		stored, err := nodesOf(ctx, a.cfg.Store)
		if err != nil {
			return nil, err
		}
		clear(names)
		for name, n := range stored {
			if kube := kubernetesName(n.node); kube != "" {
				names[name] = kube
			}
		}
	}
	all, err := status.Nodes(ctx, a.cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("read what agents report: %w", err)
	}
	out := map[string]report{}
	for _, n := range all {
		kube := names[n.Node]
		is, there := in[kube]
		if has := out[kube]; !there || n.Summary == nil || has.last.Time > n.Last.Time {
			continue // the latter: of another region, in which it was
		}
		r := report{last: n.Last, alive: n.Alive}
		if is.node != nil {
			r.uid = is.node.Metadata.UID
		}
		out[kube] = r
	}
	return out, nil
}

// observe takes over what agents report.
func (a *available) observe(reports map[string]report, now time.Time) {
	maps.DeleteFunc(a.agents, func(node string, _ *agentSeen) bool { _, is := reports[node]; return !is })
	for node, r := range reports {
		s := a.agents[node]
		switch {
		case s == nil || s.uid != r.uid:
			s = &agentSeen{uid: r.uid, since: now}
			a.agents[node] = s
		case s.report.Time != r.last.Time || s.report.Uptime != r.last.Uptime:
			s.since, s.fresh = now, true
		}
		s.report = r.last
	}
}

// lapsed are the nodes whose agents have not reported for as long as their last report holds, and a grace period, all of which this process saw.
func (a *available) lapsed(reports map[string]report, now time.Time, grace time.Duration) (out []string) {
	for node, r := range reports {
		holds, ok := period(r)
		if ok && now.Sub(a.agents[node].since) >= holds+grace {
			out = append(out, node)
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// period is how long a report holds, as who wrote it says: no clocks are compared. False: it holds as long as it is there.
func period(r report) (time.Duration, bool) {
	if r.last.Expires == "" {
		return 0, !r.alive // its key expires
	}
	from, err1 := time.Parse(time.RFC3339, r.last.Time)
	until, err2 := time.Parse(time.RFC3339, r.last.Expires)
	return max(until.Sub(from), 0), err1 == nil && err2 == nil
}

// write says on a node whether its network is available, unless this process did so before: what another says later is that other's.
func (a *available) write(ctx context.Context, node, what, reason, message string) error {
	s := a.agents[node]
	if s.wrote == what {
		return nil
	}
	changed, err := a.cfg.Network(ctx, node, what == networkIs, reason, message)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) { // else it has just gone
		return fmt.Errorf("node %s: say that its network is %s: %w", node, what, err)
	}
	s.wrote = what
	if changed {
		a.cfg.Log.Info("a node's network is "+what, "node", node, "because", message)
	}
	return nil
}
