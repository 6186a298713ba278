package ipam

import (
	"context"
	"fmt"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// fault is what happens to one call of a store.
type fault int

const (
	works        fault = iota
	conflicts          // another writer was first
	down               // no answer, and it was not done
	lost               // no answer, and it was done
	crashesFirst       // the caller dies before it
	crashesAfter       // the caller dies when it is done
)

// crash is what a dying caller panics with.
type crash struct{}

// faulty is one caller's way to a store: at is asked before each call.
type faulty struct {
	datastore.Store
	at func(verb, key string) fault
}

// inTransactions is faulty for a store with transactions.
type inTransactions struct{ faulty }

func (s inTransactions) Transact(ctx context.Context, t datastore.Txn) (rev api.Revision, err error) {
	err = s.call("transact", "", func() (err error) {
		rev, err = s.Store.(datastore.Transactional).Transact(ctx, t)
		return err
	})
	return rev, err
}

func (s faulty) call(verb, key string, do func() error) error {
	what := s.at(verb, key)
	write := verb != "get" && verb != "list"
	switch {
	case what == crashesFirst:
		panic(crash{})
	case what == down:
		return fmt.Errorf("%s %s: %w", verb, key, datastore.ErrUnavailable)
	case what == conflicts && write:
		return fmt.Errorf("%s %s: %w", verb, key, datastore.ErrConflict)
	}
	err := do()
	switch what {
	case crashesAfter:
		panic(crash{})
	case lost:
		return fmt.Errorf("%s %s: %w", verb, key, datastore.ErrUnavailable)
	}
	return err
}

func (s faulty) Get(ctx context.Context, key string) (u api.Update, err error) {
	err = s.call("get", key, func() (err error) { u, err = s.Store.Get(ctx, key); return err })
	return u, err
}

func (s faulty) List(ctx context.Context, prefix string) (snap datastore.Snapshot, err error) {
	err = s.call("list", prefix, func() (err error) { snap, err = s.Store.List(ctx, prefix); return err })
	return snap, err
}

func (s faulty) Create(ctx context.Context, kv api.Update) (u api.Update, err error) {
	err = s.call("create", kv.Key, func() (err error) { u, err = s.Store.Create(ctx, kv); return err })
	return u, err
}

func (s faulty) Update(ctx context.Context, kv api.Update) (u api.Update, err error) {
	err = s.call("update", kv.Key, func() (err error) { u, err = s.Store.Update(ctx, kv); return err })
	return u, err
}

func (s faulty) Delete(ctx context.Context, key string, revision api.Revision) error {
	return s.call("delete", key, func() error { return s.Store.Delete(ctx, key, revision) })
}

// phases says whether to do without transactions: both, if the store has them.
func phases() []bool {
	if storetest.IsPoor() {
		return []bool{true}
	}
	return []bool{false, true}
}

// through is an allocator on a store that asks at before each call. It keeps what it read.
func (f *fixture) through(at func(verb, key string) fault, twoPhase bool, pause func() error) *Allocator {
	cfg := Config{TwoPhase: twoPhase, Reuse: time.Nanosecond, Pause: func(context.Context, int) error { return pause() }}
	s := faulty{f.store, at}
	if twoPhase {
		return f.allocator(s, cfg)
	}
	return f.allocator(inTransactions{s}, cfg)
}
