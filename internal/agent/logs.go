package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/logs"
)

// logging has the log be as settings say.
func logging(level *slog.LevelVar, to *logs.Logs, s config.Settings) {
	if level != nil {
		level.Set(levels[s.LogSeverity])
	}
	if to != nil {
		to.Configure(logsOf(s))
	}
}

// logsOf are the settings of the log file and of syslog.
func logsOf(s config.Settings) logs.Settings {
	f := s.LogFile
	return logs.Settings{Path: f.Path, File: levels[f.Severity], Sys: levels[f.Sys], DebugFiles: f.DebugFiles, Wait: f.Wait}
}

// heapProfiles writes a profile of the agent's memory at each SIGUSR1, to the file that settings name.
type heapProfiles struct {
	log  *slog.Logger
	path atomic.Pointer[string]
}

func (h *heapProfiles) configure(s config.Settings) { h.path.Store(&s.HeapProfile) }

func (h *heapProfiles) run(ctx context.Context) error { return h.listen(ctx, func() {}) }

// listen is run, which says when it hears the signal: before, SIGUSR1 would end the process.
func (h *heapProfiles) listen(ctx context.Context, ready func()) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	ready()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-signals:
			h.write(time.Now())
		}
	}
}

func (h *heapProfiles) write(now time.Time) {
	path := h.path.Load()
	if path == nil || *path == "" {
		h.log.Warn("SIGUSR1 asks for a profile of memory: set debugMemoryProfilePath to the file that is to have it")
		return
	}
	file := strings.ReplaceAll(*path, "<timestamp>", now.Format("2006-01-02-15:04:05"))
	if err := writeHeapProfile(file); err != nil {
		h.log.Error("the profile of memory cannot be written", "err", err)
		return
	}
	h.log.Info("wrote a profile of memory", "file", file)
}

func writeHeapProfile(path string) error {
	if err := logs.Regular(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := pprof.WriteHeapProfile(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Close()
}
