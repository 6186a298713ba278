package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

var txnContracts = []contract{
	{"a transaction changes all its keys at one revision", txnIsOneRevision},
	{"a transaction whose condition fails changes nothing", txnIsAllOrNothing},
	{"a transaction can want a key to be absent", txnWantsAbsence},
	{"a transaction deletes what may not exist", txnDeletesTheMissing},
	{"a watch gets a transaction whole", txnIsWatchedWhole},
	{"a transaction that changes a key twice, or too many, is refused", txnIsChecked},
	{"of concurrent transactions on one revision one wins", oneTxnWins},
}

func (f *fixture) transactional() datastore.Transactional {
	f.Helper()
	s, ok := f.store.(datastore.Transactional)
	if !ok {
		f.Skip("this store has no transactions")
	}
	return s
}

// txn writes keys of the fixture by their short names.
func (f *fixture) txn(conds map[string]api.Revision, put map[string]string, del ...string) (api.Revision, error) {
	f.Helper()
	t := datastore.Txn{If: map[string]api.Revision{}}
	for name, revision := range conds {
		t.If[f.prefix+name] = revision
	}
	for name, value := range put {
		t.Put = append(t.Put, api.Update{Key: f.prefix + name, Value: []byte(value), Revision: api.RevisionOf("77")})
	}
	for _, name := range del {
		t.Delete = append(t.Delete, f.prefix+name)
	}
	return f.transactional().Transact(f.ctx, t)
}

func txnIsOneRevision(f *fixture) {
	f.transactional()
	a, b := f.create("a", "1"), f.create("b", "1")
	rev, err := f.txn(map[string]api.Revision{"a": a.Revision, "b": b.Revision, "c": {}}, map[string]string{"a": "2", "c": ""}, "b")
	if err != nil || rev.IsZero() || rev == b.Revision {
		f.Fatalf("revision %s, error %v", rev, err)
	}
	snap := f.list()
	f.equal("list", f.words(snap.Items), "a=2 c=")
	for _, kv := range snap.Items {
		if kv.Revision != rev || kv.Value == nil {
			f.Errorf("%s: value %#v of revision %s, want %s", kv.Key, kv.Value, kv.Revision, rev)
		}
	}
	if o := f.order(); o != nil && snap.Position.String() != rev.String() {
		f.Errorf("list is of position %s, want %s: one transaction, one revision", snap.Position, rev)
	}
}

func txnIsAllOrNothing(f *fixture) {
	f.transactional()
	a, b := f.create("a", "1"), f.create("b", "1")
	before := f.list().Position
	for name, conds := range map[string]map[string]api.Revision{
		"an old revision":                {"a": a.Revision, "b": api.RevisionOf("1")},
		"a missing key":                  {"a": a.Revision, "gone": b.Revision},
		"a key that should not exist":    {"a": a.Revision, "b": {}},
		"a revision that is yet to come": {"a": api.RevisionOf(a.Revision.String() + "100")},
	} {
		_, err := f.txn(conds, map[string]string{"a": "2", "c": "1"}, "b")
		f.want(name, err, datastore.ErrConflict)
	}
	snap := f.list()
	f.equal("list", f.words(snap.Items), "a=1 b=1")
	if snap.Position != before {
		f.Errorf("position went from %s to %s", before, snap.Position)
	}
}

func txnWantsAbsence(f *fixture) {
	f.transactional()
	if _, err := f.txn(map[string]api.Revision{"a": {}}, map[string]string{"a": "1"}); err != nil {
		f.Fatal(err)
	}
	_, err := f.txn(map[string]api.Revision{"a": {}}, map[string]string{"a": "2"})
	f.want("again", err, datastore.ErrConflict)
	f.delete("a")
	if _, err := f.txn(map[string]api.Revision{"a": {}}, map[string]string{"a": "3"}); err != nil {
		f.Errorf("after a deletion: %v", err)
	}
	f.equal("list", f.words(f.list().Items), "a=3")
}

func txnDeletesTheMissing(f *fixture) {
	f.transactional()
	f.create("a", "1")
	before := f.list().Position
	rev, err := f.txn(nil, nil, "never", "nor")
	if err != nil || f.list().Position != before || f.order() != nil && rev.String() != before.String() {
		f.Errorf("revision %s, error %v; want %s, since nothing changed", rev, err, before)
	}
	if _, err := f.txn(nil, map[string]string{"b": "1"}, "a", "never"); err != nil {
		f.Error(err)
	}
	f.equal("list", f.words(f.list().Items), "b=1")
}

func txnIsWatchedWhole(f *fixture) {
	f.transactional()
	f.create("a", "1")
	since := f.list().Position
	w, err := f.store.Watch(f.ctx, f.prefix, since)
	if err != nil {
		f.Fatal(err)
	}
	defer w.Close()
	rev, err := f.txn(nil, map[string]string{"b": "1", "c": "1"}, "a")
	if err != nil {
		f.Fatal(err)
	}
	after := f.list().Position
	f.update("b", "2")
	var got []api.Update
	for len(got) < 4 {
		changes, err := w.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		got = append(got, changes.Updates...)
		if n := len(got); n > 0 && n < 3 {
			f.Errorf("a delivery ends within a transaction: %s", f.words(got))
		}
	}
	for _, u := range got[:3] {
		if u.Revision != rev {
			f.Errorf("%s has revision %s, want %s", u.Key, u.Revision, rev)
		}
	}
	// And a watch that begins at the transaction does not get a part of it.
	late, err := f.store.Watch(f.ctx, f.prefix, after)
	if err != nil {
		f.Fatal(err)
	}
	defer late.Close()
	for {
		changes, err := late.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		if len(changes.Updates) > 0 {
			f.equal("after the transaction", f.words(changes.Updates), "b=2")
			return
		}
	}
}

func txnIsChecked(f *fixture) {
	s := f.transactional()
	twice := datastore.Txn{Put: []api.Update{{Key: f.prefix + "a"}}, Delete: []string{f.prefix + "a"}}
	if _, err := s.Transact(f.ctx, twice); err == nil {
		f.Error("a key that is put and deleted was taken")
	}
	many := datastore.Txn{}
	for i := range datastore.MostChanges {
		many.Put = append(many.Put, api.Update{Key: fmt.Sprintf("%sk%03d", f.prefix, i), Value: []byte("1")})
	}
	if _, err := s.Transact(f.ctx, many); err != nil || len(f.list().Items) != datastore.MostChanges {
		f.Errorf("as many as are allowed: %v", err)
	}
	many.Put = append(many.Put, api.Update{Key: f.prefix + "more"})
	if _, err := s.Transact(f.ctx, many); err == nil {
		f.Error("one too many was taken")
	}
}

func oneTxnWins(f *fixture) {
	f.transactional()
	a := f.create("a", "0")
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := f.txn(map[string]api.Revision{"a": a.Revision}, map[string]string{"a": "1", fmt.Sprintf("b%d", i): "1"})
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, datastore.ErrConflict):
				lost.Add(1)
			default:
				f.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(f.list().Items); won.Load() != 1 || lost.Load() != 7 || n != 2 {
		f.Errorf("%d won, %d lost, %d keys", won.Load(), lost.Load(), n)
	}
}
