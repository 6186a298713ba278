package kubecontrollers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/status"
)

const (
	realisedNodes    = 1000
	realisedPolicies = 500
)

// counting is a store in which endpoints are made of pods and keys do not expire, as in an API server, and which counts what is written.
type counting struct {
	datastore.Store
	mu      sync.Mutex
	written map[string]int // by what it is
	bytes   map[string]int
	second  map[int64]int // writes, by second
	done    chan struct{} // closed when a condition is True
}

func (*counting) Derives(string) bool { return true }

func (c *counting) count(key string, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what := key[strings.LastIndexByte(key, '/')+1:]
	c.written[what]++
	c.bytes[what] += bytes
	c.second[time.Now().Unix()]++
}

func (c *counting) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	out, err := c.Store.Create(ctx, kv)
	if err == nil {
		c.count(kv.Key, len(kv.Value))
	}
	return out, err
}

func (c *counting) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	out, err := c.Store.Update(ctx, kv)
	if err == nil {
		c.count(kv.Key, len(kv.Value))
	}
	return out, err
}

// StatusOf implements statuses.
func (c *counting) StatusOf(_ context.Context, key string) (form.Origin, bool, error) {
	return form.Origin{Path: key}, true, nil
}

// PolicyRealised implements realisedUsers: it counts the condition, and does not store it.
func (c *counting) PolicyRealised(_ context.Context, of form.Origin, _ string, generation int64, is bool, _, message string) error {
	c.count("/condition", len(message)+len(of.Path))
	c.mu.Lock()
	defer c.mu.Unlock()
	if is && generation == 2 {
		close(c.done)
	}
	return nil
}

// since returns what was written since the last call: how much of each, and the most in one second.
func (c *counting) since() (written, bytes map[string]int, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	written, bytes = c.written, c.bytes
	for _, n := range c.second {
		most = max(most, n)
	}
	c.written, c.bytes, c.second = map[string]int{}, map[string]int{}, map[int64]int{}
	return written, bytes, most
}

// await waits until so many summaries have been written since the last call of since.
func (c *counting) await(b *testing.B, summaries int) {
	b.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range look.C {
		c.mu.Lock()
		n := c.written["summary"]
		c.mu.Unlock()
		if n >= summaries {
			return
		}
	}
}

// BenchmarkRealisedOfALargeCluster has the reporters of 1,000 agents and the controller write into a store in memory, in real time. Run it with -benchtime 1x.
//
//   - idle-*: what is written while nothing changes, in a second.
//   - change-*: what is written when one policy changes that is on all nodes, until its condition says that all have it in force; deliveries are conditions times
//     agents, each of which is sent the policy again.
//   - restart-*: what is written when an agent has begun again, until its summary is there.
func BenchmarkRealisedOfALargeCluster(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s := &counting{Store: memstore.New(), done: make(chan struct{})}
	s.since()
	all := make([]status.Version, realisedPolicies)
	put := func(i, generation int) status.Version {
		u := api.Update{
			Key: fmt.Sprintf("%sglobalnetworkpolicies/p%d", api.ResourcesPrefix, i),
			Value: fmt.Appendf(nil, `{"kind":"GlobalNetworkPolicy","metadata":{"uid":"u%d","generation":%d},"spec":{"order":%d},"status":{"conditions":[`+
				`{"type":"Realised","status":"True","observedGeneration":1,"message":"realised on %d of %d nodes"}]}}`, i, generation, generation, realisedNodes, realisedNodes),
		}
		if err := datastore.Put(ctx, s.Store, u); err != nil {
			b.Fatal(err)
		}
		return status.VersionOf(u)
	}
	for i := range all {
		all[i] = put(i, 1)
	}
	agents := make([]*status.Reporter, realisedNodes)
	for i := range agents {
		agents[i] = s.agent(b, ctx, i, all)
	}
	s.await(b, realisedNodes)
	r := newRealised(realisedConfig{Store: s, Objects: s, Users: s, Turn: func(string, error) {}, Log: slog.New(slog.DiscardHandler)})
	go func() { _ = r.run(ctx) }()
	for range b.N {
		idle(b, s)
		began := time.Now()
		changed := put(7, 2)
		for _, a := range agents {
			a.InForce([]status.Version{changed})
		}
		<-s.done
		b.ReportMetric(time.Since(began).Seconds(), "change-s")
		written, bytes, most := s.since()
		b.ReportMetric(float64(written["summary"]), "change-summaries")
		b.ReportMetric(float64(bytes["summary"])/1e3, "change-kB")
		b.ReportMetric(float64(most), "change-most/s")
		b.ReportMetric(float64(written["condition"]), "change-conditions")
		b.ReportMetric(float64(written["condition"]*realisedNodes), "change-deliveries")

		s.agent(b, ctx, realisedNodes-1, all)
		s.await(b, 1)
		<-time.After(2 * time.Second) // and what follows
		written, bytes, _ = s.since()
		b.ReportMetric(float64(written["summary"]), "restart-summaries")
		b.ReportMetric(float64(bytes["summary"])/1e3, "restart-kB")
		b.ReportMetric(float64(written["condition"]), "restart-conditions")
	}
}

// idle measures 30 seconds in which nothing changes: so often do agents report.
func idle(b *testing.B, s *counting) {
	b.Helper()
	s.since()
	const seconds = 30
	<-time.After(seconds * time.Second)
	written, bytes, _ := s.since()
	n, size := 0, 0
	for what := range written {
		n, size = n+written[what], size+bytes[what]
	}
	b.ReportMetric(float64(n)/seconds, "idle-writes/s")
	b.ReportMetric(float64(size)/seconds/1e3, "idle-kB/s")
}

// agent begins to report for a node that has some policies in force.
func (c *counting) agent(b *testing.B, ctx context.Context, i int, all []status.Version) *status.Reporter {
	b.Helper()
	node := fmt.Sprintf("n%d", i)
	u := api.Update{Key: api.KeyPrefix(api.KindNode, "") + node, Value: []byte(`{}`)}
	if err := datastore.Put(ctx, c.Store, u); err != nil {
		b.Fatal(err)
	}
	r := status.New(status.Config{Node: node, Store: c, Host: func() (bool, []string) { return true, nil }, Log: slog.New(slog.DiscardHandler)})
	r.Configure(status.Settings{Interval: 30 * time.Second, TTL: 90 * time.Second})
	r.Nodes(realisedNodes)
	r.InForce(all)
	r.Complete()
	go func() { _ = r.Run(ctx) }()
	return r
}
