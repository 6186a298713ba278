package agent

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/logs"
)

func TestTheLogGoesWhereSettingsSay(t *testing.T) {
	for _, tt := range []struct {
		in   map[string]string
		want logs.Settings
	}{
		{map[string]string{}, logs.Settings{File: slog.LevelInfo, Sys: logs.None}},
		{map[string]string{"logFilePath": "None", "logSeverityFile": "none", "logSeveritySys": "NONE", "debugDisableLogDropping": "false"}, logs.Settings{File: logs.None, Sys: logs.None}},
		{
			map[string]string{"LogFilePath": "/var/log/a.log", "LogSeverityFile": "debug", "LogSeveritySys": "Warning", "DebugDisableLogDropping": "true", "LogDebugFilenameRegex": "^fib"},
			logs.Settings{Path: "/var/log/a.log", File: slog.LevelDebug, Sys: slog.LevelWarn, Wait: true, DebugFiles: "^fib"},
		},
	} {
		file, _ := config.FromFile("test", lines(tt.in))
		resolved := config.New("h1", file).Resolve()
		if len(resolved.Problems) != 0 {
			t.Errorf("%v: %v", tt.in, resolved.Problems)
		}
		if got := logsOf(resolved.Settings); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.in, got, tt.want)
		}
	}
}

// TestASignalWritesAProfileOfMemory sends this process the signal: without a file in the settings it does nothing but say so.
func TestASignalWritesAProfileOfMemory(t *testing.T) {
	written := make(chan string, 10)
	h := &heapProfiles{log: slog.New(slog.NewTextHandler(lineWriter(written), nil))}
	h.configure(config.Settings{})
	ready, ctx, end := make(chan struct{}), t.Context(), context.CancelFunc(nil)
	ctx, end = context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- h.listen(ctx, func() { close(ready) }) }()
	<-ready
	dir := t.TempDir()
	for _, tt := range []struct{ path, want string }{
		{"", "set debugMemoryProfilePath"},
		{dir, "is not a regular file"},
		{filepath.Join(dir, "heap-<timestamp>.pprof"), "wrote a profile"},
	} {
		h.configure(config.Settings{HeapProfile: tt.path})
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if got := <-written; !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s", tt.path, got)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "heap-20*.pprof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("there are %v, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || !strings.Contains(string(b), "inuse_space") {
		t.Errorf("it is no profile of the heap: %v", err)
	}
	end()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

// lines are settings in the form of a file.
func lines(settings map[string]string) string {
	var out strings.Builder
	for name, value := range settings {
		out.WriteString(name + " = " + value + "\n")
	}
	return out.String()
}

type lineWriter chan<- string

func (w lineWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}
