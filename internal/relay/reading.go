package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
)

// Reading is what a syncer of a host reads: a relay's view of the store if settings name a relay, or a service of relays that find follows,
// else the store itself. An address has precedence over a service. Done is called at the end.
func Reading(store datastore.Store, s config.Relay, find Find, who Who, log *slog.Logger) (read datastore.Store, done func(), err error) {
	setting, named, host := "typhaAddr", s.Address, s.Address
	switch {
	case s.Address != "":
		find = nil
	case find == nil:
		return store, func() {}, nil
	default:
		setting, named, host = "typhaK8sServiceName", s.Namespace+"/"+s.Service, net.JoinHostPort(s.Service+"."+s.Namespace+".svc", "0")
	}
	files := TLS{CertFile: s.CertFile, KeyFile: s.KeyFile, CAFile: s.CAFile, CN: s.CN, URISAN: s.URISAN}
	creds := Plaintext()
	switch none := files == (TLS{}); {
	case s.Plaintext && !none:
		return nil, nil, errors.New("relayPlaintext, and files or names of TLS (typhaCAFile, typhaCertFile, typhaKeyFile, typhaCN, typhaURISAN): leave one of them out")
	case none && !s.Plaintext && !Near(host):
		return nil, nil, fmt.Errorf("%s %s is not of this machine, and whoever is on the way could say what policy is: set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext", setting, named)
	case !none:
		if err := files.Check(); err != nil {
			return nil, nil, fmt.Errorf("relay (typhaCAFile, typhaCertFile, typhaKeyFile): %w", err)
		}
		creds = files.ClientCreds(host)
	}
	c, err := NewClient(store, ClientConfig{Address: named, Find: find, Creds: creds, Timeout: s.ReadTimeout, Fallback: s.Fallback, Who: who, Log: log.With("part", "relay")})
	if err != nil {
		return nil, nil, err
	}
	log.Info("the datastore is read by a relay", setting, named, "tls", files != TLS{})
	return c, func() { _ = c.Close() }, nil
}
