package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
)

// Reading is what a syncer of a host reads: a relay's view of the store if settings name a relay, or a service of relays that find follows,
// else the store itself. An address has precedence over a service; several, with commas between them, are asked in a random order. Done is called at the end.
func Reading(store datastore.Store, s config.Relay, find Find, who Who, log *slog.Logger) (read datastore.Store, done func(), err error) {
	setting, named, host, near := "typhaAddr", s.Address, s.Address, Near(s.Address)
	several, err := addressesOf(s.Address)
	switch {
	case err != nil:
		return nil, nil, err
	case len(several) > 1:
		find, near = these(several), !slices.ContainsFunc(several, func(a string) bool { return !Near(a) })
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
	case none && !s.Plaintext && !near:
		return nil, nil, fmt.Errorf("%s %s is not of this machine, and whoever is on the way could say what policy is: set typhaCAFile, typhaCertFile and typhaKeyFile, or relayPlaintext", setting, named)
	case !none:
		if err := files.Check(); err != nil {
			return nil, nil, fmt.Errorf("relay (typhaCAFile, typhaCertFile, typhaKeyFile): %w", err)
		}
		if creds = files.ClientCreds(host); len(several) > 1 {
			creds = byAddress{creds, files}
		}
	}
	c, err := NewClient(store, ClientConfig{Address: named, Find: find, Named: len(several) > 1, Creds: creds, Timeout: s.ReadTimeout, Fallback: s.Fallback, Who: who, Log: log.With("part", "relay")})
	if err != nil {
		return nil, nil, err
	}
	log.Info("the datastore is read by a relay", setting, named, "tls", files != TLS{})
	return c, func() { _ = c.Close() }, nil
}

// addressesOf are those of a setting.
func addressesOf(setting string) ([]string, error) {
	var out []string
	for a := range strings.SplitSeq(setting, ",") {
		if a = strings.TrimSpace(a); a == "" && setting != "" {
			return nil, fmt.Errorf("typhaAddr %q: want addresses with commas between them", setting)
		}
		out = append(out, a)
	}
	return out, nil
}

// these are relays that do not change. Each client asks them in an order of its own, so that not all come to the first.
func these(addresses []string) Find {
	return func(ctx context.Context, found func([]string, error)) {
		mixed := slices.Clone(addresses) // which a new connection may be mixing, too
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		found(mixed, nil)
		<-ctx.Done()
	}
}

// byAddress are credentials that want of each of several relays a certificate for its own address.
type byAddress struct {
	credentials.TransportCredentials
	files TLS
}

// ClientHandshake implements [credentials.TransportCredentials].
func (b byAddress) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return b.files.ClientCreds(authority).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (b byAddress) Clone() credentials.TransportCredentials { return b }
