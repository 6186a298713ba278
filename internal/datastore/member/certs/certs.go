// Package certs makes the certificates of an etcd cluster.
//
// In: a directory, and the members with their addresses. Out: PEM files there:
// one authority for clients and servers, another for members among themselves,
// and a directory for each member and client with all that it needs.
//
// There are two authorities, since whoever holds a certificate of the peers'
// may join the cluster: a client's must not be enough. What is there already is
// kept, so that a member or a client can be added later.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config says for whom to make certificates.
type Config struct {
	Dir      string
	Members  []Host
	Clients  []string      // names; with users in etcd, those of the users
	Validity time.Duration // of members and clients; zero means three years. Authorities have ten.
}

// Host is a member and the addresses and names by which others reach it.
type Host struct {
	Name  string
	Names []string
}

const (
	day       = 24 * time.Hour
	authority = 3650 * day
)

// Make makes what is missing, and returns the files that it wrote.
func Make(cfg Config) ([]string, error) {
	if cfg.Validity == 0 {
		cfg.Validity = 3 * 365 * day
	}
	m := maker{now: time.Now()}
	err := m.all(cfg)
	return m.wrote, err
}

// maker remembers what it wrote.
type maker struct {
	now   time.Time
	wrote []string
}

func (m *maker) all(cfg Config) error {
	ca, err := m.authority(cfg.Dir, "ca", "Twill etcd")
	if err != nil {
		return err
	}
	peers, err := m.authority(cfg.Dir, "peer-ca", "Twill etcd peers")
	if err != nil {
		return err
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range cfg.Members {
		dir := filepath.Join(cfg.Dir, h.Name)
		server := leaf{file: "server", name: h.Name, names: append([]string{"localhost", "127.0.0.1", "::1"}, h.Names...), usage: both[:1], days: cfg.Validity}
		peer := leaf{file: "peer", name: h.Name, names: h.Names, usage: both, days: cfg.Validity}
		if err := errors.Join(m.issue(dir, ca, server), m.issue(dir, peers, peer)); err != nil {
			return fmt.Errorf("member %s: %w", h.Name, err)
		}
	}
	for _, name := range cfg.Clients {
		c := leaf{file: "client", name: name, usage: both[1:], days: cfg.Validity}
		if err := m.issue(filepath.Join(cfg.Dir, name), ca, c); err != nil {
			return fmt.Errorf("client %s: %w", name, err)
		}
	}
	return nil
}

// signer is an authority.
type signer struct {
	file string // its base name
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// authority reads an authority, or makes one.
func (m *maker) authority(dir, file, name string) (signer, error) {
	s, err := read(dir, file)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if _, err := os.Stat(filepath.Join(dir, file+".crt")); err == nil {
		return s, fmt.Errorf("%s.key is not in %s, and %[1]s.crt is: bring the key, or begin in an empty directory", file, dir)
	}
	c := m.template(name, authority)
	c.IsCA, c.BasicConstraintsValid, c.MaxPathLenZero = true, true, true
	c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return s, err
	}
	if err := m.sign(dir, file, c, signer{cert: c, key: key}, key); err != nil {
		return s, err
	}
	return read(dir, file)
}

func read(dir, file string) (signer, error) {
	key, err := block(filepath.Join(dir, file+".key"))
	if err != nil {
		return signer{}, err
	}
	cert, err := block(filepath.Join(dir, file+".crt"))
	if err != nil {
		return signer{}, err
	}
	c, err := x509.ParseCertificate(cert)
	if err != nil {
		return signer{}, fmt.Errorf("%s.crt: %w", file, err)
	}
	k, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return signer{}, fmt.Errorf("%s.key: %w", file, err)
	}
	ec, ok := k.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(c.PublicKey) {
		return signer{}, fmt.Errorf("%s.key is not the key of %[1]s.crt", file)
	}
	return signer{file, c, ec}, nil
}

func block(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, _ := pem.Decode(b)
	if p == nil {
		return nil, fmt.Errorf("%s: holds no PEM", file)
	}
	return p.Bytes, nil
}

// leaf is a certificate of a member or a client.
type leaf struct {
	file, name string
	names      []string
	usage      []x509.ExtKeyUsage
	days       time.Duration
}

// issue makes a certificate and its key, unless it is there, and puts the authority's beside it.
func (m *maker) issue(dir string, by signer, l leaf) error {
	if l.name == "" || !filepath.IsLocal(l.name) || strings.ContainsAny(l.name, `/\`) || by.file == l.name {
		return fmt.Errorf("%q is no name for a directory", l.name)
	}
	if err := m.write(filepath.Join(dir, by.file+".crt"), &pem.Block{Type: "CERTIFICATE", Bytes: by.cert.Raw}); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, l.file+".crt")); err == nil {
		return nil
	}
	c := m.template(l.name, l.days)
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, l.usage
	for _, n := range l.names {
		if a, err := netip.ParseAddr(n); err == nil {
			c.IPAddresses = append(c.IPAddresses, net.IP(a.AsSlice()))
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return m.sign(dir, l.file, c, by, key)
}

// template has no serial number: x509 chooses one at random.
func (m *maker) template(name string, valid time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: m.now.Add(-time.Hour), // for a member whose clock is a little late
		NotAfter:  m.now.Add(valid),
	}
}

func (m *maker) sign(dir, file string, c *x509.Certificate, by signer, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, &key.PublicKey, by.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// The key first: a certificate that is there says that both are.
	if err := m.write(filepath.Join(dir, file+".key"), &pem.Block{Type: "PRIVATE KEY", Bytes: private}); err != nil {
		return err
	}
	return m.write(filepath.Join(dir, file+".crt"), &pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// write writes a file for its owner's eyes, unless it has that content.
func (m *maker) write(file string, b *pem.Block) error {
	text := pem.EncodeToMemory(b)
	if is, err := os.ReadFile(file); err == nil && string(is) == string(text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	m.wrote = append(m.wrote, file)
	return nil
}
