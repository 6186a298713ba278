package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Config of a Keeper.
type Config struct {
	Node  string
	Store datastore.Store
	Ask   func(ctx context.Context, routes bool) (Facts, error) // the speaker; routes only if they are wanted
	Log   *slog.Logger
}

// Keeper writes the status of the resources that ask this node. Any goroutine may use it.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	mu     sync.Mutex
	frozen bool // the datastore says that it is not ready
	asked  map[string]*asked

	said string // what the log last said is wrong; Run's alone
}

// asked is a resource that asks this node.
type asked struct {
	stored  api.Update
	classes []string
	period  time.Duration
	due     time.Time
	unheard []api.Revision // what we wrote since, one over the other, the last of which is stored
}

// New returns a Keeper, which writes nothing until Run.
func New(c Config) *Keeper {
	return &Keeper{cfg: c, wake: make(chan struct{}, 1), asked: map[string]*asked{}}
}

// Prefixes are the keys of which a Keeper is to be told.
func Prefixes() []string {
	return []string{api.KeyPrefix(api.KindCalicoNodeStatus, ""), api.KeyPrefix(api.KindClusterInformation, "")}
}

// Update takes in what is the keeper's, and reports whether it is.
func (k *Keeper) Update(u api.Update) bool {
	ref, ok := api.ParseKey(u.Key)
	if !ok || ref.Kind != api.KindCalicoNodeStatus && ref.Kind != api.KindClusterInformation {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var s api.Stored
	if u.Value != nil {
		var err error
		if s, err = api.Admit(u); err != nil {
			return true
		}
	}
	if ref.Kind == api.KindClusterInformation {
		info, ok := s.Resource.(*api.ClusterInformation)
		k.frozen = ok && info.Spec.DatastoreReady != nil && !*info.Spec.DatastoreReady
		return true
	}
	r, ok := s.Resource.(*api.CalicoNodeStatus)
	if !ok || r.Spec.Node != k.cfg.Node || r.Spec.UpdatePeriodSeconds == nil || *r.Spec.UpdatePeriodSeconds == 0 || s.Closed != "" {
		delete(k.asked, u.Key)
		return true
	}
	is := k.asked[u.Key]
	if is == nil {
		is = &asked{}
		k.asked[u.Key] = is
	}
	period := time.Duration(*r.Spec.UpdatePeriodSeconds) * time.Second
	if is.period != period || !slices.Equal(is.classes, r.Spec.Classes) { // else it is what we wrote ourselves
		is.period, is.classes, is.due = period, r.Spec.Classes, time.Time{}
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	is.hear(u)
	return true
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

// Run writes until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.wake:
		case <-timer.C:
		}
		wait, err := k.round(ctx, time.Now())
		if err != nil && ctx.Err() == nil && k.said != err.Error() {
			k.cfg.Log.Warn("CalicoNodeStatus", "err", err)
		}
		if k.said = ""; err != nil {
			k.said = err.Error()
		}
		timer.Reset(wait)
	}
}

const idle = time.Hour // until the next look, if nothing is asked

// round writes what is due, and says when the next is.
func (k *Keeper) round(ctx context.Context, now time.Time) (time.Duration, error) {
	k.mu.Lock()
	due, routes := map[string]asked{}, false
	wait := idle
	for key, is := range k.asked {
		if !is.due.After(now) {
			is.due = now.Add(is.period)
			due[key] = *is
			routes = routes || slices.Contains(is.classes, api.ClassRoutes)
		}
		wait = min(wait, is.due.Sub(now))
	}
	frozen := k.frozen
	k.mu.Unlock()
	if len(due) == 0 || frozen {
		return wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(time.Second, wait))
	defer cancel()
	facts, err := k.cfg.Ask(ctx, routes)
	if err != nil {
		return wait, err
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(due)) {
		if err := k.write(ctx, due[key], facts); err != nil {
			errs = append(errs, fmt.Errorf("write %s: %w", key, err))
		}
	}
	return wait, errors.Join(errs...)
}

// write writes a status over what was heard of last; if somebody was faster, the next time is soon enough.
func (k *Keeper) write(ctx context.Context, is asked, f Facts) error {
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.asked[kv.Key]; now != nil && now.stored.Revision == is.stored.Revision {
		now.stored, now.unheard = kv, append(now.unheard, kv.Revision)
	}
	return nil
}
