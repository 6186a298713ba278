package etcdstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Transact makes all changes of t at one revision if all its conditions hold.
func (s *Store) Transact(ctx context.Context, t datastore.Txn) (api.Revision, error) {
	if err := t.Check(); err != nil {
		return api.Revision{}, err
	}
	var conds []clientv3.Cmp
	var changes, reads []clientv3.Op
	keys := slices.Sorted(maps.Keys(t.If))
	for _, key := range keys {
		conds = append(conds, clientv3.Compare(clientv3.ModRevision(key), "=", number(t.If[key].String()))) // a missing key has zero
		reads = append(reads, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	for _, kv := range t.Put {
		changes = append(changes, clientv3.OpPut(kv.Key, string(kv.Value)))
	}
	for _, key := range t.Delete {
		changes = append(changes, clientv3.OpDelete(key))
	}
	resp, err := s.do(ctx, clientv3.OpTxn(conds, changes, reads))
	if err != nil {
		return api.Revision{}, fmt.Errorf("transact %d keys: %w", len(changes), err)
	}
	txn := resp.Txn()
	if txn.Succeeded {
		return revisionOf(txn.Header.Revision), nil
	}
	for i, key := range keys {
		is := int64(0)
		if kvs := txn.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			is = kvs[0].ModRevision
		}
		if want := number(t.If[key].String()); is != want {
			return api.Revision{}, fmt.Errorf("transact %s: %w: revision is %d, not %d", key, datastore.ErrConflict, is, want)
		}
	}
	return api.Revision{}, fmt.Errorf("transact: %w", datastore.ErrConflict)
}
