package agent

import (
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/metrics"
)

// TestSettingsReachTheRuntimeAndTheLog asks Go's runtime and the log's level what settings made of them.
func TestSettingsReachTheRuntimeAndTheLog(t *testing.T) {
	percent, threads := debug.SetGCPercent(100), runtime.GOMAXPROCS(0)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(math.MaxInt64)
		runtime.GOMAXPROCS(threads)
	}()
	level := &slog.LevelVar{}
	r := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler), Level: level}, memstore.New(), metrics.New(prometheus.NewRegistry()))
	for _, tt := range []struct {
		name    string
		memory  config.Memory
		level   string
		percent int
		bytes   int64
		threads int
		want    slog.Level
	}{
		{"what is set", config.Memory{GCPercent: 60, LimitMB: 512, MaxProcs: 1}, "Debug", 60, 512 << 20, 1, slog.LevelDebug},
		{"collected near the limit alone", config.Memory{GCPercent: -1, LimitMB: 512, MaxProcs: 1}, "Error", -1, 512 << 20, 1, slog.LevelError},
		{"collected all the time", config.Memory{GCPercent: 0, LimitMB: 0, MaxProcs: 1}, "Info", 0, math.MaxInt64, 1, slog.LevelInfo},
		{"without a limit", config.Memory{GCPercent: -1, LimitMB: -1, MaxProcs: 2}, "Info", 100, math.MaxInt64, 2, slog.LevelInfo},
	} {
		r.configure(config.Settings{Memory: tt.memory, LogSeverity: tt.level})
		is := debug.SetGCPercent(100)
		debug.SetGCPercent(is)
		if bytes, procs := debug.SetMemoryLimit(-1), runtime.GOMAXPROCS(0); is != tt.percent || bytes != tt.bytes || procs != tt.threads || level.Level() != tt.want {
			t.Errorf("%s: %d %%, %d bytes, %d threads, %s", tt.name, is, bytes, procs, level.Level())
		}
	}
}
