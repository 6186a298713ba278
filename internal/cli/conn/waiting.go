package conn

import (
	"context"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// waitedFor says for how long a store is read, if that is long.
type waitedFor struct {
	datastore.Store
	wait func() (end func())
}

// waitedForTxn is waitedFor of a store with transactions.
type waitedForTxn struct {
	*waitedFor
	txn datastore.Transactional
}

// Transact is part of datastore.Transactional.
func (s *waitedForTxn) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	return s.txn.Transact(ctx, t)
}

// Unwrap is the store that has an order, if there is one.
func (s *waitedFor) Unwrap() datastore.Store { return s.Store }

// Get is part of datastore.Store.
func (s *waitedFor) Get(ctx context.Context, key string) (api.Update, error) {
	defer s.wait()()
	return s.Store.Get(ctx, key)
}

// List is part of datastore.Store.
func (s *waitedFor) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	defer s.wait()()
	return s.Store.List(ctx, prefix)
}
