package etcdstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// authority signs certificates and writes them into files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{dir: t.TempDir(), key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.sign(t, a.cert, "ca", a.key)
	return a
}

// issue returns the files of a certificate and its key, for server and client.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	return a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, name,
		must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t))
}

func (a *authority) sign(t *testing.T, c *x509.Certificate, name string, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	der := must(x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key))(t)
	private := must(x509.MarshalPKCS8PrivateKey(key))(t)
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func (a *authority) file() string { return filepath.Join(a.dir, "ca.crt") }

func TestClientCertificates(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	serverCert, serverKey := ca.issue(t, "server")
	cert, key := ca.issue(t, "client")
	otherCert, otherKey := other.issue(t, "client")
	read := func(file string) []byte { return must(os.ReadFile(file))(t) }
	m := startMember(t, member.Config{
		Dir: t.TempDir(), ListenClient: []string{"https://" + machinetest.Address(t)},
		CertFile: serverCert, KeyFile: serverKey, ClientCAFile: ca.file(),
	})
	for _, tt := range []struct {
		name string
		cfg  datastore.Config
		ok   bool
	}{
		{"files", datastore.Config{CertFile: cert, KeyFile: key, CAFile: ca.file()}, true},
		{"inline PEM", datastore.Config{CertPEM: read(cert), KeyPEM: read(key), CAPEM: read(ca.file())}, true},
		{"no client certificate", datastore.Config{CAFile: ca.file()}, false},
		{"a client certificate of another authority", datastore.Config{CertFile: otherCert, KeyFile: otherKey, CAFile: ca.file()}, false},
		{"a server of an authority that is not trusted", datastore.Config{CertFile: cert, KeyFile: key, CAFile: other.file()}, false},
		{"a server that the system does not trust", datastore.Config{CertFile: cert, KeyFile: key}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Endpoints = m.Endpoints()
			if !tt.ok {
				tt.cfg.RequestTimeout = 500 * time.Millisecond
			}
			err := open(t, tt.cfg).Ping(t.Context())
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, datastore.ErrUnavailable) {
				t.Errorf("ping: got error %v, want success %v", err, tt.ok)
			}
		})
	}
}

// TestNoOldVersionOfTLSIsSpoken: a server that knows nothing newer than TLS 1.1 is none, also where the certificates are right.
func TestNoOldVersionOfTLSIsSpoken(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert := must(tls.LoadX509KeyPair(ca.issue(t, "server")))(t)
	for _, tt := range []struct {
		newest uint16
		ok     bool
	}{{tls.VersionTLS11, false}, {tls.VersionTLS12, true}, {tls.VersionTLS13, true}} {
		t.Run(tls.VersionName(tt.newest), func(t *testing.T) {
			l := must(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
			defer l.Close()
			_ = l.SetDeadline(time.Now().Add(patience))
			spoken := make(chan error, 1)
			go func() {
				for { // until one succeeds that should: the client gives one up that takes long
					c, err := l.Accept()
					if err != nil {
						spoken <- err
						return
					}
					err = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tt.newest, MinVersion: tls.VersionTLS10, NextProtos: []string{"h2"}}).HandshakeContext(t.Context())
					c.Close()
					if err == nil || !tt.ok {
						spoken <- err
						return
					}
				}
			}()
			s := open(t, datastore.Config{Endpoints: []string{"https://" + l.Addr().String()}, CAFile: ca.file(), RequestTimeout: time.Second})
			if err := s.Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
				t.Errorf("ping of no etcd: got error %v", err)
			}
			if err := <-spoken; (err == nil) != tt.ok {
				t.Errorf("handshake: got error %v, want success %v", err, tt.ok)
			}
		})
	}
}

// grants is what a role may do below prefixes.
type grants map[string]clientv3.PermissionType

// word is the password of a user.
func word(user string) string { return user + "'s word" }

// users makes etcd ask who is there: root, and users with roles of their names.
func users(t *testing.T, c *clientv3.Client, all map[string]grants) {
	t.Helper()
	ctx := t.Context()
	must(c.UserAdd(ctx, "root", "secret"))(t)
	must(c.UserGrantRole(ctx, "root", "root"))(t)
	for user, role := range all {
		must(c.UserAdd(ctx, user, word(user)))(t)
		must(c.RoleAdd(ctx, user))(t)
		for prefix, may := range role {
			must(c.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), may))(t)
		}
		must(c.UserGrantRole(ctx, user, user))(t)
	}
	must(c.AuthEnable(ctx))(t)
}

func TestUsers(t *testing.T) {
	m := started(t)
	c := admin(t, m.Endpoints())
	ctx := t.Context()
	users(t, c, map[string]grants{"agent": {"/mine/": clientv3.PermissionType(clientv3.PermReadWrite)}})

	s := open(t, datastore.Config{Endpoints: m.Endpoints(), Username: "agent", Password: word("agent")})
	kv := must(s.Create(ctx, api.Update{Key: "/mine/a", Value: []byte("1")}))(t)
	w := must(s.Watch(ctx, "/mine/", from(count(t, kv.Revision)-1)))(t)
	defer w.Close()
	if got := must(w.Next(ctx))(t); len(got.Updates) != 1 {
		t.Errorf("watch: got %v", got)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
	_, err := s.Create(ctx, api.Update{Key: "/theirs/a", Value: []byte("1")})
	unauthorized(t, "create outside of the role", err)
	_, err = s.List(ctx, "/")
	unauthorized(t, "list outside of the role", err)
	_, err = s.Watch(ctx, "/theirs/", from(1))
	unauthorized(t, "watch outside of the role", err)
	_, err = etcdstore.New(ctx, datastore.Config{Endpoints: m.Endpoints(), Username: "agent", Password: "wrong", DialTimeout: time.Minute})
	unauthorized(t, "a wrong password", err)
	_, err = open(t, datastore.Config{Endpoints: m.Endpoints()}).List(ctx, "/mine/")
	unauthorized(t, "no user", err)
}

func unauthorized(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, datastore.ErrUnauthorized) {
		t.Errorf("%s: got error %v, want %v", what, err, datastore.ErrUnauthorized)
	}
}

// TestASocketIsSpokenToWithoutTLS: also by who has certificates for members elsewhere, as the environment of a host with an etcd proxy says.
func TestASocketIsSpokenToWithoutTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	cert, key := ca.issue(t, "client")
	s := open(t, datastore.Config{Endpoints: started(t).Endpoints(), CertFile: cert, KeyFile: key, CAFile: ca.file()})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
