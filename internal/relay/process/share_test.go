package process

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/syncer"
)

var nodes = api.KeyPrefix(api.KindNode, "")

// reader reads Nodes by relays.
type reader struct {
	source *syncer.Syncer
	has    map[string]int // how often each was given
}

func newReader(t *testing.T, store datastore.Store, node string, addresses []string) *reader {
	t.Helper()
	read, err := relay.NewClient(store, relay.ClientConfig{
		Address: "relays", Creds: relay.Plaintext(), Who: relay.Who{Node: node, Program: "agent", Version: "test"},
		Find: func(ctx context.Context, found func([]string, error)) { found(addresses, nil); <-ctx.Done() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	return &reader{syncer.New(read, syncer.Config{Prefixes: []string{nodes}}), map[string]int{}}
}

// takeUntil receives until a key is there, and all else.
func (c *reader) takeUntil(key string) {
	for last := (syncer.Batch{}); c.has[key] == 0 || !last.InSync; {
		last = <-c.source.Batches()
		for _, u := range last.Updates {
			c.has[u.Key]++
		}
	}
}

// TestRelaysOfARealEtcdShareTheirClients: nine clients of one relay, until there is another; each is given every Node once, wherever it reads.
func TestRelaysOfARealEtcdShareTheirClients(t *testing.T) {
	dir := t.TempDir()
	etcd, err := member.Start(t.Context(), member.Config{Dir: filepath.Join(dir, "data"), ListenClient: []string{"unix://" + filepath.Join(dir, "etcd.sock")}, StartTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	at := datastore.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}, Progress: 20 * time.Second, RequestTimeout: time.Minute}
	store, err := stores.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const n = 9
	put := func(name string) {
		t.Helper()
		if err := datastore.Put(t.Context(), store, api.Update{Key: nodes + name, Value: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(fmt.Sprint("h", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2+n)
	addresses := []string{machinetest.Address(t), machinetest.Address(t)}
	begin := func(i int) (socket string) {
		cfg := Config{
			Store: at, Listen: addresses[i], Socket: filepath.Join(dir, fmt.Sprint(i)), Relays: 2,
			Limits: relay.Limits{Least: 1, Every: 50 * time.Millisecond}, Log: slog.New(slog.DiscardHandler),
		}
		go func() { ended <- Run(ctx, cfg) }()
		for {
			if st, err := Ask(t.Context(), cfg.Socket); err == nil && st.NotReady == nil || t.Context().Err() != nil {
				return cfg.Socket
			}
		}
	}
	two := begin(1) // before the others, so that who is sent away finds it
	one := begin(0)
	var clients []*reader
	for i := range n {
		c := newReader(t, store, fmt.Sprint("h", i), addresses)
		clients = append(clients, c)
		go func() { ended <- c.source.Run(ctx) }()
	}
	for _, c := range clients {
		c.takeUntil(nodes + "h0")
	}
	const share = 6 // 9 × 1.2 / 2, rounded up
	for {
		a, errA := Ask(t.Context(), one)
		b, errB := Ask(t.Context(), two)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if len(a.Clients) <= share && len(b.Clients) <= share && len(a.Clients)+len(b.Clients) == n {
			break
		}
	}
	put("new")
	for i, c := range clients {
		c.takeUntil(nodes + "new")
		for key, times := range c.has {
			if times != 1 || len(c.has) != n+1 {
				t.Errorf("client %d was given %s %d times, and has %d Nodes; want once, and %d", i, key, times, len(c.has), n+1)
			}
		}
	}
	cancel()
	for range 2 + n {
		<-ended
	}
}
