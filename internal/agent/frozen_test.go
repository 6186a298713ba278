package agent

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/resources"
)

// TestAnAgentThatStartsAsksWhetherTheDatastoreIsFrozen: until it has received all of it, it does not know by itself.
func TestAnAgentThatStartsAsksWhetherTheDatastoreIsFrozen(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name   string
		stored bool // a ClusterInformation, which says
		ready  *bool
		synced bool
		known  api.Readiness // to an agent that is in sync
		want   api.Readiness
	}{
		{"ready", true, &yes, false, api.Blank, api.Ready},
		{"locked", true, &no, false, api.Blank, api.Locked},
		{"it says nothing", true, nil, false, api.Blank, api.Ready},
		{"there is none", false, nil, false, api.Blank, api.Blank},
		{"an agent in sync knows that it is gone", false, nil, true, api.Gone, api.Gone},
		{"an agent in sync goes by what it received", true, &yes, true, api.Locked, api.Locked},
	} {
		store := memstore.New()
		if tt.stored {
			info := resources.NewCluster()
			info.Spec.DatastoreReady = tt.ready
			if _, err := resources.CreateMissing(t.Context(), store, info); err != nil {
				t.Fatal(err)
			}
		}
		r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, store, metrics.New(prometheus.NewRegistry()))
		r.synced, r.ready = tt.synced, tt.known
		if got, err := r.frozen(store)(t.Context()); err != nil || got != tt.want {
			t.Errorf("%s: %d, %v; want %d", tt.name, got, err, tt.want)
		}
	}
}
