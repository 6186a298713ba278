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
	"github.com/twillnet/twill/internal/upkeep"
)

// decider is calc's goroutine: updates in, what changes for this node out.
type decider struct {
	node  string
	graph *calc.Graph
	watch *reporter
	keep  *upkeep.Controller
	in    <-chan syncer.Batch
	out   chan<- intent.Batch
	log   *slog.Logger
	pings chan struct{}
	local chan local // what this agent wrote itself
	hold  bool       // an upstream agent's rules guard workloads: hand nothing over before all is known, see [doors.guarded]

	overlay  attach.Overlay
	nodes    nodeaddr.Book
	settings []func(config.Settings) // told of them beside watch

	told     map[string]string // problems that the log has, by key and field
	findings uint64            // of the graph, when they were told
	synced   bool
	sent     bool // a batch that says InSync
	frozen   bool
}

func (d *decider) run(ctx context.Context) error {
	d.settle()
	for {
		var heard time.Time
		told := func() {}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.pings:
			continue
		case l := <-d.local:
			heard = time.Now()
			for _, link := range d.overlay.Links() {
				d.graph.Attached(link)
			}
			d.graph.Update(d.overlay.Current(l.updates))
			told = func() { close(l.told) }
		case b, ok := <-d.in:
			if !ok {
				return context.Canceled // the syncer has ended, and says why
			}
			heard = d.hear()
			d.take(b)
		}
		if d.freeze() || d.hold && !d.synced {
			d.watch.unconcerned() // for as long as that is so
			told()
			continue
		}
		batch := d.graph.Flush()
		d.watch.calculated(time.Since(heard), d.graph)
		if batch.Empty() && (!batch.InSync || d.sent) {
			d.watch.unconcerned()
			told() // most of what the datastore says is not this node's, and must not cost it a round
			continue
		}
		d.sent = d.sent || batch.InSync
		d.watch.decided(batch, heard)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d.out <- batch:
			told()
		}
	}
}

// hear notes when a change was heard of.
func (d *decider) hear() time.Time {
	now := time.Now()
	d.watch.hears(now)
	return now
}

// local are updates that this agent wrote itself.
type local struct {
	updates []api.Update
	told    chan struct{} // closed when what follows has been handed to the dataplane
}

// Overlay is for [attach.Kernel].
func (d *decider) Overlay(ctx context.Context, us []api.Update) error {
	for _, u := range us {
		if u.Revision != attach.Pending { // else it was announced, and may be written by now
			d.overlay.Put([]api.Update{u})
		}
	}
	return d.hand(ctx, us)
}

// hand gives updates to calc, and returns when what follows from them has been handed to the dataplane.
func (d *decider) hand(ctx context.Context, us []api.Update) error {
	l := local{us, make(chan struct{})}
	select {
	case d.local <- l:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-l.told:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Announce is for [attach.Kernel].
func (d *decider) Announce(key, link string) { d.overlay.Announce(key, link) }

// Written is for [attach.Kernel].
func (d *decider) Written(u api.Update) { d.overlay.Put([]api.Update{u}) }

// Ping returns when calc has come round: it lives.
func (d *decider) Ping(ctx context.Context) error {
	select {
	case d.pings <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take takes over what the source says.
func (d *decider) take(b syncer.Batch) {
	d.graph.Update(d.overlay.Filter(b.Updates))
	d.keep.Update(b.Updates, b.InSync)
	first := b.InSync && !d.synced // the flag stays set in all batches that follow
	if first {
		d.synced = true
		d.graph.SetInSync()
	}
	d.watch.source(b.Status)
	nodes := d.hearNodes(b.Updates) && d.synced
	if n := d.graph.Findings(); n != d.findings || nodes || first {
		d.findings = n
		d.tell(slices.Concat(d.graph.Problems(), d.clashes(), d.unmade()))
	}
	d.settle()
}

// hearNodes takes in the addresses of all nodes, and reports whether there was one among the updates.
func (d *decider) hearNodes(us []api.Update) (any bool) {
	for _, u := range us {
		any = d.nodes.Update(u) || any
	}
	return any
}

// clashes are addresses of this node that others have too.
func (d *decider) clashes() (out []api.Problem) {
	for _, o := range d.nodes.Clashes(d.node) {
		out = append(out, api.Problem{Key: api.KeyPrefix(api.KindNode, "") + d.node, Reason: o.String() + "; " + o.Fix()})
	}
	return out
}

// unmade is why this node has no Node and is given none. What would write it runs in another process, and has a log alone.
func (d *decider) unmade() []api.Problem {
	why := d.nodes.Unmade(d.node)
	if why == "" || !d.synced {
		return nil
	}
	return []api.Problem{{
		Key: api.KeyPrefix(api.KindNode, "") + d.node, Field: "metadata.name",
		Reason: why + "; a Node of this name is not written: give this node another with --node (NODENAME)",
	}}
}

// tell logs each problem once, and again when it has changed.
func (d *decider) tell(problems []api.Problem) {
	now := map[string]string{}
	for _, p := range problems {
		at := strings.TrimSpace(p.Key + " " + p.Field)
		now[at] = p.Reason
		if d.told[at] != p.Reason {
			d.log.Warn("wrong resource", "key", at, "reason", p.Reason)
		}
	}
	d.told = now
	d.watch.problems(problems)
}

// settle hands changed settings to those whose they are.
func (d *decider) settle() {
	s := d.graph.Settings().Settings
	d.watch.configure(s)
	for _, told := range d.settings {
		told(s)
	}
}

// freeze reports whether the datastore says that nothing it holds may be acted upon. The kernel then stays as it is.
func (d *decider) freeze() bool {
	if now := d.graph.Frozen(); now != d.frozen {
		d.frozen = now
		if now {
			d.log.Warn("the datastore says that it is not ready; the kernel stays as it is, and nothing is written",
				"key", api.ResourcesPrefix+"clusterinformations/default")
		} else {
			d.log.Info("the datastore is ready again")
		}
		d.watch.freeze(now)
	}
	return d.frozen
}
