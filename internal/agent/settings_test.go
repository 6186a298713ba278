package agent

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/dataplane/fib"
	"github.com/twillnet/twill/internal/dataplane/host"
	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/upkeep"
)

// settled is a FelixConfiguration as the datastore has it.
func settled(spec string) []api.Update {
	return []api.Update{{Key: api.ResourcesPrefix + "felixconfigurations/default", Value: []byte(`{"metadata":{"name":"default"},"spec":` + spec + `}`)}}
}

// TestEachDriverIsReadBackAsOftenAsTheDatastoreSays: each by its own setting, on all the way that it goes.
func TestEachDriverIsReadBackAsOftenAsTheDatastoreSays(t *testing.T) {
	ns := netnstest.New(t)
	var d kernelHandles
	var err error
	ns.Do(func() { d, err = openKernel() })
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	type driver interface {
		Merge(intent.Batch)
		Refresh() (time.Duration, bool)
	}
	drivers := map[string]driver{"nft": nft.New(d.nft, nft.Config{}), "fib": fib.New(d.rtnl), "host": host.New(d.rtnl, d.sysctl, host.Config{}), "iptables": iptables.NewDriver(inNFT.tools(), iptables.Config{})}
	for name, driver := range drivers {
		if _, known := driver.Refresh(); known {
			t.Errorf("%s knows an interval before there are settings", name)
		}
	}
	for _, tt := range []struct {
		spec string
		want map[string]time.Duration
	}{
		{`{}`, map[string]time.Duration{"nft": 3 * time.Minute, "fib": 90 * time.Second, "host": 90 * time.Second}},
		{`{"nftablesRefreshInterval":"2s","iptablesRefreshInterval":"9s"}`, map[string]time.Duration{"nft": 2 * time.Second, "fib": 90 * time.Second, "host": 90 * time.Second}},
		{`{"nftablesMode":"Disabled","nftablesRefreshInterval":"9s","iptablesRefreshInterval":"2s"}`, map[string]time.Duration{"iptables": 2 * time.Second, "fib": 90 * time.Second, "host": 90 * time.Second}},
		{`{"nftablesMode":"Disabled","ipsetsRefreshInterval":"3s"}`, map[string]time.Duration{"iptables": 3 * time.Second, "fib": 90 * time.Second, "host": 90 * time.Second}},
		{`{"ipsetsRefreshInterval":"3s"}`, map[string]time.Duration{"nft": 3 * time.Second, "fib": 90 * time.Second, "host": 90 * time.Second}},
		{`{"routeRefreshInterval":"4s"}`, map[string]time.Duration{"nft": 3 * time.Minute, "fib": 4 * time.Second, "host": 90 * time.Second}},
		{`{"interfaceRefreshInterval":"0"}`, map[string]time.Duration{"nft": 3 * time.Minute, "fib": 90 * time.Second, "host": 0}},
	} {
		g := calc.New("h1")
		g.Update(settled(tt.spec))
		b := g.Flush()
		for name, want := range tt.want {
			drivers[name].Merge(b)
			if got, known := drivers[name].Refresh(); got != want || !known {
				t.Errorf("%s: %s is read back each %s (%v), want %s", tt.spec, name, got, known, want)
			}
		}
	}
}

// TestSettingsOfTheDatastoreReachEachPart: at the start, and each time that it changes; also why nothing is forwarded.
func TestSettingsOfTheDatastoreReachEachPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, store, level := slog.New(slog.DiscardHandler), memstore.New(), &slog.LevelVar{}
		in, out := make(chan syncer.Batch), make(chan intent.Batch, 10)
		var a, b []bool
		d := &calcLoop{
			node: "h1", graph: calc.New("h1"), in: in, out: out, log: log,
			watch:    newReporter(Config{Node: "h1", Log: log, Level: level}, store, metrics.New(prometheus.NewRegistry())),
			keep:     keepers{upkeep.New(upkeep.Config{Node: "h1", Store: store, Log: log})},
			settings: []func(config.Settings){func(s config.Settings) { a = append(a, s.GoMetrics) }, func(s config.Settings) { b = append(b, s.Metrics.Enabled) }},
		}
		ended := make(chan error)
		go func() { ended <- d.run(t.Context()) }()
		for _, tt := range []struct {
			spec        string
			level       slog.Level
			unforwarded []string
		}{
			{`{"logSeverityScreen":"Debug","prometheusGoMetricsEnabled":false,"ipv6Support":false}`, slog.LevelDebug, []string{"IPv6"}},
			{`{"logSeverityScreen":"Error","prometheusMetricsEnabled":true,"ipForwarding":"Disabled"}`, slog.LevelError, []string{"IPv4", "IPv6"}},
			{`{}`, slog.LevelInfo, nil},
		} {
			in <- syncer.Batch{Updates: settled(tt.spec), InSync: true, Status: syncer.InSync}
			synctest.Wait()
			if got := level.Level(); got != tt.level {
				t.Errorf("%s: lines are written from %s on, want %s", tt.spec, got, tt.level)
			}
			if got := d.watch.report().Unforwarded; !slices.Equal(got, tt.unforwarded) {
				t.Errorf("%s: the report says that %q is not forwarded, want %q", tt.spec, got, tt.unforwarded)
			}
		}
		if want := []bool{true, false, true, true}; !slices.Equal(a, want) {
			t.Errorf("one part was given %v, want %v", a, want)
		}
		if want := []bool{false, false, true, false}; !slices.Equal(b, want) {
			t.Errorf("the other was given %v, want %v", b, want)
		}
		close(in)
		<-ended
	})
}
