package etcdstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/bgp/plan"
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
		KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
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
	w := must(s.Watch(ctx, "/mine/", kv.Revision-1))(t)
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
	_, err = s.Watch(ctx, "/theirs/", 1)
	unauthorized(t, "watch outside of the role", err)
	_, err = etcdstore.New(ctx, datastore.Config{Endpoints: m.Endpoints(), Username: "agent", Password: "wrong"})
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

// TestTheRolesOfTheGuideAreEnough holds the table of docs/etcd.md to what each component does.
func TestTheRolesOfTheGuideAreEnough(t *testing.T) {
	m := started(t)
	c := admin(t, m.Endpoints())
	ctx := t.Context()
	const hosts = "/calico/resources/v3/projectcalico.org/hostendpoints/"
	users(t, c, map[string]grants{
		"agent": {
			"/calico/": clientv3.PermissionType(clientv3.PermRead), "/calico/felix/": clientv3.PermissionType(clientv3.PermReadWrite),
			hosts: clientv3.PermissionType(clientv3.PermReadWrite),
		},
		"operator": {"/calico/": clientv3.PermissionType(clientv3.PermReadWrite)},
		"ipam":     {"/calico/": clientv3.PermissionType(clientv3.PermRead), api.IPAMPrefix: clientv3.PermissionType(clientv3.PermReadWrite)},
		"reader":   {"/calico/": clientv3.PermissionType(clientv3.PermRead)},
		"reflector": {
			api.ResourcesPrefix + "clusterinformations/": clientv3.PermissionType(clientv3.PermRead),
			api.ResourcesPrefix + "nodes/":               clientv3.PermissionType(clientv3.PermRead), api.ResourcesPrefix + "bgp": clientv3.PermissionType(clientv3.PermRead),
			api.ResourcesPrefix + "ippools/": clientv3.PermissionType(clientv3.PermRead), api.ResourcesPrefix + "caliconodestatuses/": clientv3.PermissionType(clientv3.PermReadWrite),
		},
	})
	as := func(user string) *etcdstore.Store {
		return open(t, datastore.Config{Endpoints: m.Endpoints(), Username: user, Password: word(user)})
	}
	policy := api.Update{Key: api.ResourcesPrefix + "tiers/a", Value: []byte("{}")}
	written := must(as("operator").Create(ctx, policy))(t)
	for _, user := range []string{"agent", "reader"} {
		s := as(user)
		if got := must(s.List(ctx, api.ResourcesPrefix))(t); len(got.Items) != 1 {
			t.Errorf("%s lists %v", user, got.Items)
		}
		w := must(s.Watch(ctx, api.ResourcesPrefix, written.Revision-1))(t)
		if got := must(w.Next(ctx))(t); len(got.Updates) != 1 {
			t.Errorf("%s hears %v", user, got)
		}
		w.Close()
		unauthorized(t, user+" changes a resource", datastore.Put(ctx, s, policy))
	}
	status := api.Update{Key: api.Root + "felix/v2/no-region/host/h1/status", Value: []byte("{}")}
	if err := as("agent").PutFor(ctx, status, time.Minute); err != nil {
		t.Errorf("the agent's status: %v", err)
	}
	host := must(as("agent").Create(ctx, api.Update{Key: hosts + "h1-auto-hep", Value: []byte("{}")}))(t)
	host = must(as("agent").Update(ctx, host))(t)
	if err := as("agent").Delete(ctx, host.Key, host.Revision); err != nil {
		t.Errorf("the agent's automatic host endpoint: %v", err)
	}
	block := api.Update{Key: api.BlockPrefix + "ipv4/block/10.65.0.0-26", Value: []byte("{}")}
	claim := datastore.Txn{If: map[string]int64{block.Key: 0, policy.Key: written.Revision}, Put: []api.Update{block, {Key: api.HandleKey("a")}}}
	if _, err := as("ipam").Transact(ctx, claim); err != nil {
		t.Errorf("an address, if a resource is as it was read: %v", err)
	}
	claim = datastore.Txn{If: map[string]int64{}, Put: []api.Update{block, policy}}
	_, err := as("ipam").Transact(ctx, claim)
	unauthorized(t, "who gives out addresses changes a resource", err)
	_, err = as("agent").Transact(ctx, datastore.Txn{Put: []api.Update{block}})
	unauthorized(t, "an agent changes a block", err)
	reflector := as("reflector")
	for _, prefix := range append(plan.Prefixes(), nodestatus.Prefixes()...) {
		must(reflector.List(ctx, prefix))(t)
		must(reflector.Watch(ctx, prefix, written.Revision))(t).Close()
	}
	_, err = reflector.List(ctx, api.ResourcesPrefix+"workloadendpoints/")
	unauthorized(t, "a dedicated reflector reads endpoints", err)
	if err := reflector.Ping(ctx); err != nil {
		t.Errorf("a dedicated reflector asks whether the store is there: %v", err)
	}
	unauthorized(t, "a reader writes status", as("reader").PutFor(ctx, status, time.Minute))
}
