package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/status"
)

// TestSettingsSayWhatIsReported: where, what and when, and that the agent's own status goes when nobody confirms it.
func TestSettingsSayWhatIsReported(t *testing.T) {
	const (
		host     = "host/h1/"
		endpoint = host + "workload/k8s/prod%2fweb/endpoint/eth0"
	)
	for _, tt := range []struct {
		name, spec string
		after      time.Duration
		want       []string // keys that there then are, of these
	}{
		{"by default", `{}`, 5 * time.Second, []string{"no-region/" + endpoint, "no-region/" + host + "status"}},
		{"no endpoints", `{"endpointReportingEnabled":false}`, 5 * time.Second, []string{"no-region/" + host + "status"}},
		{"endpoints not before the delay", `{"endpointReportingDelay":"20s"}`, 19 * time.Second, []string{"no-region/" + host + "status"}},
		{"endpoints after the delay", `{"endpointReportingDelay":"20s"}`, 21 * time.Second, []string{"no-region/" + endpoint, "no-region/" + host + "status"}},
		{"of a region", `{"openstackRegion":"west"}`, 5 * time.Second, []string{"region-west/" + endpoint, "region-west/" + host + "status"}},
		{"not of the agent", `{"reportingInterval":"0s"}`, 5 * time.Second, []string{"no-region/" + endpoint}},
		{"its status is confirmed in time", `{"reportingInterval":"10s","reportingTTL":"15s"}`, 59 * time.Second, []string{"no-region/" + endpoint, "no-region/" + host + "status"}},
		{"its status ends before it is confirmed", `{"reportingInterval":"60s","reportingTTL":"15s"}`, 30 * time.Second, []string{"no-region/" + endpoint}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				store := memstore.New()
				r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, store, metrics.New(prometheus.NewRegistry()))
				r.configure(settingsOf(t, tt.spec))
				r.status.Set(map[intent.EndpointID]status.Endpoint{{Kind: intent.Workload, Namespace: "prod", Name: "h1-k8s-web-eth0"}: {Status: status.Up}})
				r.status.Complete()
				go func() { _ = r.status.Run(ctx) }()
				<-time.After(tt.after) // virtual
				synctest.Wait()
				snap, err := store.List(ctx, api.Root+"felix/v2/")
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, u := range snap.Items {
					if key := strings.TrimPrefix(u.Key, api.Root+"felix/v2/"); !strings.HasSuffix(key, "/last_reported_status") && !strings.HasSuffix(key, "/summary") {
						got = append(got, key)
					}
				}
				slices.Sort(got)
				if want := slices.Sorted(slices.Values(tt.want)); !slices.Equal(got, want) {
					t.Errorf("there are %q, want %q", got, want)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
