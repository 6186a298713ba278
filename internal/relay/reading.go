package relay

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
)

// Reading is what a syncer of a host reads: a relay's view of the store if settings name a relay, else the store itself. Done is called at the end.
func Reading(store datastore.Store, s config.Relay, log *slog.Logger) (read datastore.Store, done func(), err error) {
	if s.Address == "" {
		return store, func() {}, nil
	}
	files := TLS{CertFile: s.CertFile, KeyFile: s.KeyFile, CAFile: s.CAFile, CN: s.CN, URISAN: s.URISAN}
	creds := Plaintext()
	switch none := files == (TLS{}); {
	case s.Plaintext && !none:
		return nil, nil, errors.New("relayPlaintext, and files or names of TLS (typhaCAFile, typhaCertFile, typhaKeyFile, typhaCN, typhaURISAN): leave one of them out")
	case none && !s.Plaintext && !Near(s.Address):
		return nil, nil, fmt.Errorf("typhaAddr %s is not of this machine, and whoever is on the way could say what policy is: set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext", s.Address)
	case !none:
		if err := files.Check(); err != nil {
			return nil, nil, fmt.Errorf("relay (typhaCAFile, typhaCertFile, typhaKeyFile): %w", err)
		}
		creds = files.ClientCreds(s.Address)
	}
	c, err := NewClient(store, ClientConfig{Address: s.Address, Creds: creds, Timeout: s.ReadTimeout, Fallback: s.Fallback, Log: log.With("part", "relay")})
	if err != nil {
		return nil, nil, err
	}
	log.Info("the datastore is read by a relay", "typhaAddr", s.Address, "tls", files != TLS{})
	return c, func() { _ = c.Close() }, nil
}
