package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

var watchContracts = []contract{
	{"a watch after a list sees each change once and in order", watchSeesAll},
	{"a watch from an old revision brings what was since", watchCatchesUp},
	{"a watch sees only its prefix", watchKeepsToPrefix},
	{"a deletion has a revision and a nil value", deletionHasRevision},
	{"an empty value in a watch is not a deletion", emptyIsNoDeletion},
	{"two watches see the same under concurrent writers", watchesAgree},
	{"a watch can go on from the revision of another", watchResumes},
	{"a watch's revision covers what it delivered", revisionCovers},
	{"a watch ends with its context", watchEndsWithContext},
	{"next ends with its own context and the watch goes on or ends cleanly", nextEndsWithContext},
	{"a closed watch ends", closedWatchEnds},
	{"a watch of forgotten history says so", compactedWatch},
	{"a watch of what is yet to come says that history was lost", futureWatch},
	{"compaction does not end a watch that is up to date", compactionSparesWatch},
}

func (f *fixture) watch(after int64) datastore.Watcher {
	f.Helper()
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
	var last, upTo int64
	for len(got) < n {
		c, err := w.Next(f.ctx)
		if err != nil {
			f.Fatalf("after %d of %d updates: %v", len(got), n, err)
		}
		for _, u := range c.Updates {
			if u.Revision < last || u.Revision > c.Revision {
				f.Errorf("%s has revision %d, after %d, in a delivery up to %d", u.Key, u.Revision, last, c.Revision)
			}
			last = u.Revision
		}
		if c.Revision < upTo {
			f.Errorf("the watch went back from revision %d to %d", upTo, c.Revision)
		}
		upTo = c.Revision
		got = append(got, c.Updates...)
	}
	if len(got) > n {
		f.Errorf("got %d updates, want %d: %s", len(got), n, f.words(got))
	}
	return got
}

func watchSeesAll(f *fixture) {
	f.create("before", "0")
	w := f.watch(f.list().Revision)
	f.create("a", "1")
	f.update("a", "2")
	f.delete("a")
	f.create("a", "3")
	f.update("before", "4")
	f.equal("watch", f.words(f.read(w, 5)), "a=1 a=2 -a a=3 before=4")
}

func watchCatchesUp(f *fixture) {
	first := f.create("a", "1")
	f.update("a", "2")
	f.create("b", "1")
	f.delete("a")
	w := f.watch(first.Revision)
	f.create("c", "1")
	f.equal("watch", f.words(f.read(w, 4)), "a=2 b=1 -a c=1")
}

func watchKeepsToPrefix(f *fixture) {
	start := f.list().Revision
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
	w := f.watch(created.Revision)
	f.delete("a")
	got := f.read(w, 1)[0]
	if got.Value != nil || got.Revision <= created.Revision {
		f.Errorf("got value %q at %d, want nil above %d", got.Value, got.Revision, created.Revision)
	}
}

func emptyIsNoDeletion(f *fixture) {
	w := f.watch(f.list().Revision)
	f.create("a", "")
	if got := f.read(w, 1)[0]; got.Value == nil {
		f.Error("an empty value came as nil")
	}
}

func watchesAgree(f *fixture) {
	const writers, rounds = 4, 10
	start := f.list().Revision
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
	if _, err := f.store.Update(f.ctx, kv); err != nil {
		return err
	}
	return f.store.Delete(f.ctx, kv.Key, 0)
}

func watchResumes(f *fixture) {
	w := f.watch(f.list().Revision)
	f.create("a", "1")
	c, err := w.Next(f.ctx)
	if err != nil {
		f.Fatal(err)
	}
	w.Close()
	f.update("a", "2")
	f.equal("resumed watch", f.words(f.read(f.watch(c.Revision), 1)), "a=2")
}

// revisionCovers writes outside of the prefix until the watch reports a
// revision that it saw no change at, or says nothing at all: either is
// allowed, but a revision must never pass a change that is yet to come.
func revisionCovers(f *fixture) {
	w := f.watch(f.list().Revision)
	other := *f
	other.prefix = strings.TrimSuffix(f.prefix, "/") + "-other/"
	other.create("a", "1")
	last := f.create("b", "1")
	for {
		c, err := w.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		if len(c.Updates) > 0 {
			f.equal("watch", f.words(c.Updates), "b=1")
			if c.Revision < last.Revision {
				f.Errorf("revision is %d, want at least %d", c.Revision, last.Revision)
			}
			return
		}
		if c.Revision >= last.Revision {
			f.Fatalf("revision passed %d without the change", last.Revision)
		}
	}
}

func watchEndsWithContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	w, err := f.store.Watch(ctx, f.prefix, f.list().Revision)
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
	w := f.watch(f.list().Revision)
	ctx, cancel := context.WithTimeout(f.ctx, time.Millisecond)
	defer cancel()
	_, err := w.Next(ctx)
	f.want("next", err, context.DeadlineExceeded)
}

func closedWatchEnds(f *fixture) {
	w := f.watch(f.list().Revision)
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

func (f *fixture) compact(revision int64) {
	f.Helper()
	c, ok := f.store.(Compacter)
	if !ok {
		f.Skip("the store cannot be compacted")
	}
	if err := c.Compact(f.ctx, revision); err != nil {
		f.Fatal(err)
	}
}

func compactedWatch(f *fixture) {
	first := f.create("a", "1")
	f.update("a", "2")
	last := f.update("a", "3")
	f.compact(last.Revision)
	w, err := f.store.Watch(f.ctx, f.prefix, first.Revision)
	if err == nil { // it may also be the first delivery that says so
		defer w.Close()
		_, err = w.Next(f.ctx)
	}
	f.want("watch", err, datastore.ErrCompacted)
	f.equal("list", f.words(f.list().Items), "a=3")
	w = f.watch(f.list().Revision)
	f.update("a", "4")
	f.equal("watch after list", f.words(f.read(w, 1)), "a=4")
}

// futureWatch is a watch on a store that was put back from a backup: what
// comes until it passes the revision would be missed.
func futureWatch(f *fixture) {
	w, err := f.store.Watch(f.ctx, f.prefix, f.list().Revision+1000)
	if err == nil { // it may take a while to tell, since a replica may lag
		defer w.Close()
		_, err = w.Next(f.ctx)
	}
	f.want("watch", err, datastore.ErrCompacted)
}

func compactionSparesWatch(f *fixture) {
	last := f.create("a", "1")
	w := f.watch(last.Revision)
	f.compact(last.Revision)
	f.update("a", "2")
	f.equal("watch", f.words(f.read(w, 1)), "a=2")
}

func contextEndsCalls(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := f.store.List(ctx, f.prefix)
	f.want("list", err, context.Canceled)
	_, err = f.store.Watch(ctx, f.prefix, 1)
	f.want("watch", err, context.Canceled)
}
