package conn

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestCalicoctlsConfigurationFileSaysWhereTheDatastoreIs(t *testing.T) {
	variables := map[string]string{
		"ETCD_DISCOVERY_SRV": "", "ETCD_KEY": "", "ETCD_CERT": "", "ETCD_CA_CERT": "",
		"ETCD_ENDPOINTS": "http://env:2379", "ETCD_USERNAME": "eu", "ETCD_PASSWORD": "ep", "ETCD_KEY_FILE": "/ekey", "ETCD_CERT_FILE": "/ecert", "ETCD_CA_CERT_FILE": "/eca",
	}
	for env := range variables {
		t.Setenv(env, "")
	}
	const text = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: https://192.0.2.1:2379\n" +
		"  etcdUsername: u\n  etcdPassword: p\n  etcdKeyFile: /key\n  etcdCertFile: /cert\n  etcdCACertFile: /ca\n"
	path := filepath.Join(t.TempDir(), "cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := Connection{path: path}
	if err := conn.readFile(); err != nil {
		t.Fatal(err)
	}
	want := func(what string, want datastore.Config) {
		t.Helper()
		if got := conn.etcd(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	want("the file", datastore.Config{Endpoints: []string{"https://192.0.2.1:2379"}, Username: "u", Password: "p", KeyFile: "/key", CertFile: "/cert", CAFile: "/ca"})
	for env, value := range variables {
		t.Setenv(env, value)
	}
	env := datastore.Config{Endpoints: []string{"http://env:2379"}, Username: "eu", Password: "ep", KeyFile: "/ekey", CertFile: "/ecert", CAFile: "/eca"}
	want("the environment is the more specific", env)
	conn.Endpoints, env.Endpoints = "http://flag:2379", []string{"http://flag:2379"}
	want("a flag is the most specific", env)
}

// TestEndpointsMayHaveBlanksAndEmptyOnesAmongThem, as in upstream's settings.
func TestEndpointsMayHaveBlanksAndEmptyOnesAmongThem(t *testing.T) {
	for text, want := range map[string]string{
		" http://192.0.2.1:2379 , ,https://192.0.2.2:2379,": "http://192.0.2.1:2379 https://192.0.2.2:2379", " , ": DefaultEndpoint, "": DefaultEndpoint,
	} {
		if got := etcdOf(etcdSpec{Endpoints: text}).Endpoints; strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %s", text, got, want)
		}
	}
}

// TestTheNearestSourceSaysWhichOfTwoWays: DNS or endpoints, texts or files; of two that one source has, neither is taken.
func TestTheNearestSourceSaysWhichOfTwoWays(t *testing.T) {
	const endpoints = "  etcdEndpoints: http://file:2379\n"
	const files = "  etcdKeyFile: /key\n  etcdCertFile: /cert\n  etcdCACertFile: /ca\n"
	const texts = "  etcdKey: |\n    fk\n  etcdCert: fc\n  etcdCACert: fa\n"
	inline := map[string]string{"ETCD_KEY": "ek", "ETCD_CERT": "ec", "ETCD_CA_CERT": "ea"}
	for _, tt := range []struct {
		name, file string
		env        map[string]string
		flags      Connection
		want       datastore.Config
		why        string
	}{
		{name: "a domain of the file", file: "  etcdDiscoverySrv: example.org\n", want: datastore.Config{DiscoverySRV: "example.org"}},
		{name: "one of the environment, before endpoints of the file", file: endpoints, env: map[string]string{"ETCD_DISCOVERY_SRV": "env.example.org"}, want: datastore.Config{DiscoverySRV: "env.example.org"}},
		{name: "endpoints of a flag, before a domain", env: map[string]string{"ETCD_DISCOVERY_SRV": "env.example.org"}, flags: Connection{Endpoints: "http://flag:2379"}, want: datastore.Config{Endpoints: []string{"http://flag:2379"}}},
		{name: "texts of the file", file: endpoints + texts, want: datastore.Config{Endpoints: []string{"http://file:2379"}, KeyPEM: []byte("fk\n"), CertPEM: []byte("fc"), CAPEM: []byte("fa")}},
		{name: "texts of the environment, before files", file: endpoints + files, env: inline, want: datastore.Config{Endpoints: []string{"http://file:2379"}, KeyPEM: []byte("ek"), CertPEM: []byte("ec"), CAPEM: []byte("ea")}},
		{name: "a file of a flag, before a text", file: endpoints, env: inline, flags: Connection{Ca: "/flag"}, want: datastore.Config{Endpoints: []string{"http://file:2379"}, KeyPEM: []byte("ek"), CertPEM: []byte("ec"), CAFile: "/flag"}},
		{name: "a file with both", file: endpoints + "  etcdDiscoverySrv: example.org\n", why: "etcdDiscoverySrv (ETCD_DISCOVERY_SRV): both are given"},
		{name: "a file with a key and its file", file: endpoints + files + "  etcdKey: x\n", why: "etcdKey (ETCD_KEY) and etcdKeyFile"},
		{name: "an environment with a certificate and its file", file: endpoints, env: map[string]string{"ETCD_CERT": "x", "ETCD_CERT_FILE": "/x"}, why: "etcdCert (ETCD_CERT) and etcdCertFile"},
		{name: "one with an authority and its file", file: endpoints, env: map[string]string{"ETCD_CA_CERT": "x", "ETCD_CA_CERT_FILE": "/x"}, why: "etcdCACert (ETCD_CA_CERT) and etcdCACertFile"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range os.Environ() {
				if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ETCD_") || name == "DATASTORE_TYPE" {
					t.Setenv(name, "")
				}
			}
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			c := tt.flags
			c.path = filepath.Join(t.TempDir(), "cfg")
			if err := os.WriteFile(c.path, []byte("kind: CalicoAPIConfig\nspec:\n  datastoreType: etcdv3\n"+tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			switch err := c.readFile(); {
			case tt.why != "":
				if err == nil || !strings.Contains(err.Error(), tt.why) {
					t.Errorf("got error %v, want %q", err, tt.why)
				}
			case err != nil:
				t.Fatal(err)
			default:
				if got := c.etcd(); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("got %+v, want %+v", got, tt.want)
				}
			}
		})
	}
}

func TestLongWorkHasADeadlineForEachCallNotForAll(t *testing.T) {
	var conn Connection
	calls := 0
	conn.Open = func(context.Context) (datastore.Store, func(), error) { return memstore.New(), func() {}, nil }
	err := conn.Long(t.Context(), func(ctx context.Context, s datastore.Store) error {
		if _, has := ctx.Deadline(); has {
			t.Error("the work as a whole has a deadline")
		}
		conn.Timeout = 0
		s = &timed{s, 0} // no time at all for a call
		for _, call := range []func() error{
			func() error { _, err := s.Get(ctx, "/a"); return err },
			func() error { _, err := s.List(ctx, "/a"); return err },
			func() error { _, err := s.Create(ctx, api.Update{Key: "/a"}); return err },
			func() error { _, err := s.Update(ctx, api.Update{Key: "/a"}); return err },
			func() error { return s.Delete(ctx, "/a", api.Revision{}) },
		} {
			if calls++; call() == nil {
				t.Errorf("call %d took no time", calls)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
