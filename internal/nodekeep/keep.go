// Package nodekeep writes this host's addresses into its Node.
//
// In: the kernel's interfaces as they change, what the user wants, and the Nodes of all. Out: the Node of this host is
// created, and has the addresses that package nodeaddr finds; other fields of it stay as they are. A change that would make
// the Node wrong where it was not, by the rules of [api.Validate], is not written.
//
// An address that another node has is not written. What cannot be found or written is said once, and tried again when
// something has changed. Nothing is written before the datastore is known whole, or while it says that it is not ready.
package nodekeep

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/resources"
)

// Config of a Controller.
type Config struct {
	Node  string
	AS    *api.ASNumber // to write with the addresses; nil: unchanged
	Wants []nodeaddr.Want
	// NodeRef is the name that this node has in Kubernetes, to write into spec.orchRefs; empty: these stay as they are. It is for a
	// datastore that is not Kubernetes: there who watches its nodes knows by it which Node is whose.
	NodeRef string
	Anyway  bool          // write an address that another node has
	Poll    time.Duration // look again without an event; zero means Interval
	// Interval is Poll in AUTODETECT_POLL_INTERVAL. Empty, or no duration, of which the log warns, means 60s.
	Interval string
	Settle   time.Duration // wait for interfaces that change to come to rest; zero means 1s
	Store    datastore.Store
	Read     datastore.Store // what is watched; nil: Store
	// Lasting: the Node is the node's own knowledge, so that one which is gone is written again as it was last seen.
	Lasting bool
	Look    func(context.Context) (nodeaddr.Host, error)
	Watch   func(context.Context, chan<- struct{}) error // say that links or addresses have changed, until the context ends
	// Failed has each error that does not go away by itself: what keeps the Node from being written. Nil: the log alone has it.
	Failed func(error)
	Log    *slog.Logger
}

// interval reads Interval. A wrong one does not end a start: a node that started with upstream starts.
func (c Config) interval() time.Duration {
	const usual = time.Minute
	if c.Interval == "" {
		return usual
	}
	d, err := time.ParseDuration(c.Interval)
	if err != nil || d <= 0 {
		c.Log.Warn("AUTODETECT_POLL_INTERVAL has no effect: want a duration such as 60s, which is in effect", "value", c.Interval)
		return usual
	}
	return d
}

// Idle reports whether there is nothing to keep.
func (c Config) Idle() bool {
	return c.AS == nil && c.NodeRef == "" && !slices.ContainsFunc(c.Wants, func(w nodeaddr.Want) bool { return w.Order != nodeaddr.Keep })
}

// Controller keeps the addresses of one Node.
type Controller struct {
	cfg  Config
	loop *controller.Controller

	// The loop's alone.
	registry nodeaddr.Registry
	own      api.Update        // the Node as it is stored
	last     api.Update        // the same, of before it was gone
	logged   map[string]string // by what it is about, what the log last said
}

// New returns a Controller, which does nothing until Run.
func New(c Config) *Controller {
	if c.Poll == 0 {
		c.Poll = c.interval()
	}
	if c.Settle == 0 {
		c.Settle = time.Second
	}
	k := &Controller{cfg: c, logged: map[string]string{}}
	k.loop = controller.New(controller.Config{
		Name: "the node's address", Prefixes: []string{api.KeyPrefix(api.KindNode, "")}, Store: cmp.Or(c.Read, c.Store),
		Observe: k.observe, Reconcile: k.reconcile, MaxBackoff: retry, Log: c.Log,
	})
	return k
}

// retry is how long what goes away by itself is given. It does not grow: until the Node has its address, the host is cut off.
const retry = time.Second

// Run keeps until the context ends.
func (k *Controller) Run(ctx context.Context) error {
	k.loop.Enqueue(k.cfg.Node, 0) // there may be no Node at all
	events := make(chan struct{}, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.loop.Run(ctx) })
	group.Go(func() error { return k.cfg.Watch(ctx, events) })
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-events: // the first counts: interfaces that never rest must not put off the look for ever
				k.loop.Enqueue(k.cfg.Node, k.cfg.Settle)
			}
		}
	})
	return group.Wait()
}

// observe takes over a Node. Any may have this one's address, so all are one key: this node's name.
func (k *Controller) observe(u api.Update) []string {
	if !k.registry.Update(u) {
		return nil
	}
	if ref, _ := api.ParseKey(u.Key); ref.Name == k.cfg.Node {
		if k.own = u; u.Value != nil {
			k.last = u
		}
	}
	return []string{k.cfg.Node}
}

// reconcile looks, and writes what there is to write. An error is one that goes away by itself.
func (k *Controller) reconcile(ctx context.Context, _ string) (again time.Time, err error) {
	host, err := k.cfg.Look(ctx)
	if err != nil {
		return time.Time{}, err
	}
	n := k.registry.Node(k.cfg.Node)
	host.Know(n)
	var found []nodeaddr.Found
	for _, w := range k.cfg.Wants {
		if w.Order == nodeaddr.Keep {
			continue
		}
		f := nodeaddr.Found{Want: w}
		f.Choice, f.Err = w.Choose(host)
		found = append(found, f)
	}
	k.report(n, found)
	changes := k.allowed(nodeaddr.Settle(n, found))
	k.clashes()
	if err := k.write(ctx, host, found, changes); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(k.cfg.Poll), nil
}

// report says what was not found. If the Node has an address, that stays, and it is less bad.
func (k *Controller) report(n *api.Node, found []nodeaddr.Found) {
	for _, f := range found {
		at := "find " + f.Want.Name
		switch now := nodeaddr.Address(n, f.Want.Family); {
		case f.Err == nil:
			k.logOnce(at, slog.LevelError, "")
		case now == "":
			k.logOnce(at, slog.LevelError, f.Err.Error())
		case f.Want.Order == nodeaddr.Detect || nodeaddr.Detected(n, now):
			k.logOnce(at, slog.LevelWarn, fmt.Sprintf("%v. The Node keeps %s", f.Err, now))
		}
	}
}

// allowed leaves out addresses that other nodes have.
func (k *Controller) allowed(changes []nodeaddr.Change) (out []nodeaddr.Change) {
	taken := map[string]string{}
	for _, c := range changes {
		others := k.registry.Others(k.cfg.Node, c.To.Addr())
		if len(others) == 0 || k.cfg.Anyway {
			out = append(out, c)
			continue
		}
		taken[c.Family.Name] = fmt.Sprintf("the Node is not given %s: %s; %s", c.To, others[0], others[0].Fix())
	}
	for _, f := range []nodeaddr.Family{nodeaddr.V4, nodeaddr.V6} {
		k.logOnce("taken "+f.Name, slog.LevelError, taken[f.Name])
	}
	return out
}

// clashes warns of addresses that the Node has, and others too.
func (k *Controller) clashes() {
	var text []string
	for _, o := range k.registry.Clashes(k.cfg.Node) {
		text = append(text, o.String()+"; "+o.Fix())
	}
	if k.cfg.Anyway {
		text = nil
	}
	k.logOnce("clash", slog.LevelWarn, strings.Join(text, ". "))
}

// logOnce logs what is wrong once, and again when it has changed.
func (k *Controller) logOnce(about string, level slog.Level, text string) {
	if text != "" && k.logged[about] != text {
		k.cfg.Log.Log(context.Background(), level, "the node's address", "err", text)
	}
	k.logged[about] = text
}

// write creates the Node, or changes it at the revision that was observed.
func (k *Controller) write(ctx context.Context, host nodeaddr.Host, found []nodeaddr.Found, changes []nodeaddr.Change) error {
	n := api.New(api.KindNode).(*api.Node)
	n.Metadata.Name = k.cfg.Node
	known := k.own.Value
	if known == nil && k.cfg.Lasting {
		known = k.last.Value
	}
	if known != nil {
		if err := json.Unmarshal(known, n); err != nil {
			return fmt.Errorf("Node %s is not given its address: what is stored cannot be read: %w", k.cfg.Node, err)
		}
	} else if len(changes) == 0 {
		return nil // a Node without an address is of no use to others
	}
	nodeaddr.Apply(n, found, changes)
	n.Spec.Interfaces = nodeaddr.List(n, host)
	if k.cfg.AS != nil && n.Spec.BGP != nil {
		n.Spec.BGP.ASNumber = k.cfg.AS
	}
	if k.cfg.NodeRef != "" {
		n.Spec.OrchRefs = []api.OrchRef{{NodeName: k.cfg.NodeRef, Orchestrator: "k8s"}}
	}
	wrong := k.wrong(n)
	if k.logOnce("wrong", slog.LevelError, wrong); wrong != "" {
		k.failed(errors.New(wrong))
		return nil
	}
	if err := k.loop.Know(ctx, api.KeyPrefix(api.KindNode, "")+k.cfg.Node); err != nil {
		return err
	}
	done, err := resources.Over(ctx, k.cfg.Store, k.own, n)
	if errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound) {
		return nil // conflict: the watch delivers the other change
	}
	if err != nil {
		err = fmt.Errorf("write Node %s: %w", k.cfg.Node, err)
		if errors.Is(err, datastore.ErrUnauthorized) {
			k.failed(err)
		}
		return err // somebody may give the right
	}
	if done.Now.Revision != k.own.Revision {
		k.own, k.last = done.Now, done.Now
		k.registry.Update(done.Now)
	}
	for _, c := range changes {
		k.cfg.Log.Info("the node's address is written", "field", c.Family.Field, "address", c.To, "was", c.From, "why", c.Why)
	}
	return nil
}

func (k *Controller) failed(err error) {
	if k.cfg.Failed != nil {
		k.cfg.Failed(err)
	}
}

// wrong says what would be wrong with a Node that is not so already. What is stored was somebody's doing, and does not keep the
// node from having its address.
func (k *Controller) wrong(n *api.Node) string {
	faults := func(n api.Node) api.FieldErrors {
		n.Metadata.Name = k.cfg.Node // whatever the value says: the key does
		return api.Validate(&n)
	}
	had := map[string]bool{}
	if was := api.New(api.KindNode).(*api.Node); k.own.Value != nil && json.Unmarshal(k.own.Value, was) == nil {
		for _, e := range faults(*was) {
			had[e.Path+e.Reason] = true
		}
	}
	var out []string
	for _, e := range faults(*n) {
		if !had[e.Path+e.Reason] {
			out = append(out, e.Path+": "+e.Reason)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("Node %s is not written: %s", k.cfg.Node, strings.Join(out, "; "))
}
