package kubestore_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// through opens a store that reaches the server through a proxy, of which it has small pieces of lists.
func through(t *testing.T, s *kubetest.Server, cfg datastore.Config) (*kubetest.Proxy, datastore.Client) {
	t.Helper()
	p := s.Proxy(t, "2")
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, time.Minute)
	cfg.Kubeconfig, cfg.Group = s.KubeconfigAt(t, p.Address), string(form.V3)
	c, err := kubestore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return p, c
}

// patiently asks a store with a short timeout, whose first request is after some that it makes once, until a busy machine answers in time.
func patiently[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	v, err := ask()
	for tries := 0; errors.Is(err, datastore.ErrUnavailable) && tries < 20; tries++ {
		v, err = ask()
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sets makes some GlobalNetworkSets, and nothing else of Calico's.
func sets(t *testing.T, s *kubetest.Server, names ...string) {
	t.Helper()
	s.Clear(t, string(form.V3))
	for _, name := range names {
		s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: "+name+"}\nspec: {nets: [198.51.100.0/24]}\n")
	}
}

func TestWhatIsNoListIsNotAnEmptyOne(t *testing.T) {
	s := cluster(t)
	sets(t, s, "a", "b", "c", "d", "e")
	p, c := through(t, s, datastore.Config{})
	prefix := api.KeyPrefix(api.KindGlobalNetworkSet, "")
	if all, err := c.List(t.Context(), prefix); err != nil || len(all.Items) != 5 {
		t.Fatalf("in pieces: %d items, %v", len(all.Items), err)
	}
	for _, body := range []string{
		"", "null", "{}", "[]", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":503}`, "<html>log in first</html>", `{"items":[]}`,
		`{"metadata":{"resourceVersion":""},"items":[]}`, `{"metadata":{"resourceVersion":"7"},"items":[{}]}`, "k8s\x00", `{"metadata":{"resourceVersion":"7"},"items":[`,
	} {
		p.Set(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
			if !kubetest.IsList(r) {
				pass(w, r)
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
			return true
		})
		before := p.Harmed()
		if all, err := c.List(t.Context(), prefix); err == nil {
			t.Errorf("%q is taken for a list of %d", body, len(all.Items))
		}
		if all, err := c.List(t.Context(), api.KeyPrefix(api.KindProfile, "")); err == nil { // of a kind that is protobuf
			t.Errorf("%q is taken for a list of %d", body, len(all.Items))
		}
		if p.Harmed() < before+2 {
			t.Errorf("%q was not the answer", body)
		}
	}
}

func TestAWatchThatNeverBeginsFails(t *testing.T) {
	s := cluster(t)
	sets(t, s)
	p, c := through(t, s, datastore.Config{RequestTimeout: 2 * time.Second})
	prefix := api.KeyPrefix(api.KindGlobalNetworkSet, "")
	all := patiently(t, func() (datastore.Snapshot, error) { return c.List(t.Context(), prefix) })
	for name, wrong := range map[string]kubetest.Wrong{
		"nothing is answered": func(_ http.ResponseWriter, r *http.Request, _ http.HandlerFunc) bool {
			<-r.Context().Done()
			return true
		},
		"it is asked to come again in an hour": func(w http.ResponseWriter, _ *http.Request, _ http.HandlerFunc) bool {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		},
	} {
		p.Set(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
			if !kubetest.IsWatch(r) {
				pass(w, r)
				return false
			}
			return wrong(w, r, pass)
		})
		if _, err := c.Watch(t.Context(), prefix, all.Position); !errors.Is(err, datastore.ErrUnavailable) {
			t.Errorf("%s: error %v, want that the datastore is unavailable", name, err)
		}
	}
}

func TestAWatchOfManyKindsSaysThatOneIsForgotten(t *testing.T) {
	s := cluster(t)
	sets(t, s)
	p, c := through(t, s, datastore.Config{})
	all, err := c.List(t.Context(), api.ResourcesPrefix)
	if err != nil {
		t.Fatal(err)
	}
	p.Set(func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
		switch {
		case kubetest.IsWatch(r) && strings.HasSuffix(r.URL.Path, "/globalnetworkpolicies"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}`+"\n")
			return true
		case kubetest.IsWatch(r) && strings.HasSuffix(r.URL.Path, "/globalnetworksets"): // that of another has yet to begin
			<-r.Context().Done()
			return true
		}
		pass(w, r)
		return false
	})
	if _, err := c.Watch(t.Context(), api.ResourcesPrefix, all.Position); !errors.Is(err, datastore.ErrCompacted) {
		t.Errorf("error %v, want that the position is forgotten", err)
	}
}

// asksForAnHour answers what is chosen with a code, and that the client shall come again in an hour; the first n times.
func asksForAnHour(code, n int, chosen func(*http.Request) bool) (kubetest.Wrong, *atomic.Int32) {
	var asked atomic.Int32
	return func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
		if !chosen(r) || asked.Add(1) > int32(n) {
			pass(w, r)
			return false
		}
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(code)
		return true
	}, &asked
}

func TestAReadDoesNotWaitForAsLongAsAServerThatStartsAsks(t *testing.T) {
	s := cluster(t)
	sets(t, s, "a")
	p, c := through(t, s, datastore.Config{})
	prefix := api.KeyPrefix(api.KindGlobalNetworkSet, "")
	all, err := c.List(t.Context(), prefix)
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("%d items, %v", len(all.Items), err)
	}
	other, err := apiserver.New(datastore.Config{Kubeconfig: s.KubeconfigAt(t, p.Address)})
	if err != nil {
		t.Fatal(err)
	}
	anything := func(*http.Request) bool { return true }
	for name, tt := range map[string]struct {
		chosen func(*http.Request) bool
		read   func() error
	}{
		"list": {kubetest.IsList, func() error { _, err := c.List(t.Context(), prefix); return err }},
		"pod":  {anything, func() error { _, _, err := other.Pod(t.Context(), "default", "a"); return err }},
		"lease": {anything, func() error {
			_, _, err := other.Lease("default", "a").Get(t.Context())
			return err
		}},
		"secret": {anything, func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seen := false
			err := apiserver.Secrets{Client: other, Namespace: "default"}.Follow(ctx, "a", func(map[string][]byte) { seen = true; cancel() })
			if seen {
				return nil
			}
			return err
		}},
		"get": {anything, func() error { _, err := c.Get(t.Context(), all.Items[0].Key); return err }},
		"watch": {kubetest.IsWatch, func() error {
			w, err := c.Watch(t.Context(), prefix, all.Position)
			if err == nil {
				w.Close()
			}
			return err
		}},
	} {
		wrong, asked := asksForAnHour(http.StatusServiceUnavailable, 1, tt.chosen)
		p.Set(wrong)
		if err := tt.read(); err != nil || asked.Load() < 2 {
			t.Errorf("%s: error %v after %d requests, want that it is tried again", name, err, asked.Load())
		}
	}
}

func TestWhoWritesOrAsksTooMuchWaitsForAsLongAsTheServerSays(t *testing.T) {
	s := cluster(t)
	sets(t, s, "a")
	p, c := through(t, s, datastore.Config{RequestTimeout: 2 * time.Second})
	key := api.KeyPrefix(api.KindGlobalNetworkSet, "") + "a"
	u := patiently(t, func() (api.Update, error) { return c.Get(t.Context(), key) })
	for name, tt := range map[string]struct {
		code int
		do   func() error
	}{
		"a read that is too much": {http.StatusTooManyRequests, func() error { _, err := c.Get(t.Context(), key); return err }},
		"a write":                 {http.StatusServiceUnavailable, func() error { return c.Delete(t.Context(), key, u.Revision) }},
	} {
		wrong, asked := asksForAnHour(tt.code, 100, func(*http.Request) bool { return true })
		p.Set(wrong)
		err := tt.do()
		for tries := 0; errors.Is(err, datastore.ErrUnavailable) && asked.Load() == 0 && tries < 20; tries++ { // it did not come to ask in time
			err = tt.do()
		}
		if !errors.Is(err, datastore.ErrUnavailable) || asked.Load() != 1 {
			t.Errorf("%s: error %v after %d requests, want one, and that the datastore is unavailable", name, err, asked.Load())
		}
	}
}
