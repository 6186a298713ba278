package kubestore_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// groups are the forms in which clusters keep Calico's resources.
var groups = []form.Group{form.V3, form.V1}

// cluster is the API server of these tests, with the definitions of both groups.
func cluster(t testing.TB) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t)
	for _, g := range groups {
		install(t, s, g)
	}
	return s
}

// install applies the definitions of a group.
func install(t testing.TB, s *kubetest.Server, g form.Group) {
	t.Helper()
	all, err := crds.Documents(crds.Definitions(g))
	if err != nil {
		t.Fatal(err)
	}
	s.Apply(t, all)
}

func open(t testing.TB, s *kubetest.Server, g form.Group) datastore.Client {
	t.Helper()
	c, err := kubestore.New(datastore.Config{Kubeconfig: s.Kubeconfig, Group: string(g), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestAKubeconfigMayBeText: its text counts, whatever files are named.
func TestAKubeconfigMayBeText(t *testing.T) {
	if _, err := kubestore.New(datastore.Config{Inline: "x"}); err == nil || !strings.Contains(err.Error(), "inline kubeconfig: ") {
		t.Errorf("a text that is none: got error %v", err)
	}
	s := cluster(t)
	text, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "/nowhere")
	c, err := kubestore.New(datastore.Config{Inline: string(text), Group: string(form.V3), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.List(t.Context(), api.KeyPrefix(api.KindTier, "")); err != nil {
		t.Errorf("list: %v", err)
	}
}

func TestContractOfRecords(t *testing.T) {
	s := cluster(t)
	storetest.Run(t, func(t *testing.T) datastore.Store { return open(t, s, form.V3) })
}

func TestContractOfResources(t *testing.T) {
	s := cluster(t)
	for _, g := range groups {
		t.Run(string(g), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) datastore.Store { return asResources{open(t, s, g), api.KindGlobalNetworkSet} })
		})
	}
}

// asResources is a store that keeps each key as a resource: its name is the key, and an annotation the value.
type asResources struct {
	datastore.Store
	kind string
}

const note = "example.org/value"

func (a asResources) key(key string) string {
	return api.KeyPrefix(a.kind, "") + "x" + hex.EncodeToString([]byte(key))
}

func (a asResources) in(t api.Update) api.Update {
	r := api.New(a.kind)
	r.Meta().Name = "x" + hex.EncodeToString([]byte(t.Key))
	r.Meta().Annotations = map[string]string{note: base64.StdEncoding.EncodeToString(t.Value)}
	value, err := api.EncodeStored(r)
	if err != nil {
		panic(err)
	}
	return api.Update{Key: a.key(t.Key), Value: value, Revision: t.Revision}
}

func (a asResources) out(u api.Update) api.Update {
	key, _ := hex.DecodeString(strings.TrimPrefix(u.Key, api.KeyPrefix(a.kind, "")+"x"))
	out := api.Update{Key: string(key), Revision: u.Revision}
	if u.Value == nil {
		return out
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		panic(err)
	}
	out.Value, err = base64.StdEncoding.DecodeString(st.Resource.Meta().Annotations[note])
	if err != nil {
		panic(err)
	}
	return out
}

func (a asResources) all(us []api.Update) []api.Update {
	out := make([]api.Update, len(us))
	for i, u := range us {
		out[i] = a.out(u)
	}
	return out
}

func (a asResources) Get(ctx context.Context, key string) (api.Update, error) {
	u, err := a.Store.Get(ctx, a.key(key))
	if err != nil {
		return u, err
	}
	return a.out(u), nil
}

func (a asResources) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	s, err := a.Store.List(ctx, a.key(prefix))
	s.Items = a.all(s.Items)
	return s, err
}

func (a asResources) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	u, err := a.Store.Create(ctx, a.in(kv))
	if err != nil {
		return u, err
	}
	return a.out(u), nil
}

func (a asResources) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	u, err := a.Store.Update(ctx, a.in(kv))
	if err != nil {
		return u, err
	}
	return a.out(u), nil
}

func (a asResources) Delete(ctx context.Context, key string, revision api.Revision) error {
	return a.Store.Delete(ctx, a.key(key), revision)
}

func (a asResources) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	w, err := a.Store.Watch(ctx, a.key(prefix), after)
	if err != nil {
		return nil, err
	}
	return resourceWatcher{w, a}, nil
}

type resourceWatcher struct {
	datastore.Watcher
	a asResources
}

func (w resourceWatcher) Next(ctx context.Context) (datastore.Changes, error) {
	c, err := w.Watcher.Next(ctx)
	c.Updates = w.a.all(c.Updates)
	return c, err
}
