// Package stores opens the store of a [datastore.Config].
//
// In: which datastore, and how to reach it. Out: a [datastore.Client]. It is the
// only place that knows which datastores there are, so that nobody else links
// or names one of them. It is apart from package datastore since the stores
// import that one for what they must do.
package stores

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/datastore/mirror"
)

// Open opens a datastore. It fails if the settings are wrong, or the
// credentials are refused; that the datastore is away is no error here, but
// ErrUnavailable from each call until it is back. ctx bounds Open only.
func Open(ctx context.Context, cfg datastore.Config) (datastore.Client, error) {
	switch cfg.Type {
	case "", "etcdv3":
		s, err := etcdstore.New(ctx, cfg)
		if err != nil {
			return nil, err // not s, which would be an interface that is not nil
		}
		if len(cfg.Masters) > 0 {
			return mirrored{mirror.Of(s, cfg.Masters), s}, nil
		}
		return s, nil
	case "kubernetes":
		if len(cfg.Masters) > 0 {
			return nil, fmt.Errorf("the Kubernetes API is no mirror of %s: it is the master itself", strings.Join(cfg.Masters, ","))
		}
		s, err := kubestore.New(cfg)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, fmt.Errorf("datastore of type %q: want etcdv3 or kubernetes", cfg.Type)
}

// mirrored is a mirror that closes the store it is of.
type mirrored struct {
	*mirror.Store
	io.Closer
}
