package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/syncer"
)

// cluster is a store, and relays of it that are reached by gRPC through memory, in virtual time.
type cluster struct {
	*testing.T
	store  *memstore.Store
	mu     sync.Mutex
	relays map[string]*served // by address
	dials  atomic.Int64
	took   func(h *host, u api.Update) // of hosts that begin: before each update; may be nil
	direct datastore.Store             // of hosts that begin; nil: store
}

type served struct {
	*Server
	pipes *pipes
	meter counts
	end   func()
}

// inCluster runs a test with so many Nodes in the store.
func inCluster(t *testing.T, nodes int, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{T: t, store: memstore.New(), relays: map[string]*served{}}
		for i := range nodes {
			c.put(api.KeyPrefix(api.KindNode, "") + fmt.Sprint("h", i))
		}
		test(c)
		for _, r := range c.relays {
			r.end()
		}
	})
}

func (c *cluster) put(key string) {
	c.Helper()
	if err := datastore.Put(c.Context(), c.store, api.Update{Key: key, Value: []byte("{}")}); err != nil {
		c.Fatal(err)
	}
}

// relay begins one at an address.
func (c *cluster) relay(address string, limits Limits) *served {
	c.Helper()
	return c.relayOf(c.store, address, limits)
}

// relayOf begins one that reads another store.
func (c *cluster) relayOf(store datastore.Store, address string, limits Limits) *served {
	c.Helper()
	r := &served{pipes: newPipes()}
	r.Server = NewServer(store, ServerConfig{Limits: limits, Meter: &r.meter})
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = r.Run(ctx) })
	parts.Go(func() { _ = r.Serve(ctx, r.pipes, Plaintext(), 0) })
	r.end = func() { cancel(); _ = r.pipes.Close(); parts.Wait() }
	c.mu.Lock()
	c.relays[address] = r
	c.mu.Unlock()
	synctest.Wait()
	return r
}

// at is a connection whose other end has an address of its own.
type at struct {
	net.Conn
	name string
}

// RemoteAddr implements [net.Conn].
func (a at) RemoteAddr() net.Addr { return &net.UnixAddr{Name: a.name} }

// host is one that reads Nodes, and knows relays in an order.
type host struct {
	source *syncer.Syncer
	end    func()
	last   syncer.Batch
	has    map[string]bool
	values map[string]string
	was    int // updates that it was given
	took   func(h *host, u api.Update)
}

func (c *cluster) host(name, program string, relays ...string) *host {
	c.Helper()
	direct := c.direct
	if direct == nil {
		direct = c.store
	}
	client := must(NewClient(direct, ClientConfig{
		Address: "relays", Creds: Plaintext(), Who: Who{Node: name, Program: program, Version: "v1"},
		Find: func(ctx context.Context, found func([]string, error)) { found(relays, nil); <-ctx.Done() },
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			c.dials.Add(1)
			c.mu.Lock()
			r := c.relays[address]
			c.mu.Unlock()
			if r == nil {
				return nil, errors.New("connection refused")
			}
			conn, err := r.pipes.dial(ctx, address)
			return at{conn, address}, err
		},
	}))
	ctx, cancel := context.WithCancel(c.Context())
	h := &host{source: syncer.New(client, syncer.Config{Prefixes: []string{api.KeyPrefix(api.KindNode, "")}}), has: map[string]bool{}, values: map[string]string{}, took: c.took}
	done := make(chan struct{}, 2)
	go func() { _ = h.source.Run(ctx); done <- struct{}{} }()
	go func() {
		for b := range h.source.Batches() {
			for _, u := range b.Updates {
				h.was++
				if h.took != nil {
					h.took(h, u)
				}
				h.has[u.Key], h.values[u.Key] = u.Value != nil, string(u.Value)
			}
			h.last = b
		}
		done <- struct{}{}
	}()
	h.end = sync.OnceFunc(func() { cancel(); <-done; <-done; _ = client.Close() })
	return h
}

// clients are how many each relay has.
func (c *cluster) clients(addresses ...string) (out []int) {
	synctest.Wait()
	for _, a := range addresses {
		out = append(out, len(c.relays[a].Clients()))
	}
	return out
}

// TestWhenARelayComesOthersSendItClients, one a second and down to their share, and no client notices: it is given no update twice, and none is lost.
func TestWhenARelayComesOthersSendItClients(t *testing.T) {
	const n = 20
	inCluster(t, n, func(c *cluster) {
		one := c.relay("one", Limits{Least: 2})
		var hosts []*host
		for i := range n {
			h := c.host(fmt.Sprint("h", i), "agent", "one", "two")
			hosts = append(hosts, h)
			defer h.end()
		}
		old := c.older("one")
		defer old()
		<-time.After(time.Minute)
		one.SetRelays(1)
		if got := c.clients("one"); got[0] != n+1 {
			c.Fatalf("%v clients, want %d", got, n+1)
		}
		two := c.relay("two", Limits{Least: 2})
		two.SetRelays(2)
		<-time.After(time.Minute)
		if got := c.clients("one", "two"); got[1] != 0 {
			c.Errorf("%v: a client was sent away by a relay that knows of no other", got)
		}
		one.SetRelays(2)
		const share = 12 // 20 × 1.2 / 2
		for before := n + 1; ; {
			<-time.After(time.Second)
			got := c.clients("one")[0]
			if before-got > 1 {
				c.Errorf("%d left in one second", before-got)
			}
			if before == got {
				break
			}
			before = got
		}
		<-time.After(time.Minute)
		if got := c.clients("one", "two"); got[0] != share || got[1] != n+1-share {
			c.Errorf("%v clients, want %d and %d", got, share, n+1-share)
		}
		if moved, streams := one.meter.of(&one.meter.moved, ""), one.meter.of(&one.meter.ended, "sent elsewhere"); moved != n+1-share || streams != moved {
			c.Errorf("%d clients were sent away, with %d streams", moved, streams)
		}
		c.put(api.KeyPrefix(api.KindNode, "") + "new")
		<-time.After(time.Second)
		synctest.Wait()
		for i, h := range hosts {
			if h.was != n+1 || !h.last.InSync || h.last.Status != syncer.InSync || !h.has[api.KeyPrefix(api.KindNode, "")+"new"] {
				c.Errorf("host %d was given %d updates, want %d; in sync %v, %v", i, h.was, n+1, h.last.InSync, h.last.Status)
			}
		}
		if dials := c.dials.Load(); dials != int64(n+n+1-share) {
			c.Errorf("%d connections were begun, want one for each client, and one for each that left", dials)
		}
	})
}

// TestClientsAreLeftAloneWhileThereIsNoOtherRelay: a few learn it, now and then; and once there is one, it has its share.
func TestClientsAreLeftAloneWhileThereIsNoOtherRelay(t *testing.T) {
	const n = 10
	inCluster(t, n, func(c *cluster) {
		one := c.relay("one", Limits{Least: 2})
		for i := range n {
			h := c.host(fmt.Sprint("h", i), "agent", "one", "two")
			defer h.end()
		}
		<-time.After(time.Minute)
		one.SetRelays(2)
		<-time.After(time.Hour)
		if moved := one.meter.of(&one.meter.moved, ""); moved == 0 || moved > 12*5 {
			c.Errorf("%d times a client was sent away in an hour; want a few each five minutes", moved)
		}
		<-time.After(10 * time.Second)
		if got := c.clients("one"); got[0] < n-4 {
			c.Errorf("%v clients are left", got)
		}
		two := c.relay("two", Limits{Least: 2})
		two.SetRelays(2)
		<-time.After(10 * time.Minute)
		if got := c.clients("one", "two"); got[0] != 6 || got[1] != 4 {
			c.Errorf("%v clients, want 6 and 4", got)
		}
	})
}

// older is a client of a version that does not go when it is asked to. It only connects.
func (c *cluster) older(address string) (end func()) {
	c.Helper()
	r := c.relays[address]
	ctx, cancel := context.WithCancel(c.Context())
	conn, _, done, err := r.connected.begin(ctx, nil, r.chains[api.ResourcesPrefix])
	if err != nil || conn.moves {
		c.Fatal(err)
	}
	return func() { done(); cancel() }
}

// TestAShareIsNeverLessThanTheLowerLimit, and who is alone has all.
func TestAShareIsNeverLessThanTheLowerLimit(t *testing.T) {
	for _, tt := range []struct {
		name             string
		has, all, relays int
		least, want      int
	}{
		{"nobody knows how many relays there are", 500, 1000, 0, -1, 500},
		{"alone", 500, 1000, 1, -1, 500},
		{"two", 1000, 1000, 2, -1, 600},
		{"five", 1000, 1000, 5, -1, 240},
		{"rounded up", 10, 11, 3, -1, 5},
		{"fewer Nodes than clients", 100, 10, 2, -1, 60},
		{"the lower limit by default", 1000, 1000, 10, 0, 400},
		{"a lower limit", 1000, 1000, 10, 150, 150},
		{"no clients", 0, 0, 3, -1, 0},
	} {
		if got := share(tt.has, tt.all, tt.relays, Limits{Least: tt.least}); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestAClientTooManyIsRefusedAndTakesAnother: with the reason; and where there is no other, it asks again until there is room.
func TestAClientTooManyIsRefusedAndTakesAnother(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		one := c.relay("one", Limits{Most: 2})
		c.relay("two", Limits{Most: 1})
		var hosts []*host
		for i := range 3 {
			h := c.host(fmt.Sprint("h", i), "agent", "one", "two")
			hosts = append(hosts, h)
			defer h.end()
			<-time.After(10 * time.Second)
		}
		if got := c.clients("one", "two"); got[0] != 2 || got[1] != 1 {
			c.Errorf("%v clients, want 2 and 1", got)
		}
		late := c.host("late", "agent", "one")
		defer late.end()
		<-time.After(time.Minute)
		synctest.Wait()
		if late.last.InSync || len(late.has) > 0 || one.meter.of(&one.meter.ended, "sent elsewhere") == 0 {
			c.Errorf("one too many was served: %v", late.has)
		}
		refused := must(NewClient(c.store, ClientConfig{
			Address: "relays", Creds: Plaintext(), Find: func(ctx context.Context, found func([]string, error)) { found([]string{"one"}, nil); <-ctx.Done() },
			dial: func(ctx context.Context, address string) (net.Conn, error) { return one.pipes.dial(ctx, address) },
		}))
		defer refused.Close()
		if _, err := refused.List(c.Context(), api.BlockPrefix); err == nil || !strings.Contains(err.Error(), "ask another relay: it has 2 clients, the most that it takes") || !errors.Is(err, datastore.ErrUnavailable) {
			c.Errorf("the reason is %v", err)
		}
		hosts[0].end()
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if !late.last.InSync || len(late.has) != 1 {
			c.Errorf("once there is room: in sync %v, %v", late.last.InSync, late.has)
		}
	})
}

// TestWhoIsConnected: each client once, with what it reads, how far it is behind, and what it was sent.
func TestWhoIsConnected(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		one := c.relay("one", Limits{})
		agent, bgp := c.host("h1", "agent", "one"), c.host("h1", "bgp", "one")
		defer agent.end()
		defer bgp.end()
		<-time.After(time.Minute)
		conn, r, end, err := one.connected.begin(c.Context(), nil, one.chains[api.BlockPrefix])
		if err != nil {
			c.Fatal(err)
		}
		defer end()
		conn.remote = "192.0.2.9:1"
		c.put(api.BlockPrefix + "10-0-0-0-26")
		<-time.After(time.Second)
		c.put(api.BlockPrefix + "10-0-0-64-26")
		<-time.After(time.Second)
		synctest.Wait()
		var got []string
		for _, k := range one.Clients() {
			if k.SentBytes > 0 != (k.Program != "") || time.Since(k.Since) > 2*time.Minute {
				c.Errorf("%s %s was sent %d bytes, since %s", k.Node, k.Program, k.SentBytes, k.Since)
			}
			got = append(got, fmt.Sprint(k.Node, " ", k.Program, " ", k.Version, " ", k.Remote, " ", k.Reads))
		}
		nodes := api.KeyPrefix(api.KindNode, "")
		want := fmt.Sprintf("  192.0.2.9:1 [{%s 2}]\nh1 agent v1 pipe [{%s 0}]\nh1 bgp v1 pipe [{%s 0}]", strings.TrimSpace(api.BlockPrefix), nodes, nodes)
		if text := strings.Join(got, "\n"); strings.TrimSpace(text) != strings.TrimSpace(want) {
			c.Errorf("got\n%s\nwant\n%s", text, want)
		}
		if st := one.Status(); st.Most != mostClients {
			c.Errorf("it says that it takes %d clients, and takes %d", st.Most, mostClients)
		}
		r.at.Store(2)
		if behind := one.Clients()[0].Reads[0].Behind; behind != 0 {
			c.Errorf("%d behind after all was handed over", behind)
		}
	})
}
