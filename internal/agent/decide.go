package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/syncer"
)

// keepers write into the datastore what this node keeps there, in answer to the same updates as calc's.
type keepers []interface {
	Update(us []api.Update, inSync bool)
}

// calcLoop is calc's goroutine: updates in, batches for this node out.
type calcLoop struct {
	node  string
	graph *calc.Graph
	watch *reporter
	keep  keepers
	in    <-chan syncer.Batch
	out   chan<- intent.Batch
	log   *slog.Logger
	pings chan struct{}
	local chan local // updates that this agent wrote itself
	// proxied brings the workloads whose proxies have their policy, all of them each time.
	proxied chan map[intent.EndpointID]bool
	hold    bool // rules of an upstream agent, or of ours in another backend, guard workloads: send nothing before calc is in sync, see [kernelHandles.guarded]

	remains bool // the kernel has routes of an agent that ran before

	overlay  attach.Overlay
	nodes    nodeaddr.Registry
	settings []func(config.Settings) // called with changed settings, after watch

	loggedProblems map[string]string // problems that are logged, by key and field
	findings       uint64            // the graph's counter when they were logged
	synced         bool
	published      bool // a batch was sent
	sent           bool // one that says InSync
	ready          api.Readiness
}

func (d *calcLoop) run(ctx context.Context) error {
	d.applySettings()
	for {
		var arrived time.Time
		done, own := func() {}, false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.pings:
			continue
		case l := <-d.local:
			arrived, own = time.Now(), true
			for _, link := range d.overlay.Links() {
				d.graph.Attached(link)
			}
			d.graph.Update(d.overlay.Current(l.updates))
			done = func() { close(l.done) }
		case is := <-d.proxied:
			arrived = time.Now()
			d.graph.Proxied(is)
		case b, ok := <-d.in:
			if !ok {
				return context.Canceled // the syncer has ended, and returned the error
			}
			arrived = d.noteReceived(b.Updates)
			d.receive(b)
		}
		if d.freeze() || !d.synced && !d.early(own) {
			d.watch.changeIrrelevant() // until something concerns this node
			done()
			continue
		}
		batch := d.graph.Flush()
		d.watch.calculated(time.Since(arrived), d.graph)
		if batch.Empty() && (!batch.InSync || d.sent) {
			d.watch.nothingDecided()
			done() // most updates do not concern this node, and must not cost a round
			continue
		}
		d.published, d.sent = true, d.sent || batch.InSync
		d.watch.decided(batch, arrived)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d.out <- batch:
			done()
		}
	}
}

// early reports whether something is sent before calc is in sync: once, since the host is closed by the first batch until all is known;
// and what this agent writes itself. The rest of a list that comes in pieces would be intents that are known in part, which are made
// again with each piece, and bring nothing into force.
func (d *calcLoop) early(own bool) bool { return !d.hold && (own || !d.published) }

// noteReceived notes the arrival of a change.
func (d *calcLoop) noteReceived(us []api.Update) time.Time {
	now := time.Now()
	d.watch.changeReceived(now, us)
	return now
}

// local are updates that this agent wrote itself.
type local struct {
	updates []api.Update
	done    chan struct{} // closed when the resulting batch was sent to the dataplane
}

// Overlay implements [attach.Kernel].
func (d *calcLoop) Overlay(ctx context.Context, us []api.Update) error {
	d.overlay.Pass(us)
	return d.apply(ctx, us)
}

// apply passes updates to calc, and returns when the resulting batch was sent to the dataplane.
func (d *calcLoop) apply(ctx context.Context, us []api.Update) error {
	l := local{us, make(chan struct{})}
	select {
	case d.local <- l:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Announce implements [attach.Kernel].
func (d *calcLoop) Announce(key, link string) { d.overlay.Announce(key, link) }

// Give implements [attach.Kernel].
func (d *calcLoop) Give(key string, g attach.Given) { d.overlay.Give(key, g) }

// Written implements [attach.Kernel].
func (d *calcLoop) Written(u api.Update) { d.overlay.Put([]api.Update{u}) }

// Ping returns when calc has completed a turn, as a probe of liveness.
func (d *calcLoop) Ping(ctx context.Context) error {
	select {
	case d.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receive takes over a batch of the source.
func (d *calcLoop) receive(b syncer.Batch) {
	d.graph.Update(d.overlay.Filter(b.Updates))
	for _, k := range d.keep {
		k.Update(b.Updates, b.InSync)
	}
	first := b.InSync && !d.synced // the flag stays set in later batches
	if first {
		d.synced = true
		if d.remains && d.graph.Readiness() == api.Blank {
			d.graph.Lost()
		}
		d.graph.SetInSync()
	}
	d.freeze() // before anybody takes what is received for all of it
	d.watch.source(b.Status)
	nodes := d.updateNodes(b.Updates) && d.synced
	if n := d.graph.Findings(); n != d.findings || nodes || first {
		d.findings = n
		d.logProblems(slices.Concat(d.graph.Problems(), d.clashes(), d.nodeProblem()))
	}
	d.applySettings()
}

// updateNodes takes over the addresses of Nodes, and reports whether there was a Node among the updates.
func (d *calcLoop) updateNodes(us []api.Update) (any bool) {
	for _, u := range us {
		any = d.nodes.Update(u) || any
	}
	if any {
		d.watch.status.Nodes(len(d.nodes.Nodes()))
	}
	return any
}

// clashes returns addresses of this node that other Nodes have, too.
func (d *calcLoop) clashes() (out []api.Problem) {
	for _, o := range d.nodes.Clashes(d.node) {
		out = append(out, api.Problem{Key: api.KeyPrefix(api.KindNode, "") + d.node, Reason: o.String() + "; " + o.Fix()})
	}
	return out
}

// nodeProblem returns why this node has no Node and none is created. The process that would write it only logs that.
func (d *calcLoop) nodeProblem() []api.Problem {
	why := d.nodes.NodeProblem(d.node)
	if why == "" || !d.synced {
		return nil
	}
	return []api.Problem{{
		Key: api.KeyPrefix(api.KindNode, "") + d.node, Field: "metadata.name",
		Reason: why + "; a Node of this name is not written: give this node another with --node (NODENAME)",
	}}
}

// logProblems logs each problem once, and again when it has changed.
func (d *calcLoop) logProblems(problems []api.Problem) {
	now := map[string]string{}
	for _, p := range problems {
		at := strings.TrimSpace(p.Key + " " + p.Field)
		now[at] = p.Reason
		if d.loggedProblems[at] != p.Reason {
			d.log.Warn("wrong resource", "key", at, "reason", p.Reason)
		}
	}
	d.loggedProblems = now
	d.watch.problems(problems)
}

// applySettings passes changed settings to the parts that use them.
func (d *calcLoop) applySettings() {
	s := d.graph.Settings().Settings
	d.watch.configure(s)
	for _, done := range d.settings {
		done(s)
	}
}

// freeze reports whether the datastore is not ready: the kernel then stays as it is.
func (d *calcLoop) freeze() bool {
	now := d.graph.Readiness()
	if now != d.ready {
		switch {
		case now.Frozen():
			d.log.Warn("the datastore is not ready; the kernel stays as it is, and nothing is written", "reason", now.Why())
		case d.ready.Frozen():
			d.log.Info("the datastore is ready again")
		}
		d.ready = now
		d.watch.freeze(now)
	}
	return now.Frozen()
}
