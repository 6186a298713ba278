package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/syncer"
)

// reporter hands what the parts say to logs, metrics, health and status. Its
// methods are called from the goroutines of calc and of the dataplane.
type reporter struct {
	log   *slog.Logger
	level *slog.LevelVar

	mu      sync.Mutex
	sent    []time.Time // when each batch that the dataplane has not taken over was heard of
	merged  []time.Time // those that it has, and that are not in force yet
	setting config.Settings
}

func newReporter(cfg Config, _ datastore.Store) *reporter {
	return &reporter{log: cfg.Log, level: cfg.Level}
}

// run starts what must run.
func (r *reporter) run(context.Context, *errgroup.Group) {}

// decided: a batch is about to be sent to the dataplane.
func (r *reporter) decided(_ intent.Batch, heard time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, heard)
}

func (r *reporter) calculated(time.Duration, *calc.Graph) {}
func (r *reporter) source(syncer.Status)                  {}
func (r *reporter) problems([]api.Problem)                {}
func (r *reporter) freeze(bool)                           {}

var levels = map[string]slog.Level{
	"Trace": slog.LevelDebug - 4, "Debug": slog.LevelDebug, "Info": slog.LevelInfo, "Warning": slog.LevelWarn,
	"Error": slog.LevelError, "Fatal": slog.LevelError + 4, "None": slog.LevelError + 8,
}

// configure takes over settings that are not the dataplane's.
func (r *reporter) configure(s config.Settings) {
	if r.level != nil {
		r.level.Set(levels[s.LogSeverity])
	}
}

// outcomes tells what could not be done; that it was done is debug.
func (r *reporter) outcomes(os []intent.Outcome) {
	for _, o := range os {
		switch {
		case o.Err != nil:
			r.log.Error("not in force", "intent", o.Key.ID, "err", o.Err)
		case o.Reason != "":
			r.log.Info("waits", "intent", o.Key.ID, "reason", o.Reason)
		default:
			r.log.Debug("in force", "intent", o.Key.ID)
		}
	}
}

// Merged is the dataplane's: it takes batches over in the order in which they were sent.
func (r *reporter) Merged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.sent) > 0 {
		r.merged = append(r.merged, r.sent[0])
		r.sent = r.sent[1:]
	}
}

// Round is the dataplane's: if it is settled, all that was taken over is in force.
func (r *reporter) Round(settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if settled {
		r.merged = r.merged[:0]
	}
}

// Applied is the dataplane's.
func (r *reporter) Applied(string, time.Duration, error) {}

// Resynced is the dataplane's.
func (r *reporter) Resynced(string, time.Duration, error) {}

// Repaired is the dataplane's.
func (r *reporter) Repaired(string, intent.Cause, int) {}
