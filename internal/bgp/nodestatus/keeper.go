package nodestatus

import (
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

// Config of a Keeper.
type Config struct {
	Node  string
	Store datastore.Store
	Ask   func(ctx context.Context, routes bool) (Facts, error) // the speaker; routes only if they are wanted
	Log   *slog.Logger
}

// Keeper writes the status of the resources that ask this node.
type Keeper struct {
	cfg   Config
	loop  *controller.Controller
	asked map[string]*asked // by key; the loop's alone
}

// asked is a resource that asks this node.
type asked struct {
	stored  api.Update
	classes []string
	period  time.Duration
	unheard []api.Revision // what we wrote since, one over the other, the last of which is stored
}

// New returns a Keeper, which does nothing until Run.
func New(c Config) *Keeper {
	k := &Keeper{cfg: c, asked: map[string]*asked{}}
	k.loop = controller.New(controller.Config{
		Name: api.KindCalicoNodeStatus, Prefixes: []string{api.KeyPrefix(api.KindCalicoNodeStatus, "")}, Store: c.Store,
		Observe: k.observe, Reconcile: k.reconcile, Log: c.Log,
	})
	return k
}

// Prefixes are the keys that a Keeper watches.
func Prefixes() []string {
	return []string{api.KeyPrefix(api.KindCalicoNodeStatus, ""), api.KeyPrefix(api.KindClusterInformation, "")}
}

// Run writes until the context ends.
func (k *Keeper) Run(ctx context.Context) error { return k.loop.Run(ctx) }

// observe takes a resource in, and has it reconciled if it asks for something else than before.
func (k *Keeper) observe(u api.Update) []string {
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return nil
		}
	}
	r, ok := s.Resource.(*api.CalicoNodeStatus)
	if !ok || r.Spec.Node != k.cfg.Node || r.Spec.UpdatePeriodSeconds == nil || *r.Spec.UpdatePeriodSeconds == 0 || s.Closed != "" {
		delete(k.asked, u.Key)
		return nil
	}
	is := k.asked[u.Key]
	if is == nil {
		is = &asked{}
		k.asked[u.Key] = is
	}
	is.hear(u)
	period := time.Duration(*r.Spec.UpdatePeriodSeconds) * time.Second
	if is.period == period && slices.Equal(is.classes, r.Spec.Classes) {
		return nil // it is what we wrote ourselves
	}
	is.period, is.classes = period, r.Spec.Classes
	return []string{u.Key}
}

// hear takes over what the datastore says, unless it is older than what we wrote: each of our writes replaced what was heard
// of last, so the datastore speaks of them one after the other, and then of whatever came later.
func (a *asked) hear(u api.Update) {
	if i := slices.Index(a.unheard, u.Revision); i >= 0 {
		a.unheard = a.unheard[i+1:]
	} else {
		a.unheard = nil
	}
	if len(a.unheard) == 0 {
		a.stored = u
	}
}

// reconcile writes a status, and is due again after its period, whether or not it could.
func (k *Keeper) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	is := k.asked[key]
	if is == nil {
		return time.Time{}, nil // it does not ask any more
	}
	again = time.Now().Add(is.period)
	wait := is.period // a speaker that hangs holds up no other status for longer than its period
	for _, other := range k.asked {
		wait = min(wait, other.period)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	facts, err := k.cfg.Ask(ctx, slices.Contains(is.classes, api.ClassRoutes))
	if err != nil {
		return again, err
	}
	if err := k.write(ctx, is, facts); err != nil {
		return again, fmt.Errorf("write status: %w", err)
	}
	return again, nil
}

// write writes a status over what was heard of last; if somebody was faster, the next time is soon enough.
func (k *Keeper) write(ctx context.Context, is *asked, f Facts) error {
	r := api.New(api.KindCalicoNodeStatus).(*api.CalicoNodeStatus)
	if err := json.Unmarshal(is.stored.Value, r); err != nil {
		return err
	}
	r.Status = Fill(is.classes, f)
	value, err := api.MergeRaw(is.stored.Value, r)
	if err != nil {
		return err
	}
	kv, err := k.cfg.Store.Update(ctx, api.Update{Key: is.stored.Key, Value: value, Revision: is.stored.Revision})
	switch {
	case errors.Is(err, datastore.ErrConflict), errors.Is(err, datastore.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	is.stored, is.unheard = kv, append(is.unheard, kv.Revision)
	return nil
}
