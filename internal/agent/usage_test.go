package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/metrics"
)

// TestWhatIsReportedIsShown has a server receive what the agent sends, and compares it with what the agent's socket says that it would.
func TestWhatIsReportedIsShown(t *testing.T) {
	received := make(chan map[string][]string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.URL.Query() }))
	defer server.Close()
	reg := prometheus.NewRegistry()
	r := newReporter(Config{Node: "h1", Version: "v9", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(reg))
	shown := func() (out UsageReport) {
		w := httptest.NewRecorder()
		r.usageReport(w, nil)
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.usage.Run(ctx) }()
	g := calc.New("h1")
	g.Update([]api.Update{
		{Key: api.ResourcesPrefix + "clusterinformations/default", Value: []byte(`{"spec":{"clusterGUID":"0123","clusterType":"twill"}}`)},
		{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":{}}`)},
		{Key: api.ResourcesPrefix + "hostendpoints/eth0", Value: []byte(`{"spec":{"node":"h1","interfaceName":"eth0"}}`)},
	})
	r.calculated(0, g)
	if got := shown(); got.Parameters != nil || got.Off == "" {
		t.Errorf("before all was read it shows %+v", got)
	}
	g.SetInSync()
	r.calculated(0, g)
	if got := shown(); got.Parameters.Get("heps") != "1" || got.Off != "usageReportingURL is not set" {
		t.Errorf("without an address it shows %+v", got)
	}
	r.configure(config.New("h1", config.Layer{Name: "file", Values: map[string]string{"usageReportingURL": server.URL, "usageReportingInitialDelay": "0"}}).Resolve().Settings)
	sent, is := <-received, shown()
	if is.URL != server.URL || is.Off != "" || len(sent) != len(is.Parameters) || len(sent) != 13 {
		t.Errorf("it shows %+v, and sent %v", is, sent)
	}
	for name, want := range map[string]string{"guid": "0123", "type": "twill,nft", "size": "1", "weps": "0", "heps": "1", "version": "v9"} {
		if got := is.Parameters.Get(name); got != want || sent[name][0] != want {
			t.Errorf("%s is shown as %q and sent as %q, want %q", name, got, sent[name], want)
		}
	}
	r.count()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "felix_cluster_num_") {
			counted[f.GetName()[len("felix_cluster_num_"):]] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if want := map[string]float64{"hosts": 1, "workload_endpoints": 0, "host_endpoints": 1, "policies": 0, "profiles": 0}; !maps.Equal(counted, want) {
		t.Errorf("metrics have %v, want %v", counted, want)
	}
	end()
	<-done
}
