package conn

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestCalicoctlsConfigurationFileSaysWhereTheDatastoreIs(t *testing.T) {
	for _, env := range []string{"ETCD_ENDPOINTS", "ETCD_USERNAME"} {
		t.Setenv(env, "")
	}
	const text = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n  etcdEndpoints: https://192.0.2.1:2379\n  etcdUsername: u\n  etcdCACertFile: /ca\n"
	path := filepath.Join(t.TempDir(), "cfg")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conn := Connection{path: path}
	if err := conn.readFile(); err != nil {
		t.Fatal(err)
	}
	if got := conn.config(); got.Endpoints[0] != "https://192.0.2.1:2379" || got.Username != "u" || got.CAFile != "/ca" {
		t.Errorf("%+v", got)
	}
	t.Setenv("ETCD_ENDPOINTS", "http://env:2379")
	if got := conn.config().Endpoints[0]; got != "http://env:2379" {
		t.Errorf("the environment is the more specific: got %s", got)
	}
	if conn.Endpoints = "http://flag:2379"; conn.config().Endpoints[0] != "http://flag:2379" {
		t.Error("a flag is the most specific")
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
