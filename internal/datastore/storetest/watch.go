package storetest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

var watchContracts = []contract{
	{"a watch after a list sees each change once and in order", watchSeesAll},
	{"a watch from an old position brings what was since", watchCatchesUp},
	{"a watch sees only its prefix", watchKeepsToPrefix},
	{"a deletion has a revision and a nil value", deletionHasRevision},
	{"an empty value in a watch is not a deletion", emptyIsNoDeletion},
	{"two watches see the same under concurrent writers", watchesAgree},
	{"a watch can go on from the position of another", watchResumes},
	{"a watch's position covers what it delivered", positionCovers},
	{"a watch ends with its context", watchEndsWithContext},
	{"next ends with its own context and the watch goes on or ends cleanly", nextEndsWithContext},
	{"a closed watch ends", closedWatchEnds},
	{"a watch of forgotten history says so", compactedWatch},
	{"a watch of what is yet to come says that history was lost", futureWatch},
	{"compaction does not end a watch that is up to date", compactionSparesWatch},
	{"compaction up to a position spares what is younger", compactionSparesWhatIsYounger},
}

func (f *fixture) watch(after datastore.Position) datastore.Watcher {
	f.Helper()
	if _, poor := f.store.(*Poor); poor {
		w := &resumed{f: f, after: after}
		f.Cleanup(w.Close)
		return w
	}
	w, err := f.store.Watch(f.ctx, f.prefix, after)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(w.Close)
	return w
}

// read takes n updates of a watch and checks that nothing goes backwards.
func (f *fixture) read(w datastore.Watcher, n int) []api.Update {
	f.Helper()
	var got []api.Update
	var last api.Revision
	var upTo datastore.Position
	o := f.order()
	for len(got) < n {
		c, err := w.Next(f.ctx)
		if err != nil {
			f.Fatalf("after %d of %d updates: %v", len(got), n, err)
		}
		for _, u := range c.Updates {
			if o != nil && !last.IsZero() && o.Older(u.Revision, last) {
				f.Errorf("%s has revision %s, after %s", u.Key, u.Revision, last)
			}
			last = u.Revision
		}
		if c.Position.IsZero() || o != nil && !upTo.IsZero() && o.Behind(c.Position, upTo) {
			f.Errorf("the watch went back from position %s to %q", upTo, c.Position)
		}
		upTo = c.Position
		got = append(got, c.Updates...)
	}
	if len(got) > n {
		f.Errorf("got %d updates, want %d: %s", len(got), n, f.words(got))
	}
	return got
}

func watchSeesAll(f *fixture) {
	f.create("before", "0")
	w := f.watch(f.list().Position)
	f.create("a", "1")
	f.update("a", "2")
	f.delete("a")
	f.create("a", "3")
	f.update("before", "4")
	f.equal("watch", f.words(f.read(w, 5)), "a=1 a=2 -a a=3 before=4")
}

func watchCatchesUp(f *fixture) {
	f.create("a", "1")
	first := f.list().Position
	f.update("a", "2")
	f.create("b", "1")
	f.delete("a")
	w := f.watch(first)
	f.create("c", "1")
	f.equal("watch", f.words(f.read(w, 4)), "a=2 b=1 -a c=1")
}

func watchKeepsToPrefix(f *fixture) {
	start := f.list().Position
	other := *f
	other.prefix = strings.TrimSuffix(f.prefix, "/") + "-other/"
	w := f.watch(start)
	other.create("a", "1")
	f.create("b", "1")
	other.delete("a")
	f.create("c", "1")
	f.equal("watch", f.words(f.read(w, 2)), "b=1 c=1")
}

func deletionHasRevision(f *fixture) {
	created := f.create("a", "1")
	w := f.watch(f.list().Position)
	f.delete("a")
	got := f.read(w, 1)[0]
	if o := f.order(); got.Value != nil || got.Revision == created.Revision || o != nil && !o.Older(created.Revision, got.Revision) {
		f.Errorf("got value %q at %s, want nil above %s", got.Value, got.Revision, created.Revision)
	}
}

func emptyIsNoDeletion(f *fixture) {
	w := f.watch(f.list().Position)
	f.create("a", "")
	if got := f.read(w, 1)[0]; got.Value == nil {
		f.Error("an empty value came as nil")
	}
}

func watchesAgree(f *fixture) {
	const writers, rounds = 4, 10
	start := f.list().Position
	early := f.watch(start)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			name := fmt.Sprint("k", i)
			for range rounds {
				if err := f.cycle(name); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	late := f.watch(start)
	a, b := f.read(early, writers*rounds*3), f.read(late, writers*rounds*3)
	f.equal("second watch", f.words(b), f.words(a))
}

// cycle creates, changes and deletes a key.
func (f *fixture) cycle(name string) error {
	kv := api.Update{Key: f.prefix + name, Value: []byte("1")}
	if _, err := f.store.Create(f.ctx, kv); err != nil {
		return err
	}
	kv.Value = []byte("2") // to write what is there already may be no change
	if _, err := f.store.Update(f.ctx, kv); err != nil {
		return err
	}
	return f.store.Delete(f.ctx, kv.Key, api.Revision{})
}

func watchResumes(f *fixture) {
	w := f.watch(f.list().Position)
	f.create("a", "1")
	c, err := w.Next(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	w.Close()
	f.update("a", "2")
	f.equal("resumed watch", f.words(f.read(f.watch(c.Position), 1)), "a=2")
}

// positionCovers writes outside of the prefix until the watch reports a
// position that it saw no change at, or says nothing at all: either is
// allowed, but a position must never pass a change that is yet to come.
func positionCovers(f *fixture) {
	w := f.watch(f.list().Position)
	other := *f
	other.prefix = strings.TrimSuffix(f.prefix, "/") + "-other/"
	other.create("a", "1")
	f.create("b", "1")
	last := f.list().Position
	for {
		c, err := w.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		o := f.order()
		if len(c.Updates) > 0 {
			f.equal("watch", f.words(c.Updates), "b=1")
			if o != nil && o.Behind(c.Position, last) {
				f.Errorf("position is %s, want at least %s", c.Position, last)
			}
			f.update("b", "2")
			f.equal("from that position", f.words(f.read(f.watch(c.Position), 1)), "b=2")
			return
		}
		if o != nil && !o.Behind(c.Position, last) {
			f.Fatalf("position passed %s without the change", last)
		}
		f.equal("from a position without the change", f.words(f.read(f.watch(c.Position), 1)), "b=1")
	}
}

func watchEndsWithContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	w, err := f.store.Watch(ctx, f.prefix, f.list().Position)
	if err != nil {
		f.Fatal(err)
	}
	defer w.Close()
	cancel()
	if c, err := w.Next(f.ctx); err == nil {
		f.Errorf("got %v, want an error", c)
	}
}

func nextEndsWithContext(f *fixture) {
	w := f.watch(f.list().Position)
	ctx, cancel := context.WithTimeout(f.ctx, time.Millisecond)
	defer cancel()
	_, err := w.Next(ctx)
	f.want("next", err, context.DeadlineExceeded)
}

func closedWatchEnds(f *fixture) {
	w := f.watch(f.list().Position)
	done := make(chan error, 1)
	go func() {
		_, err := w.Next(f.ctx)
		done <- err
	}()
	w.Close()
	w.Close() // twice is no error
	select {
	case err := <-done:
		if err == nil {
			f.Error("next returned without an error")
		}
	case <-f.ctx.Done():
		f.Error("next still waits")
	}
}

// compact makes the store forget what was until now.
func (f *fixture) compact() {
	f.Helper()
	f.compactTo(datastore.Position{})
}

// compactTo makes the store forget what was until a position; a poor one, until now.
func (f *fixture) compactTo(upTo datastore.Position) {
	f.Helper()
	c, ok := f.store.(datastore.Compacter)
	if p, poor := f.store.(*Poor); poor {
		p.Forget()
		return
	}
	if !ok {
		f.Skip("the store cannot be compacted")
	}
	if err := c.Compact(f.ctx, upTo); err != nil {
		f.Fatal(err)
	}
}

func compactedWatch(f *fixture) {
	f.create("a", "1")
	first := f.list().Position
	f.update("a", "2")
	f.update("a", "3")
	f.compact()
	w, err := f.store.Watch(f.ctx, f.prefix, first)
	if err == nil { // it may also be the first delivery that says so
		defer w.Close()
		_, err = w.Next(f.ctx)
	}
	f.want("watch", err, datastore.ErrCompacted)
	f.equal("list", f.words(f.list().Items), "a=3")
	w = f.watch(f.list().Position)
	f.update("a", "4")
	f.equal("watch after list", f.words(f.read(w, 1)), "a=4")
}

// beyond is a position that the store has yet to reach, or never will.
func beyond(p datastore.Position) datastore.Position {
	if n, err := strconv.ParseInt(p.String(), 10, 64); err == nil {
		return datastore.PositionOf(strconv.FormatInt(n+1000, 10))
	}
	return datastore.PositionOf(p.String() + "1000")
}

// futureWatch is a watch on a store that was put back from a backup: what
// comes until it passes the revision would be missed.
func futureWatch(f *fixture) {
	w, err := f.store.Watch(f.ctx, f.prefix, beyond(f.list().Position))
	if err == nil { // it may take a while to tell, since a replica may lag
		defer w.Close()
		_, err = w.Next(f.ctx)
	}
	f.want("watch", err, datastore.ErrCompacted)
}

func compactionSparesWhatIsYounger(f *fixture) {
	if _, poor := f.store.(*Poor); poor {
		f.Skip("a poor store forgets all at once")
	}
	first := f.list().Position
	f.create("a", "1")
	f.create("b", "1")
	then := f.list().Position
	f.update("a", "2")
	for range 2 { // the second time, it is forgotten already
		f.compactTo(then)
		f.equal("watch", f.words(f.read(f.watch(then), 1)), "a=2")
		w, err := f.store.Watch(f.ctx, f.prefix, first)
		if err == nil {
			_, err = w.Next(f.ctx)
			w.Close()
		}
		f.want("a watch from before", err, datastore.ErrCompacted)
	}
}

func compactionSparesWatch(f *fixture) {
	f.create("a", "1")
	w := f.watch(f.list().Position)
	f.compact()
	f.update("a", "2")
	f.equal("watch", f.words(f.read(w, 1)), "a=2")
}

func contextEndsCalls(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	now := f.list().Position
	cancel()
	_, err := f.store.List(ctx, f.prefix)
	f.want("list", err, context.Canceled)
	_, err = f.store.Watch(ctx, f.prefix, now)
	f.want("watch", err, context.Canceled)
}
