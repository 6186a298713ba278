package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
)

// Dial returns etcd's own client of a cluster, connected as a [Store] is, for who looks after its members (package etcdadmin). It fails
// where New does, and where the cluster does not answer a log-in. The caller closes it.
func Dial(ctx context.Context, given datastore.Config) (*clientv3.Client, error) {
	s, err := New(ctx, given)
	if err != nil {
		return nil, err
	}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return client, nil
}

// Explain gives an error of etcd's client the meaning that callers of a store ask for, as those of package datastore. ctx is that of the call.
func Explain(ctx context.Context, err error) error { return translate(ctx, err) }

// ClientConfig is how etcd's own client is configured to reach a cluster as a [Store] does, with the endpoints that SRV records name, for who has
// several connections. It fails if the settings are wrong; an error that is ErrUnavailable says that DNS does not answer.
func ClientConfig(ctx context.Context, given datastore.Config) (clientv3.Config, error) {
	cfg := config(given)
	cfg.setDefaults()
	with, err := cfg.discovered(ctx)
	if err != nil {
		return clientv3.Config{}, err
	}
	return with.client()
}
