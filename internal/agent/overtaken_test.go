package agent

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/metrics"
	"github.com/twillnet/twill/internal/syncer"
	"github.com/twillnet/twill/internal/upkeep"
)

// TestAnEndpointThatIsDeletedBeforeItWasReceivedIsGone: the agent has it in force as soon as it is written, while the datastore's own
// word is on its way; if that would be a creation and a deletion, it is the deletion.
func TestAnEndpointThatIsDeletedBeforeItWasReceivedIsGone(t *testing.T) {
	for name, open := range map[string]func() datastore.Store{
		"with an order": func() datastore.Store { return memstore.New() }, "without": func() datastore.Store { return storetest.NewPoor(t) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, store := slog.New(slog.DiscardHandler), open()
				source := syncer.New(store, syncer.Config{Prefixes: watchedPrefixes})
				out := make(chan intent.Batch, 10)
				d := &calcLoop{
					node: "h1", graph: calc.New("h1"), out: out, log: log, local: make(chan local), in: source.Batches(),
					watch:   newReporter(Config{Node: "h1", Log: log}, store, metrics.New(prometheus.NewRegistry())),
					keep:    keepers{upkeep.New(upkeep.Config{Node: "h1", Store: store, Log: log})},
					overlay: attach.Overlay{Order: datastore.OrderOf(store)},
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 3)
				go func() { ended <- source.Run(ctx) }()
				go func() { ended <- d.run(ctx) }()
				go func() { ended <- d.overlay.Verify(ctx, store, d.apply) }()
				synctest.Wait()
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				must(source.Know(ctx, onCali1.Key))
				d.Announce(onCali1.Key, "cali1")
				u := onCali1
				u.Revision = attach.Pending
				must(d.Overlay(ctx, []api.Update{u}))
				now, err := store.Create(ctx, onCali1)
				must(err)
				must(store.Delete(ctx, now.Key, now.Revision)) // somebody's, before anybody has watched
				d.Written(now)
				<-time.After(time.Minute) // virtual
				cancel()
				for range cap(ended) {
					<-ended
				}
				if es := d.graph.Intents().Endpoints; len(es) > 0 {
					t.Errorf("the datastore has no endpoint, and in force is %+v", es)
				}
			})
		})
	}
}
