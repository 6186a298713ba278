package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Store is a client of an etcd cluster. It is safe for concurrent use.
type Store struct {
	cfg      config
	progress progressCheck

	mu     sync.Mutex
	client *clientv3.Client // nil until the first log-in succeeded
	closed bool
	lease  lease
}

// New returns a store. It fails if the settings are wrong, or etcd refuses the
// credentials, or the kernel a connection to its socket; etcd being away is no error here, but ErrUnavailable from each
// call until it is back. ctx bounds New only.
func New(ctx context.Context, given datastore.Config) (*Store, error) {
	cfg := config(given)
	cfg.setDefaults()
	if _, err := cfg.client(); err != nil {
		return nil, err
	}
	if err := socketError(cfg.Endpoints); err != nil {
		return nil, fmt.Errorf("etcd: %w: %w", datastore.ErrUnauthorized, err)
	}
	s := &Store{cfg: cfg}
	if _, err := s.connect(ctx); err != nil && !errors.Is(err, datastore.ErrUnavailable) {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return s, nil
}

// connect returns the client. Making one contacts etcd only to log in.
func (s *Store) connect(ctx context.Context) (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the store is closed", datastore.ErrUnavailable)
	}
	if s.client != nil {
		return s.client, nil
	}
	with, err := s.cfg.discovered(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := with.client()
	if err != nil {
		return nil, err
	}
	// The client lives longer than the call that makes it, so the call's
	// context may only end the log-in.
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	cfg.Context = life
	client, err := clientv3.New(cfg)
	if !stop() && err == nil {
		client.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, translate(ctx, err)
	}
	s.client = client
	return client, nil
}

// Close ends all that the store does.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client == nil {
		return nil
	}
	err := s.client.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // how the client says that it was closed
	}
	return err
}

// Ping asks the cluster, not just a member, whether it can serve.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.do(ctx, clientv3.OpGet(api.Root, clientv3.WithCountOnly()))
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return nil // an answer from the cluster
	}
	return wrap("ping", "etcd", err)
}

// Get returns the present value of a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (api.Update, error) {
	resp, err := s.do(ctx, clientv3.OpGet(key))
	if err == nil && len(resp.Get().Kvs) == 0 {
		err = datastore.ErrNotFound
	}
	if err != nil {
		return api.Update{}, wrap("get", key, err)
	}
	return updateOf(resp.Get().Kvs[0]), nil
}

// Create writes a new key, or returns ErrExists.
func (s *Store) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	resp, err := s.do(ctx, clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(kv.Key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(kv.Key, string(kv.Value))}, nil))
	if err == nil && !resp.Txn().Succeeded {
		err = datastore.ErrExists
	}
	return written(resp, kv, wrap("create", kv.Key, err))
}

// Update replaces an existing key, if it still has the revision given. After
// ErrUnavailable it is not known whether it was done.
func (s *Store) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	resp, err := s.replace(ctx, kv.Key, kv.Revision, clientv3.OpPut(kv.Key, string(kv.Value)))
	return written(resp, kv, wrap("update", kv.Key, err))
}

// Delete removes a key, if it still has the revision given. After
// ErrUnavailable it is not known whether it was done.
func (s *Store) Delete(ctx context.Context, key string, revision api.Revision) error {
	_, err := s.replace(ctx, key, revision, clientv3.OpDelete(key))
	return wrap("delete", key, err)
}

// replace does op if the key exists with the revision, zero for any, and says
// what differs if not.
func (s *Store) replace(ctx context.Context, key string, revision api.Revision, op clientv3.Op) (clientv3.OpResponse, error) {
	cond := clientv3.Compare(clientv3.ModRevision(key), "=", number(revision.String()))
	if revision.IsZero() {
		cond = clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	}
	read := clientv3.OpGet(key, clientv3.WithKeysOnly())
	resp, err := s.do(ctx, clientv3.OpTxn([]clientv3.Cmp{cond}, []clientv3.Op{op}, []clientv3.Op{read}))
	if err != nil || resp.Txn().Succeeded {
		return resp, err
	}
	kvs := resp.Txn().Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return resp, datastore.ErrNotFound
	}
	return resp, fmt.Errorf("%w: revision is %d, not %s", datastore.ErrConflict, kvs[0].ModRevision, revision)
}

// do makes one request, within the request timeout.
func (s *Store) do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return clientv3.OpResponse{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	resp, err := client.Do(bounded, op)
	return resp, s.withTLSReason(ctx, translate(ctx, err))
}

func written(resp clientv3.OpResponse, kv api.Update, err error) (api.Update, error) {
	if err != nil {
		return api.Update{}, err
	}
	kv.Revision = revisionOf(resp.Txn().Header.Revision)
	kv.Value = present(kv.Value)
	return kv, nil
}

func updateOf(kv *mvccpb.KeyValue) api.Update {
	return api.Update{Key: string(kv.Key), Value: present(kv.Value), Revision: revisionOf(kv.ModRevision)}
}

// present keeps an empty value, which old data has, apart from nil, which
// says that the key is gone.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func wrap(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, key, err)
}
