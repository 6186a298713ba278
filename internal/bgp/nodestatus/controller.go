package nodestatus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
)

// Config of a Controller.
type Config struct {
	Node  string
	Store datastore.Store
	Read  datastore.Store                                       // what is watched; nil: Store
	Ask   func(ctx context.Context, routes bool) (Facts, error) // the speaker; routes only if they are wanted
	Log   *slog.Logger
}

// Controller writes the status of the resources that name this node.
type Controller struct {
	cfg      Config
	loop     *controller.Controller
	requests map[string]*request // by key; used by the loop only
}

// request is a resource that names this node.
type request struct {
	stored     api.Update
	classes    []string
	period     time.Duration
	unobserved []api.Revision // revisions of our own writes that the watch has not delivered yet, oldest first; stored has the last
}

// New returns a Controller, which does nothing until Run.
func New(c Config) *Controller {
	k := &Controller{cfg: c, requests: map[string]*request{}}
	k.loop = controller.New(controller.Config{
		Name: api.KindCalicoNodeStatus, Prefixes: Prefixes(), Store: cmp.Or(c.Read, c.Store),
		Observe: k.observe, Reconcile: k.reconcile, Log: c.Log,
	})
	return k
}

// Prefixes are the keys that a Controller watches.
func Prefixes() []string {
	return []string{api.KeyPrefix(api.KindCalicoNodeStatus, ""), api.KeyPrefix(api.KindClusterInformation, "")}
}

// Run writes until the context ends.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// observe takes over a resource; it returns the key if what the resource asks for changed.
func (c *Controller) observe(u api.Update) []string {
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return nil
		}
	}
	r, ok := s.Resource.(*api.CalicoNodeStatus)
	if !ok || r.Spec.Node != c.cfg.Node || r.Spec.UpdatePeriodSeconds == nil || *r.Spec.UpdatePeriodSeconds == 0 || s.Closed != "" {
		delete(c.requests, u.Key)
		return nil
	}
	is := c.requests[u.Key]
	if is == nil {
		is = &request{}
		c.requests[u.Key] = is
	}
	is.observe(u)
	period := time.Duration(*r.Spec.UpdatePeriodSeconds) * time.Second
	if is.period == period && slices.Equal(is.classes, r.Spec.Classes) {
		return nil // our own write
	}
	is.period, is.classes = period, r.Spec.Classes
	return []string{u.Key}
}

// observe takes over a stored version, unless it is older than our last write. Each of our writes replaced the version observed
// last, so the watch delivers them in order, and then whatever came later.
func (r *request) observe(u api.Update) {
	if i := slices.Index(r.unobserved, u.Revision); i >= 0 {
		r.unobserved = r.unobserved[i+1:]
	} else {
		r.unobserved = nil
	}
	if len(r.unobserved) == 0 {
		r.stored = u
	}
}

// reconcile writes a status, and is due again after the period, whether it succeeded or not.
func (c *Controller) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	is := c.requests[key]
	if is == nil {
		return time.Time{}, nil // deleted, or for another node
	}
	again = time.Now().Add(is.period)
	wait := is.period // so that a speaker that hangs delays no other status for longer than its period
	for _, other := range c.requests {
		wait = min(wait, other.period)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	facts, err := c.cfg.Ask(ctx, slices.Contains(is.classes, api.ClassRoutes))
	if err != nil {
		return again, err
	}
	if err := c.write(ctx, is, facts); err != nil {
		return again, fmt.Errorf("write status: %w", err)
	}
	return again, nil
}

// write replaces the version observed last; after a conflict the next period writes again.
func (c *Controller) write(ctx context.Context, is *request, f Facts) error {
	r := api.New(api.KindCalicoNodeStatus).(*api.CalicoNodeStatus)
	if err := json.Unmarshal(is.stored.Value, r); err != nil {
		return err
	}
	r.Status = Fill(is.classes, f)
	value, err := api.MergeRaw(is.stored.Value, r)
	if err != nil {
		return err
	}
	kv, err := c.cfg.Store.Update(ctx, api.Update{Key: is.stored.Key, Value: value, Revision: is.stored.Revision})
	switch {
	case errors.Is(err, datastore.ErrConflict), errors.Is(err, datastore.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	is.stored, is.unobserved = kv, append(is.unobserved, kv.Revision)
	return nil
}
