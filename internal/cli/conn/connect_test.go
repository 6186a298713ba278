package conn

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestCalicoctlsConfigurationFileSaysWhereTheDatastoreIs(t *testing.T) {
	variables := map[string]string{
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
