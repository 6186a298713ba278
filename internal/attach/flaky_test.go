package attach

import (
	"context"
	"errors"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// flaky fails at one call, or from one call on, as a process that was killed does.
type flaky struct {
	storetest.InMemory
	mu      sync.Mutex
	left    int // calls that still succeed; negative: all
	forever bool
}

var errFault = errors.New("injected fault")

func (f *flaky) fails() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.left < 0:
		return nil
	case f.left > 0:
		f.left--
		return nil
	case !f.forever:
		f.left = -1
	}
	return errFault
}

func (f *flaky) Get(ctx context.Context, key string) (api.Update, error) {
	if err := f.fails(); err != nil {
		return api.Update{}, err
	}
	return f.InMemory.Get(ctx, key)
}

func (f *flaky) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if err := f.fails(); err != nil {
		return datastore.Snapshot{}, err
	}
	return f.InMemory.List(ctx, prefix)
}

func (f *flaky) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := f.fails(); err != nil {
		return api.Update{}, err
	}
	return f.InMemory.Create(ctx, kv)
}

func (f *flaky) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := f.fails(); err != nil {
		return api.Update{}, err
	}
	return f.InMemory.Update(ctx, kv)
}

func (f *flaky) Delete(ctx context.Context, key string, revision api.Revision) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.InMemory.Delete(ctx, key, revision)
}

// flakyTxn is one that has transactions.
type flakyTxn struct {
	*flaky
	txn datastore.Transactional
}

func (f flakyTxn) Transact(ctx context.Context, x datastore.Txn) (api.Revision, error) {
	if err := f.fails(); err != nil {
		return api.Revision{}, err
	}
	return f.txn.Transact(ctx, x)
}

// all is the store with all that it can do.
func (f *flaky) all() datastore.Store {
	if t, ok := f.InMemory.(datastore.Transactional); ok {
		return flakyTxn{f, t}
	}
	return f
}
