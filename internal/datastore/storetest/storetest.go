// Package storetest holds the contract of [datastore.Store] as tests.
//
// In: a way to open a store. Out: pass or fail. Every store runs it, so that
// what is proven against one holds for all.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Many is how many keys the test of long lists writes. A store that reads in
// pages should have pages of fewer than a third of that.
const Many = 40

// patience bounds each wait of a test: far above what a store needs.
const patience = 2 * time.Minute

// contract is one clause: a name that is a sentence, and its proof.
type contract struct {
	name string
	test func(*fixture)
}

// Run holds a store to the contract. open is called for each clause; the
// stores may share content, since each clause keeps to a prefix of its own.
func Run(t *testing.T, open func(*testing.T) datastore.Store) {
	for i, c := range slices.Concat(keyContracts, watchContracts, txnContracts) {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c.test(&fixture{T: t, ctx: ctx, store: open(t), prefix: fmt.Sprintf("/calico/storetest/%d/%d/", time.Now().UnixNano(), i)})
		})
	}
}

// fixture is a store, a prefix that is this test's own, and what fails it.
type fixture struct {
	*testing.T
	ctx    context.Context
	store  datastore.Store
	prefix string
}

func (f *fixture) create(name, value string) api.Update {
	f.Helper()
	kv, err := f.store.Create(f.ctx, api.Update{Key: f.prefix + name, Value: []byte(value)})
	if err != nil {
		f.Fatal(err)
	}
	return kv
}

func (f *fixture) update(name, value string) api.Update {
	f.Helper()
	kv, err := f.store.Update(f.ctx, api.Update{Key: f.prefix + name, Value: []byte(value)})
	if err != nil {
		f.Fatal(err)
	}
	return kv
}

func (f *fixture) delete(name string) {
	f.Helper()
	if err := f.store.Delete(f.ctx, f.prefix+name, api.Revision{}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) list() datastore.Snapshot {
	f.Helper()
	snap, err := f.store.List(f.ctx, f.prefix)
	if err != nil {
		f.Fatal(err)
	}
	if f.order() == nil { // else in what order they come is part of the contract
		slices.SortFunc(snap.Items, func(a, b api.Update) int { return strings.Compare(a.Key, b.Key) })
	}
	return snap
}

// order is that of the store; nil if it has none.
func (f *fixture) order() datastore.Ordered { return datastore.OrderOf(f.store) }

// want fails unless err is the one wanted, as errors.Is sees it.
func (f *fixture) want(what string, err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// words writes updates as name=value, or -name for a deletion.
func (f *fixture) words(updates []api.Update) string {
	var words []string
	for _, u := range updates {
		name := strings.TrimPrefix(u.Key, f.prefix)
		if u.Value == nil {
			words = append(words, "-"+name)
		} else {
			words = append(words, name+"="+string(u.Value))
		}
	}
	return strings.Join(words, " ")
}

func (f *fixture) equal(what, got, want string) {
	f.Helper()
	if got != want {
		f.Errorf("%s: got %q, want %q", what, got, want)
	}
}
