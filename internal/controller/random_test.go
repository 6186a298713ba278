package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestNothingIsLost copies a store by reconciling each key, while the store changes, its watches end, calls of either side fail, and it
// says now and then that it is not ready. The copy ends equal.
func TestNothingIsLost(t *testing.T) {
	seedtest.Each(t, nil, 20, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			store := storetest.New(t)
			kinds := api.KeyPrefix(api.KindNetworkSet, "")
			names := func() string { return fmt.Sprintf("%sns/n%d", kinds, r.IntN(8)) }
			var frozen, broken atomic.Bool
			seen, copied := map[string]string{}, map[string]string{}
			busy := 0
			luck := rand.New(rand.NewPCG(seed, 1)) // of Reconcile, which runs beside the test
			c := New(Config{
				Name: "copy", Prefixes: []string{kinds}, Store: store,
				Observe: func(u api.Update) []string {
					if seen[u.Key] = string(u.Value); u.Value == nil {
						delete(seen, u.Key)
					}
					return []string{u.Key}
				},
				Reconcile: func(_ context.Context, key string) (time.Time, error) {
					if busy++; busy != 1 {
						t.Errorf("%d calls at once", busy)
					}
					defer func() { busy-- }()
					if frozen.Load() {
						t.Errorf("%s is reconciled while the datastore is not ready", key)
					}
					value, is := seen[key]
					<-time.After(time.Duration(luck.IntN(300)) * time.Millisecond) // virtual
					if luck.IntN(3) == 0 && broken.Load() {
						return time.Time{}, errAway
					}
					if copied[key] = value; !is {
						delete(copied, key)
					}
					return time.Time{}, nil
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- c.Run(ctx) }()
			put := func(key, value string) {
				if err := datastore.Put(t.Context(), store, api.Update{Key: key, Value: []byte(value)}); err != nil {
					t.Fatal(err)
				}
			}
			broken.Store(true)
			for range 300 {
				switch n := r.IntN(20); {
				case n < 12:
					put(names(), fmt.Sprint(r.Int()))
				case n < 15:
					if err := store.Delete(t.Context(), names(), api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
						t.Fatal(err)
					}
				case n < 17:
					store.DropWatches(nil)
				case n < 18:
					put(readiness, `{"spec":{"datastoreReady":false}}`)
					observed(c, true)
					<-time.After(time.Second) // virtual: the call that runs ends
					frozen.Store(true)
					put(names(), fmt.Sprint(r.Int()))
					<-time.After(10 * time.Second) // virtual
					frozen.Store(false)
					put(readiness, `{"spec":{"datastoreReady":true}}`)
					observed(c, false)
				default:
					<-time.After(time.Duration(r.IntN(2000)) * time.Millisecond) // virtual
				}
			}
			broken.Store(false)
			<-time.After(2 * time.Minute) // virtual
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
			all, err := store.List(t.Context(), kinds)
			want := map[string]string{}
			for _, u := range all.Items {
				want[u.Key] = string(u.Value)
			}
			if err != nil || !maps.Equal(copied, want) {
				t.Errorf("%v: the copy is\n%v\nwant\n%v", err, copied, want)
			}
		})
	})
}

// observed waits until the controller knows whether the datastore is not ready: its watch may end several times before.
func observed(c *Controller, notReady bool) {
	for synctest.Wait(); c.ready.Frozen() != notReady; synctest.Wait() {
		<-time.After(time.Second) // virtual
	}
}
