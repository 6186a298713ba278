package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/relay"
)

// openStore opens the store, and what of it the syncer reads. Done closes both.
func openStore(ctx context.Context, cfg Config, s config.Relay) (store, read datastore.Store, done func(), err error) {
	opened, err := stores.Open(ctx, cfg.Store)
	if err != nil {
		return nil, nil, nil, err
	}
	read, end, err := reading(opened, s, cfg.Log)
	if err != nil {
		_ = opened.Close()
		return nil, nil, nil, err
	}
	return opened, read, func() { end(); _ = opened.Close() }, nil
}

// reading is what the agent's syncer reads: a relay's view of the store if settings name a relay, else the store itself. Done is called at the end.
func reading(store datastore.Store, s config.Relay, log *slog.Logger) (read datastore.Store, done func(), err error) {
	if s.Address == "" {
		return store, func() {}, nil
	}
	files := relay.TLS{CertFile: s.CertFile, KeyFile: s.KeyFile, CAFile: s.CAFile, CN: s.CN, URISAN: s.URISAN}
	creds := relay.Plaintext()
	switch none := files == (relay.TLS{}); {
	case s.Plaintext && !none:
		return nil, nil, errors.New("relayPlaintext, and files or names of TLS (typhaCAFile, typhaCertFile, typhaKeyFile, typhaCN, typhaURISAN): leave one of them out")
	case none && !s.Plaintext && !relay.Near(s.Address):
		return nil, nil, fmt.Errorf("typhaAddr %s is not of this machine, and whoever is on the way could say what policy is: set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext", s.Address)
	case !none:
		if err := files.Check(); err != nil {
			return nil, nil, fmt.Errorf("relay (typhaCAFile, typhaCertFile, typhaKeyFile): %w", err)
		}
		creds = files.ClientCreds(s.Address)
	}
	c, err := relay.NewClient(store, relay.ClientConfig{Address: s.Address, Creds: creds, Timeout: s.ReadTimeout, Fallback: s.Fallback, Log: log.With("part", "relay")})
	if err != nil {
		return nil, nil, err
	}
	log.Info("the datastore is read by a relay", "typhaAddr", s.Address, "tls", files != relay.TLS{})
	return c, func() { _ = c.Close() }, nil
}
