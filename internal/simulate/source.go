package simulate

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// watched are the prefixes that an agent watches.
var watched = []string{api.ResourcesPrefix, api.BlockPrefix}

// load is what was read of a store.
type load struct{ keys, bytes int }

func (l *load) add(us ...api.Update) {
	l.keys += len(us)
	for _, u := range us {
		l.bytes += len(u.Key) + len(u.Value)
	}
}

// source is the store that one agent sees: it makes the world while it is listed, and hands changes on one by one, so that the agent
// gets the same batches each time. It holds nothing. It is a [datastore.Store] that can only be read.
type source struct {
	world   *world
	watches map[string]*watch
}

func newSource(w *world) *source {
	s := &source{world: w, watches: map[string]*watch{}}
	for _, p := range watched {
		s.watches[p] = &watch{in: make(chan []api.Update), merged: make(chan struct{}), revision: 1}
	}
	return s
}

// push hands changes to the watches, and returns when the agent's syncer has merged them.
func (s *source) push(ctx context.Context, us []api.Update) error {
	by := map[string][]api.Update{}
	for _, u := range us {
		p := api.ResourcesPrefix
		if _, block := api.ParseBlockKey(u.Key); block {
			p = api.BlockPrefix
		}
		by[p] = append(by[p], u)
	}
	for _, p := range watched {
		if len(by[p]) == 0 {
			continue
		}
		select {
		case s.watches[p].in <- by[p]:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-s.watches[p].merged:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// List is part of [datastore.Store].
func (s *source) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	snap := datastore.Snapshot{Position: datastore.PositionOf("1")}
	keep := func(u api.Update) { snap.Items = append(snap.Items, u) }
	if prefix == api.BlockPrefix {
		s.world.blocks(keep)
	} else {
		s.world.resources(keep)
	}
	return snap, ctx.Err()
}

// Watch is part of [datastore.Store].
func (s *source) Watch(_ context.Context, prefix string, _ datastore.Position) (datastore.Watcher, error) {
	w := s.watches[prefix]
	if w == nil {
		return nil, fmt.Errorf("watch %s: the simulation has %v", prefix, watched)
	}
	return w, nil
}

// errReadOnly is for what an agent in a simulation never does.
var errReadOnly = errors.New("the store of a simulation can only be listed and watched")

// Get is part of [datastore.Store].
func (*source) Get(context.Context, string) (api.Update, error) { return api.Update{}, errReadOnly }

// Create is part of [datastore.Store].
func (*source) Create(context.Context, api.Update) (api.Update, error) {
	return api.Update{}, errReadOnly
}

// Update is part of [datastore.Store].
func (*source) Update(context.Context, api.Update) (api.Update, error) {
	return api.Update{}, errReadOnly
}

// Delete is part of [datastore.Store].
func (*source) Delete(context.Context, string, api.Revision) error { return errReadOnly }

// watch hands over what is pushed.
type watch struct {
	in       chan []api.Update
	merged   chan struct{} // who follows the watch asks for more: it has handed on what it got
	busy     bool
	revision int
}

// Next is part of [datastore.Watcher].
func (w *watch) Next(ctx context.Context) (datastore.Changes, error) {
	if w.busy {
		w.busy = false
		select {
		case w.merged <- struct{}{}:
		case <-ctx.Done():
			return datastore.Changes{}, ctx.Err()
		}
	}
	select {
	case us := <-w.in:
		w.busy = true
		w.revision++
		return datastore.Changes{Updates: us, Position: datastore.PositionOf(strconv.Itoa(w.revision))}, nil
	case <-ctx.Done():
		return datastore.Changes{}, ctx.Err()
	}
}

// Close is part of [datastore.Watcher].
func (*watch) Close() {}
