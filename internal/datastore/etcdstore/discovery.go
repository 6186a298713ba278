package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/datastore"
)

// discovered is the configuration with the endpoints that SRV records name, if it has a domain. That DNS does not answer is that etcd is away.
func (c config) discovered(ctx context.Context) (config, error) {
	if c.DiscoverySRV == "" {
		return c, nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	secure, err := members(bounded, "etcd-client-ssl", "https", c.DiscoverySRV)
	if c.Endpoints = secure; len(secure) > 0 {
		return c, nil
	}
	if c.Username != "" || c.CAFile != "" || len(c.CAPEM) > 0 || c.CertFile != "" || len(c.CertPEM) > 0 {
		// Whoever can forge an answer of DNS could otherwise have the password, or what is kept from readers, in plain text.
		return c, c.undiscovered("_etcd-client-ssl._tcp, which are those that count with a user or certificates", err)
	}
	plain, plainErr := members(bounded, "etcd-client", "http", c.DiscoverySRV)
	if c.Endpoints = plain; len(plain) > 0 {
		return c, nil
	}
	return c, c.undiscovered("_etcd-client-ssl._tcp and _etcd-client._tcp", errors.Join(err, plainErr))
}

func (c config) undiscovered(names string, err error) error {
	if err == nil {
		err = errors.New("there is none")
	}
	return fmt.Errorf("%w: SRV records of %s in %s: %w", datastore.ErrUnavailable, names, c.DiscoverySRV, err)
}

// members are the endpoints that the records of a service name, by their priorities; none and no error: there are no such records.
func members(ctx context.Context, service, scheme, domain string) (endpoints []string, err error) {
	_, records, err := net.DefaultResolver.LookupSRV(ctx, service, "tcp", domain)
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return nil, nil
	}
	for _, r := range records {
		host := net.JoinHostPort(strings.TrimSuffix(r.Target, "."), strconv.Itoa(int(r.Port)))
		endpoints = append(endpoints, scheme+"://"+host)
	}
	if len(endpoints) > 0 {
		err = nil // of some that are no names
	}
	return endpoints, err
}

// reached is the configuration with the endpoints that are in use.
func (s *Store) reached() config {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := s.cfg
	if s.client != nil {
		cfg.Endpoints = s.client.Endpoints()
	}
	return cfg
}
