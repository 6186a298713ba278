package syncer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// event is what a feed reports to the loop about its prefix.
type event struct {
	feed    int
	prefix  string
	state   Status
	first   bool         // a list of all that the prefix holds begins with these updates
	last    bool         // it ends with them
	piece   bool         // it is part of such a list, of which the next comes when the reader has taken enough
	updates []api.Update // of a list, or changes after it

	position datastore.Position // up to which nothing is lacking with these updates; zero: not said
}

// staleFor is for how long lists that are older than what was seen are not taken. A replica or a cache that lags catches up by then;
// a store put back from a backup does not.
const staleFor = time.Second

// soon is the number of failures in a row that counts when a store answers again, or too early: what it wants next does not wait as
// long as one that is away.
const soon = 3

// feed lists and watches one prefix.
type feed struct {
	s      *Syncer
	index  int
	prefix string
	log    *slog.Logger

	dates    datastore.Dated    // nil: the store says of no position which is older
	position datastore.Position // all changes up to it were sent; zero: list first
	highest  datastore.Position // that position has ever been
	listed   bool               // once
	failures int                // in a row
	failed   Status             // what the last failure showed
	stale    time.Time          // since when lists in a row are behind highest; zero: the last was not
}

// run goes on until ctx ends: whatever fails is tried again.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		f.failures++
		state := WaitForDatastore
		if errors.Is(err, datastore.ErrCompacted) {
			f.position = datastore.Position{}
		}
		if errors.Is(err, datastore.ErrCompacted) || errors.Is(err, errStale) {
			state = ResyncInProgress // it answers
		}
		if errors.Is(err, errStale) {
			f.failures = soon
		} else {
			f.stale = time.Time{}
		}
		if state == ResyncInProgress && f.failed == WaitForDatastore {
			f.failures = min(f.failures, soon)
		}
		if f.failures == 1 || f.failures%20 == 0 || state != f.failed { // not each of a long outage
			f.log.Warn("follow datastore", "err", err, "failures", f.failures)
		}
		f.failed = state
		if f.emit(ctx, event{state: state}) != nil || f.s.wait(ctx, f.failures, began) != nil {
			return
		}
	}
}

// follow lists if it must and watches until something fails.
func (f *feed) follow(ctx context.Context) error {
	if f.position.IsZero() {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	w, err := f.s.store.Watch(ctx, f.prefix, f.position)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := f.emit(ctx, event{state: InSync}); err != nil {
		return err
	}
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return err
		}
		f.failures = 0
		if len(changes.Updates) > 0 {
			if changes.Updates, err = f.withReadiness(ctx, changes.Updates); err != nil {
				return err
			}
			if err := f.emit(ctx, event{state: InSync, updates: changes.Updates, position: changes.Position}); err != nil {
				return err
			}
		}
		if !f.behind(changes.Position, f.position) {
			f.position = changes.Position
		}
		if !f.behind(f.position, f.highest) {
			f.highest = f.position
		}
	}
}

// behind says whether a position is known to come before another.
func (f *feed) behind(p, other datastore.Position) bool {
	return p.IsZero() && !other.IsZero() || f.dates != nil && !other.IsZero() && f.dates.Behind(p, other)
}

// withReadiness adds the deletion of ClusterInformation default to changes that leave nothing of this prefix, if it is gone, too. Who empties
// a datastore empties all its prefixes, but the feed of another may hear of it later, and until then the reader would take what is lost for deleted.
func (f *feed) withReadiness(ctx context.Context, changes []api.Update) ([]api.Update, error) {
	key := api.KeyPrefix(api.KindClusterInformation, "") + "default"
	other := func(prefix string) bool { return prefix != f.prefix && strings.HasPrefix(key, prefix) }
	if !slices.ContainsFunc(f.s.cfg.Prefixes, other) {
		return changes, nil
	}
	if changes != nil {
		if empties, err := f.s.ask(ctx, (*merge).empties, f.prefix, changes); err != nil || !empties {
			return changes, err
		}
	}
	// It is listed, since who follows it may do that, and may have no right to get it by itself.
	snap, err := f.s.store.List(ctx, api.KeyPrefix(api.KindClusterInformation, ""))
	switch {
	case errors.Is(err, datastore.ErrUnauthorized):
		return changes, nil
	case err != nil:
		return nil, err
	case slices.ContainsFunc(snap.Items, func(u api.Update) bool { return u.Key == key }):
		return changes, nil
	}
	return append(slices.Clip(changes), api.Update{Key: key}), nil
}

// errStale ends an attempt; the next one lists again.
var errStale = errors.New("list is older than what was seen")

func (f *feed) list(ctx context.Context) error {
	if p, ok := f.s.store.(datastore.Paged); ok && !f.listed {
		return f.listPaged(ctx, p)
	}
	snap, err := f.s.store.List(ctx, f.prefix)
	if err != nil {
		return err
	}
	if f.behind(snap.Position, f.highest) {
		if err := f.older(ctx, snap); err != nil {
			return err
		}
	}
	if f.listed && len(snap.Items) == 0 {
		if snap.Items, err = f.withReadiness(ctx, nil); err != nil {
			return err
		}
	}
	f.stale = time.Time{}
	f.took(snap.Position)
	// The snapshot is complete, so the prefix is in sync although the watch,
	// which brings what is later, does not run yet.
	return f.emit(ctx, event{state: InSync, first: true, last: true, updates: snap.Items, position: snap.Position})
}

// older judges a list that is behind what was seen. One that differs in nothing is as new: no key of this prefix changed since.
func (f *feed) older(ctx context.Context, snap datastore.Snapshot) error {
	if differs, err := f.s.ask(ctx, (*merge).differs, f.prefix, snap.Items); err != nil || !differs {
		return err
	}
	if f.stale.IsZero() {
		f.stale = time.Now()
		f.log.Warn("a list is older than what was seen; asking again", "position", snap.Position, "seen", f.highest)
	}
	if follower, ok := f.s.store.(datastore.Follower); ok {
		if err := follower.PutBack(ctx, f.prefix, f.highest); err != nil {
			return err
		}
	} else if time.Since(f.stale) < staleFor {
		return errStale
	}
	f.log.Warn("the datastore was put back to an older state", "position", snap.Position, "seen", f.highest)
	return nil
}

// listPaged lists for the first time: the reader gets each piece as it comes. Later lists are passed on whole, since half of
// one and half of what was known before is a state that never was, and the reader goes by what it has once it is in sync.
func (f *feed) listPaged(ctx context.Context, store datastore.Paged) error {
	var at datastore.Position
	err := store.Pages(ctx, f.prefix, func(piece datastore.Snapshot, first bool) error {
		at = piece.Position
		return f.emit(ctx, event{state: ResyncInProgress, piece: true, first: first, updates: piece.Items})
	})
	if err != nil {
		return err
	}
	f.took(at)
	return f.emit(ctx, event{state: InSync, last: true, position: at})
}

// took notes that all up to a position was listed.
func (f *feed) took(p datastore.Position) { f.listed, f.highest, f.position = true, p, p }

func (f *feed) emit(ctx context.Context, e event) error {
	e.feed, e.prefix = f.index, f.prefix
	return f.s.send(ctx, e)
}
