package agent

import (
	"context"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/discovery"
)

// openStore opens the store, and what of it the syncer reads. Done closes both.
func openStore(ctx context.Context, cfg Config, s config.Relay) (store, read datastore.Store, done func(), err error) {
	opened, err := stores.Open(ctx, cfg.Store)
	if err != nil {
		return nil, nil, nil, err
	}
	read, end, err := discovery.Reading(opened, discovery.Host{Relay: s, Cluster: cfg.Store, Who: relay.Who{Node: cfg.Node, Program: "agent", Version: cfg.Version}, Log: cfg.Log})
	if err != nil {
		_ = opened.Close()
		return nil, nil, nil, err
	}
	return opened, read, func() { end(); _ = opened.Close() }, nil
}
