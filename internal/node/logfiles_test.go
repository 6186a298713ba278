package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/logs"
)

// runWithFiles runs daemons until each has written its line to its file.
func runWithFiles(t *testing.T, dir string, scripts map[string]string, until func() bool) (stderr, problems string) {
	t.Helper()
	var out, wrong lockedBuffer
	files, err := NewLogFiles(dir, slog.New(slog.NewTextHandler(&wrong, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := Config{Exe: "/bin/sh", Stdout: &out, Stderr: &out, Files: files, Log: slog.New(slog.NewTextHandler(files.Tee("node", &out), nil))}
	for name, s := range scripts {
		cfg.Children = append(cfg.Children, Child{Name: name, Args: []string{"-c", s}})
	}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !until() {
		select {
		case <-look.C:
		case err := <-done:
			t.Fatalf("it ended: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return out.String(), wrong.String()
}

func TestEachDaemonHasALogFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	current := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(dir, name, "current")) // not there yet: empty
		return string(b)
	}
	stderr, problems := runWithFiles(t, dir, map[string]string{
		"agent": "echo to the one; echo to the other >&2; exec sleep 1000",
		"bgp":   "echo of bgp; exec sleep 1000",
	}, func() bool {
		return strings.Contains(current("agent"), "to the one\n") && strings.Contains(current("agent"), "to the other\n") && strings.Contains(current("bgp"), "of bgp\n")
	})
	for _, want := range []string{"to the one\n", "to the other\n", "of bgp\n"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error has no %q:\n%s", want, stderr)
		}
	}
	if strings.Contains(current("agent"), "of bgp") || strings.Count(current("node"), "child started") != 2 {
		t.Errorf("agent:\n%s\nnode:\n%s", current("agent"), current("node"))
	}
	if problems != "" {
		t.Error(problems)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "agent", "current"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func TestALogFileThatCannotBeWrittenHarmsNoDaemon(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agent"), nil, 0o600); err != nil { // where the directory would be
		t.Fatal(err)
	}
	after := filepath.Join(t.TempDir(), "after")
	stderr, problems := runWithFiles(t, dir, map[string]string{"agent": "echo one; echo two >&2; echo three && : >" + after + "; exec sleep 1000"}, func() bool {
		_, err := os.Stat(after)
		return err == nil
	})
	for _, want := range []string{"one\n", "two\n", "three\n"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error has no %q:\n%s", want, stderr)
		}
	}
	if strings.Count(problems, "cannot be written") != 1 || strings.Contains(stderr, "child ended") {
		t.Errorf("problems:\n%s\nstandard error:\n%s", problems, stderr)
	}
}

func TestLogFilesThatAreFullArePutAside(t *testing.T) {
	dir := t.TempDir()
	files, err := NewLogFiles(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	line := bytes.Repeat([]byte("x"), 1<<20)
	w := files.Tee("agent", io.Discard)
	for range logs.MaxMB + 1 {
		if n, err := w.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	all, err := filepath.Glob(filepath.Join(dir, "agent", "*"))
	if err != nil || len(all) != 2 {
		t.Errorf("%v, %v: want the current one and one that is full", all, err)
	}
}

// lockedBuffer is what several daemons write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }
