// Package etcdstore keeps resources in etcd v3, in Calico's key layout.
//
// In: calls of [datastore.Store]. Out: requests to an etcd cluster. Keys and
// values pass through byte for byte, so that whoever else reads and writes
// the same cluster finds what it expects.
package etcdstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/twillnet/twill/internal/datastore"
)

// config is how to speak to etcd, with nothing left open.
type config datastore.Config

func (c *config) setDefaults() {
	defaultTo(&c.DialTimeout, 5*time.Second)
	defaultTo(&c.RequestTimeout, 10*time.Second)
	defaultTo(&c.Progress, 5*time.Second)
	if c.PageSize <= 0 {
		c.PageSize = 2000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

func defaultTo(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

func (c *config) client() (clientv3.Config, error) {
	if c.DiscoverySRV == "" && len(c.Endpoints) == 0 || slices.Contains(c.Endpoints, "") {
		return clientv3.Config{}, errors.New("etcd: no endpoint is given")
	}
	if (c.Username == "") != (c.Password == "") {
		return clientv3.Config{}, errors.New("etcd: user name and password go together")
	}
	tlsConfig, err := c.tls()
	if err != nil {
		return clientv3.Config{}, fmt.Errorf("etcd: %w", err)
	}
	return clientv3.Config{
		Endpoints:            c.Endpoints,
		Username:             c.Username,
		Password:             c.Password,
		TLS:                  tlsConfig,
		DialTimeout:          c.DialTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxUnaryRetries:      40, // of 25 ms: rides out the restart of a member
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own default waits two minutes between attempts: too long for a datastore that came back.
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
	}, nil
}

// tls returns nil when neither an endpoint nor a file asks for TLS, and where all endpoints are sockets: what listens there speaks none, and
// the files may be those of the members that a proxy speaks to.
func (c *config) tls() (*tls.Config, error) {
	if len(c.Endpoints) > 0 && !slices.ContainsFunc(c.Endpoints, func(e string) bool { return !strings.HasPrefix(e, "unix://") }) {
		return nil, nil
	}
	hasCert := c.CertFile != "" || len(c.CertPEM) > 0
	hasKey := c.KeyFile != "" || len(c.KeyPEM) > 0
	hasCA := c.CAFile != "" || len(c.CAPEM) > 0
	secure := slices.ContainsFunc(c.Endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://") })
	if !secure && !hasCert && !hasKey && !hasCA {
		return nil, nil
	}
	if hasCert != hasKey {
		return nil, errors.New("client certificate and key go together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if hasCA {
		pem, err := pemOf(c.CAPEM, c.CAFile)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authority %s: holds no certificate", c.CAFile)
		}
	}
	if hasCert {
		if _, err := c.keyPair(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.keyPair() }
	}
	return cfg, nil
}

func (c *config) keyPair() (*tls.Certificate, error) {
	cert, err := pemOf(c.CertPEM, c.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := pemOf(c.KeyPEM, c.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s: %w", c.CertFile, err)
	}
	return &pair, nil
}

func pemOf(inline []byte, file string) ([]byte, error) {
	if len(inline) > 0 {
		return inline, nil
	}
	return os.ReadFile(file)
}
