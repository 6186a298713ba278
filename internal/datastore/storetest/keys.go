package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

var keyContracts = []contract{
	{"each write has another revision, a higher one where there is an order", eachWriteIsNewer},
	{"values come back byte for byte", valuesAreKept},
	{"an empty value is not a missing key", emptyIsNotMissing},
	{"create refuses a key that exists", createRefuses},
	{"update refuses a key that is missing or changed", updateRefuses},
	{"delete refuses a key that is missing or changed", deleteRefuses},
	{"a deleted key can be created again", deletedCanReturn},
	{"a list is whole, and sorted and of one revision where there is an order", listIsWhole},
	{"a list in pieces is the list", piecesAreTheList},
	{"a prefix is of bytes, not of path segments", prefixIsBytes},
	{"a caller cannot change what is stored", valuesAreApart},
	{"of concurrent creates one wins", oneCreateWins},
	{"concurrent updates by revision lose nothing", updatesByRevision},
	{"an ended context ends a call", contextEndsCalls},
	{"a put writes whether the key exists or not", putWrites},
	{"an expiring key goes when nobody confirms it", expiringGoes},
}

func eachWriteIsNewer(f *fixture) {
	a := f.create("a", "1")
	b := f.create("b", "1")
	a2 := f.update("a", "2")
	before := f.list().Position
	f.delete("b")
	if a.Revision.IsZero() || b.Revision.IsZero() || a2.Revision.IsZero() || a.Revision == a2.Revision {
		f.Errorf("revisions are %q, %q, %q", a.Revision, b.Revision, a2.Revision)
	}
	if o := f.order(); o != nil {
		if !o.Older(a.Revision, b.Revision) || !o.Older(b.Revision, a2.Revision) || o.Older(a2.Revision, a2.Revision) {
			f.Errorf("revisions are %s, %s, %s", a.Revision, b.Revision, a2.Revision)
		}
	}
	if d := datastore.DatesOf(f.store); d != nil {
		if after := f.list().Position; !d.Behind(before, after) || d.Behind(after, before) || d.Behind(after, after) {
			f.Errorf("after a deletion the position is %s, not above %s", after, before)
		}
	}
	got, err := f.store.Get(f.ctx, f.prefix+"a")
	if err != nil || got.Revision != a2.Revision {
		f.Errorf("get: got revision %s, error %v, want that of the write, %s", got.Revision, err, a2.Revision)
	}
}

func valuesAreKept(f *fixture) {
	value := "{ \"a\":\t\"\\u0041\", \"z\":1.0 }\n\x00\xff"
	f.create("odd%2Fname/é", value)
	got, err := f.store.Get(f.ctx, f.prefix+"odd%2Fname/é")
	if err != nil || string(got.Value) != value {
		f.Errorf("got %q, error %v, want %q", got.Value, err, value)
	}
	f.equal("list", f.words(f.list().Items), "odd%2Fname/é="+value)
}

func emptyIsNotMissing(f *fixture) {
	kv := f.create("empty", "")
	if kv.Value == nil {
		f.Error("create returned a nil value")
	}
	got, err := f.store.Get(f.ctx, f.prefix+"empty")
	if err != nil || got.Value == nil || len(got.Value) != 0 {
		f.Errorf("get: got %#v, error %v, want an empty value that is not nil", got.Value, err)
	}
	if items := f.list().Items; len(items) != 1 || items[0].Value == nil {
		f.Errorf("list: got %#v", items)
	}
}

func createRefuses(f *fixture) {
	f.create("a", "1")
	_, err := f.store.Create(f.ctx, api.Update{Key: f.prefix + "a", Value: []byte("2")})
	f.want("create again", err, datastore.ErrExists)
	f.equal("list", f.words(f.list().Items), "a=1")
}

func updateRefuses(f *fixture) {
	_, err := f.store.Get(f.ctx, f.prefix+"a")
	f.want("get a missing key", err, datastore.ErrNotFound)
	for _, revision := range []api.Revision{{}, api.RevisionOf("7")} {
		_, err = f.store.Update(f.ctx, api.Update{Key: f.prefix + "a", Value: []byte("1"), Revision: revision})
		f.want("update a missing key", err, datastore.ErrNotFound)
	}
	first := f.create("a", "1")
	second := f.update("a", "2")
	first.Value = []byte("3")
	_, err = f.store.Update(f.ctx, first)
	f.want("update of an old revision", err, datastore.ErrConflict)
	f.equal("list", f.words(f.list().Items), "a=2")
	second.Value = []byte("4")
	if _, err = f.store.Update(f.ctx, second); err != nil {
		f.Errorf("update of the present revision: %v", err)
	}
	f.equal("list", f.words(f.list().Items), "a=4")
}

func deleteRefuses(f *fixture) {
	for _, revision := range []api.Revision{{}, api.RevisionOf("7")} {
		f.want("delete a missing key", f.store.Delete(f.ctx, f.prefix+"a", revision), datastore.ErrNotFound)
	}
	first := f.create("a", "1")
	second := f.update("a", "2")
	f.want("delete of an old revision", f.store.Delete(f.ctx, f.prefix+"a", first.Revision), datastore.ErrConflict)
	f.equal("list", f.words(f.list().Items), "a=2")
	if err := f.store.Delete(f.ctx, f.prefix+"a", second.Revision); err != nil {
		f.Errorf("delete of the present revision: %v", err)
	}
	f.equal("list", f.words(f.list().Items), "")
}

func deletedCanReturn(f *fixture) {
	first := f.create("a", "1")
	f.delete("a")
	second := f.create("a", "2")
	if o := f.order(); second.Revision == first.Revision || o != nil && !o.Older(first.Revision, second.Revision) {
		f.Errorf("revisions are %s, then %s", first.Revision, second.Revision)
	}
	_, err := f.store.Update(f.ctx, first)
	f.want("update of the key's former life", err, datastore.ErrConflict)
}

func listIsWhole(f *fixture) {
	want := ""
	for i := range Many { // backwards, so that only sorting makes it right
		f.create(fmt.Sprintf("k%03d", Many-1-i), "v")
		want += fmt.Sprintf(" k%03d=v", i)
	}
	last := f.update("k000", "v")
	snap := f.list()
	f.equal("list", " "+f.words(snap.Items), want)
	o := f.order()
	for _, kv := range snap.Items {
		if kv.Revision.IsZero() || o != nil && o.Older(last.Revision, kv.Revision) {
			f.Errorf("%s has revision %q after the last write, %s", kv.Key, kv.Revision, last.Revision)
		}
	}
	w := f.watch(snap.Position)
	f.update("k001", "w")
	f.equal("watch from the list", f.words(f.read(w, 1)), "k001=w") // the position has all that was before
}

// piecesAreTheList says that a [datastore.Paged] store passes all that List returns, in the same order if there is one, and ends when it is told to.
func piecesAreTheList(f *fixture) {
	s, ok := f.store.(datastore.Paged)
	if !ok {
		f.Skip("the store does not list in pieces")
	}
	for i := range 9 {
		f.create(fmt.Sprint("k", i), "v")
	}
	var all datastore.Snapshot
	begun := 0
	err := s.Pages(f.ctx, f.prefix, func(piece datastore.Snapshot, first bool) error {
		if first {
			begun++
			all = datastore.Snapshot{Position: piece.Position}
		}
		if piece.Position != all.Position && f.order() != nil {
			f.Errorf("a piece is of %s, the first of %s", piece.Position, all.Position)
		}
		all.Items, all.Position = append(all.Items, piece.Items...), piece.Position
		return nil
	})
	f.want("list in pieces", err, nil)
	if f.order() == nil {
		all.Items = all.Sorted()
	}
	f.equal("pieces", f.words(all.Items), f.words(f.list().Items))
	if begun == 0 {
		f.Error("no piece was the first")
	}
	f.create("l", "v")
	f.equal("watch from the pieces", f.words(f.read(f.watch(all.Position), 1)), "l=v")
	pieces, stop := 0, errors.New("enough")
	f.want("list that is ended", s.Pages(f.ctx, f.prefix, func(datastore.Snapshot, bool) error { pieces++; return stop }), stop)
	if pieces != 1 {
		f.Errorf("%d pieces came, want the first alone", pieces)
	}
	begun = 0
	f.want("list of nothing", s.Pages(f.ctx, f.prefix+"none/", func(piece datastore.Snapshot, first bool) error {
		if begun++; !first || len(piece.Items) > 0 || piece.Position.IsZero() {
			f.Errorf("a list of nothing has piece %+v, first %v", piece, first)
		}
		return nil
	}), nil)
	if begun != 1 {
		f.Errorf("a list of nothing has %d pieces, want one", begun)
	}
}

func prefixIsBytes(f *fixture) {
	f.create("ab", "1")
	f.create("a/x", "2")
	f.create("b", "3")
	snap, err := f.store.List(f.ctx, f.prefix+"a")
	if err != nil {
		f.Fatal(err)
	}
	slices.SortFunc(snap.Items, func(a, b api.Update) int { return strings.Compare(a.Key, b.Key) })
	f.equal("list of a", f.words(snap.Items), "a/x=2 ab=1")
	all, err := f.store.List(f.ctx, "")
	if err != nil || len(all.Items) < 3 {
		f.Errorf("list of all: %d keys, error %v", len(all.Items), err)
	}
}

func valuesAreApart(f *fixture) {
	in := []byte("one")
	if _, err := f.store.Create(f.ctx, api.Update{Key: f.prefix + "a", Value: in}); err != nil {
		f.Fatal(err)
	}
	copy(in, "two")
	copy(f.list().Items[0].Value, "two")
	f.equal("list", f.words(f.list().Items), "a=one")
}

func oneCreateWins(f *fixture) {
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := f.store.Create(f.ctx, api.Update{Key: f.prefix + "a", Value: fmt.Append(nil, i)})
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, datastore.ErrExists):
				lost.Add(1)
			default:
				f.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 7 {
		f.Errorf("%d won, %d lost", won.Load(), lost.Load())
	}
}

func updatesByRevision(f *fixture) {
	const writers, rounds = 4, 10
	f.create("count", "0")
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range rounds {
				if err := f.increment("count"); err != nil {
					f.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	f.equal("list", f.words(f.list().Items), fmt.Sprintf("count=%d", writers*rounds))
}

func (f *fixture) increment(name string) error {
	for {
		kv, err := f.store.Get(f.ctx, f.prefix+name)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
			return err
		}
		kv.Value = fmt.Append(nil, n+1)
		if _, err = f.store.Update(f.ctx, kv); !errors.Is(err, datastore.ErrConflict) {
			return err
		}
	}
}

func putWrites(f *fixture) {
	for _, value := range []string{"1", "2"} {
		if err := datastore.Put(f.ctx, f.store, api.Update{Key: f.prefix + "a", Value: []byte(value), Revision: api.RevisionOf("7")}); err != nil {
			f.Fatal(err)
		}
		f.equal("list", f.words(f.list().Items), "a="+value)
	}
}

func expiringGoes(f *fixture) {
	store, ok := f.store.(datastore.Expiring)
	if !ok {
		f.Skip("keys of this store do not expire")
	}
	f.create("stays", "1")
	since := f.list().Position
	put := func(value string, ttl time.Duration) error {
		return store.PutFor(f.ctx, api.Update{Key: f.prefix + "goes", Value: []byte(value)}, ttl)
	}
	for _, value := range []string{"1", "2"} { // for so long that a slow machine sees them
		if err := put(value, time.Hour); err != nil {
			f.Fatal(err)
		}
	}
	f.equal("list", f.words(f.list().Items), "goes=2 stays=1")
	for _, value := range []string{"3", "4"} {
		err := put(value, time.Second)
		for tries := 0; err != nil && tries < 20; tries++ { // what the key hangs on may end before it is written
			err = put(value, time.Second)
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	w := f.watch(since)
	for last, gone := false, false; !gone; { // between the two it may have been gone as well
		changes, err := w.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		for _, u := range changes.Updates {
			last = last || string(u.Value) == "4"
			gone = last && u.Value == nil
		}
	}
	f.equal("list", f.words(f.list().Items), "stays=1")
}
