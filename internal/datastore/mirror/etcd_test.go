package mirror_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// etcd is a real member, by the store of a configuration that names masters, and by one that names none.
func etcd(t *testing.T, masters ...string) (as, raw datastore.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m, err := member.Start(t.Context(), member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "s")}, StartTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	open := func(masters []string) datastore.Client {
		s := must(stores.Open(t.Context(), datastore.Config{Endpoints: m.Endpoints(), Masters: masters, PageSize: 10, Progress: 20 * time.Second, RequestTimeout: time.Minute}))
		t.Cleanup(func() { s.Close() })
		return s
	}
	return open(masters), open(nil)
}

func TestACompleteMirrorInEtcdIsAStore(t *testing.T) {
	as, raw := etcd(t, "neutron")
	completed(t, raw, "neutron")
	storetest.Run(t, func(*testing.T) datastore.Store { return as })
}

// TestAMirrorInEtcdIsEmptiedAndRebuilt: what is deleted at once, marks and all, is deleted for nobody, and the next state comes whole.
func TestAMirrorInEtcdIsEmptiedAndRebuilt(t *testing.T) {
	ctx := t.Context()
	as, raw := etcd(t, "neutron")
	const a, b = api.ResourcesPrefix + "tiers/a", api.ResourcesPrefix + "tiers/b"
	must(raw.Create(ctx, api.Update{Key: a, Value: []byte("1")}))
	if _, err := as.List(ctx, api.ResourcesPrefix); !errors.Is(err, datastore.ErrUnavailable) {
		t.Fatalf("it is not complete: got %v", err)
	}
	completed(t, raw, "neutron")
	for _, prefix := range []string{api.ResourcesPrefix, api.ResourcesPrefix + "tiers/"} {
		snap := must(as.List(ctx, prefix))
		w := must(as.Watch(ctx, prefix, snap.Position))
		defer w.Close()
		must(raw.(datastore.Transactional).Transact(ctx, datastore.Txn{Delete: []string{a, mirror.Prefix + "neutron"}}))
		for {
			got, err := w.Next(ctx)
			if err != nil {
				if !errors.Is(err, datastore.ErrCompacted) && !errors.Is(err, datastore.ErrUnavailable) {
					t.Fatal(err)
				}
				break
			}
			if len(got.Updates) > 0 {
				t.Fatalf("%s: it is told of %v", prefix, got.Updates)
			}
		}
		if _, err := as.Watch(ctx, prefix, snap.Position); err == nil || !strings.Contains(err.Error(), "not written anything") {
			t.Errorf("%s, emptied: got %v", prefix, err)
		}
		must(raw.Create(ctx, api.Update{Key: b, Value: []byte("1")}))
		completed(t, raw, "neutron")
		if _, err := as.Watch(ctx, prefix, snap.Position); !errors.Is(err, datastore.ErrCompacted) {
			t.Errorf("%s, rebuilt: a watch that goes on: got %v", prefix, err)
		}
		if got := must(as.List(ctx, prefix)); len(got.Items) != 1 || got.Items[0].Key != b {
			t.Errorf("%s, rebuilt: got %v", prefix, got.Items)
		}
		must(0, raw.Delete(ctx, b, api.Revision{}))
		must(raw.Create(ctx, api.Update{Key: a, Value: []byte("1")}))
	}
}

func TestTheKubernetesAPIIsNoMirror(t *testing.T) {
	_, err := stores.Open(t.Context(), datastore.Config{Type: "kubernetes", Server: "http://127.0.0.1:1", Masters: []string{"neutron"}})
	if err == nil || !strings.Contains(err.Error(), "no mirror of neutron") {
		t.Errorf("got %v", err)
	}
}
