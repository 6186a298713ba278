package relay

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// authority signs certificates for tests.
type authority struct {
	*testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t, dir: t.TempDir()}
	a.key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	a.cert = must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, form, form, &a.key.PublicKey, a.key))))
	a.write("ca", "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	a.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.Fatal(err)
	}
	return file
}

// files are those of somebody, who trusts this authority. Usage 0: of nothing.
func (a *authority) files(cn string, usage x509.ExtKeyUsage, ends time.Duration) TLS {
	a.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	form := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: cn}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ends),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{{127, 0, 0, 1}}, URIs: []*url.URL{{Scheme: "spiffe", Host: "test", Path: "/" + cn}},
	}
	der := must(x509.CreateCertificate(rand.Reader, form, a.cert, &key.PublicKey, a.key))
	return TLS{
		CertFile: a.write(cn+".crt", "CERTIFICATE", der), KeyFile: a.write(cn+".key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key))), CAFile: filepath.Join(a.dir, "ca"),
	}
}

// serving runs a relay of a store with one key, and returns its address.
func serving(t *testing.T, network, address string, creds credentials.TransportCredentials) (string, *memstore.Store) {
	t.Helper()
	store := memstore.New()
	if err := datastore.Put(t.Context(), store, api.Update{Key: "/x/a", Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	return serveStore(t, network, address, creds, store), store
}

// serveStore runs a relay of a store, and returns its address as a client is given it.
func serveStore(t testing.TB, network, address string, creds credentials.TransportCredentials, store datastore.Store) string {
	t.Helper()
	at, _ := beginServer(t, network, address, creds, store)
	return at
}

// beginServer is serveStore, with the server.
func beginServer(t testing.TB, network, address string, creds credentials.TransportCredentials, store datastore.Store) (string, *Server) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(store, ServerConfig{Prefixes: []string{"/x/"}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = s.Run(ctx); ended <- struct{}{} }()
	go func() { _ = s.Serve(ctx, l, creds, 0); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	c := s.chains["/x/"]
	for {
		c.mu.Lock()
		ready, woken := c.ready, c.woken
		c.mu.Unlock()
		if ready {
			break
		}
		<-woken
	}
	if network == "unix" {
		return "unix://" + address, s
	}
	return l.Addr().String(), s
}

// TestAClientGoesToAnotherRelayByTCP, with TLS, when it is asked to, and stays there.
func TestAClientGoesToAnotherRelayByTCP(t *testing.T) {
	a := newAuthority(t)
	relays, agents := a.files("relay", x509.ExtKeyUsageServerAuth, time.Hour), a.files("agent", x509.ExtKeyUsageClientAuth, time.Hour)
	var addresses []string
	var servers []*Server
	for _, value := range []string{"one", "two"} {
		store := memstore.New()
		if err := datastore.Put(t.Context(), store, api.Update{Key: "/x/a", Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		at, s := beginServer(t, "tcp", "127.0.0.1:0", relays.ServerCreds(), store)
		addresses, servers = append(addresses, at), append(servers, s)
	}
	c := must(NewClient(memstore.New(), ClientConfig{
		Address: "relays", Creds: agents.ClientCreds("127.0.0.1:0"),
		Find: func(ctx context.Context, found func([]string, error)) { found(addresses, nil); <-ctx.Done() },
	}))
	defer c.Close()
	snap, err := c.List(t.Context(), "/x/")
	if err != nil || string(snap.Items[0].Value) != "one" {
		t.Fatalf("%v, %v", snap, err)
	}
	w, err := c.Watch(t.Context(), "/x/", snap.Position)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !servers[0].connected.sendAway() {
		t.Fatal("there is nobody to send away")
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "ask another relay") {
		t.Errorf("the watch ended with %v", err)
	}
	for served := 0; served < 3; {
		snap, err = c.List(t.Context(), "/x/")
		switch {
		case errors.Is(err, datastore.ErrUnavailable): // of the connection that was closed a moment ago
		case err != nil || string(snap.Items[0].Value) != "two":
			t.Fatalf("%v, %v", snap, err)
		default:
			served++
		}
	}
}

func TestWhoIsServed(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	with := func(f TLS, cn, uri string) TLS { f.CN, f.URISAN = cn, uri; return f }
	relays, agents := a.files("relay", server, time.Hour), a.files("agent", client, time.Hour)
	stranger := other.files("agent", client, time.Hour)
	stranger.CAFile = agents.CAFile
	for _, tt := range []struct {
		name   string
		server TLS
		client TLS
		want   string // of the error; empty: served
	}{
		{"both are of one authority", relays, agents, ""},
		{"a client of another authority", relays, stranger, "unknown authority"},
		{"a relay of another authority", other.files("relay", server, time.Hour), agents, "unknown authority"},
		{"a client whose certificate is over", relays, a.files("late", client, -time.Minute), "bad certificate"},
		{"a client with a server's certificate", relays, relays, "bad certificate"},
		{"a relay with a client's certificate", agents, agents, "incompatible key usage"},
		{"the relay has the name that is wanted", relays, with(agents, "relay", ""), ""},
		{"the relay has another", relays, with(agents, "gateway", ""), "gateway"},
		{"the relay has the URI that is wanted, and another name", relays, with(agents, "gateway", "spiffe://test/relay"), ""},
		{"clients have the name that is wanted", with(relays, "agent", ""), agents, ""},
		{"clients have another name", with(relays, "root", ""), agents, "bad certificate"},
		{"clients have another URI", with(relays, "", "spiffe://test/root"), agents, "bad certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.server.Check(); err != nil {
				t.Fatal(err)
			}
			address, store := serving(t, "tcp", "127.0.0.1:0", tt.server.ServerCreds())
			for mode, creds := range map[string]credentials.TransportCredentials{"TLS": tt.client.ClientCreds(address), "plaintext": Plaintext()} {
				c := must(NewClient(store, ClientConfig{Address: address, Creds: creds}))
				defer c.Close()
				snap, err := c.List(t.Context(), "/x/")
				switch served := tt.want == "" && mode == "TLS"; {
				case served && (err != nil || len(snap.Items) != 1):
					t.Errorf("%v, %v", snap, err)
				case !served && err == nil:
					t.Errorf("%s: was served", mode)
				case mode == "TLS" && err != nil && !strings.Contains(err.Error(), tt.want) && !closed(err):
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
		})
	}
}

// closed: a client may see that the connection was closed before it reads why.
func closed(err error) bool {
	return strings.Contains(err.Error(), "broken pipe") || strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "error reading server preface")
}

func TestChangesComeThroughASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	address, store := serving(t, "unix", socket, Plaintext())
	c := must(NewClient(store, ClientConfig{Address: address, Creds: Plaintext()}))
	defer c.Close()
	snap, err := c.List(t.Context(), "/x/")
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(t.Context(), "/x/", snap.Position)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	big := strings.Repeat("abcdefghij", 300_000) // 3 MB each: three parts, that come as one change
	for _, kv := range []api.Update{{Key: "/x/big", Value: []byte(big)}, {Key: "/x/\xff", Value: []byte{}}, {Key: "/x/big2", Value: []byte(big)}} {
		if err := datastore.Put(t.Context(), store, kv); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Delete(t.Context(), "/x/a", api.Revision{}); err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for gone := false; !gone; {
		changes, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range changes.Updates {
			if has[u.Key] = string(u.Value); u.Value == nil {
				gone = true
			} else if u.Revision.IsZero() {
				t.Errorf("%s without a revision", u.Key)
			}
		}
	}
	if len(has) != 4 || has["/x/big"] != big || has["/x/big2"] != big || has["/x/\xff"] != "" {
		t.Errorf("got %d keys", len(has))
	}
}

func TestWhatIsOfThisMachineAlone(t *testing.T) {
	for address, want := range map[string]bool{
		"unix:///run/s": true, "127.0.0.1:5473": true, "[::1]:5473": true, "localhost:1": true,
		":5473": false, "0.0.0.0:5473": false, "192.0.2.1:5473": false, "relay.example:5473": false, "127.0.0.1": false, "localhost.example:1": false,
	} {
		if Near(address) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
}

func TestFilesThatAreLackingAreNamed(t *testing.T) {
	f := newAuthority(t).files("relay", x509.ExtKeyUsageServerAuth, time.Hour)
	for want, tt := range map[string]TLS{
		"key, CA": {CertFile: f.CertFile}, "certificate, key": {CAFile: f.CAFile}, "no such file": {CertFile: f.CertFile, KeyFile: "/nowhere", CAFile: f.CAFile},
		"no certificate in it": {CertFile: f.CertFile, KeyFile: f.KeyFile, CAFile: f.KeyFile},
	} {
		if err := tt.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", tt, err, want)
		}
	}
}
