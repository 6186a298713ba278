package node

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start supervises shell scripts and returns the lines that they print.
func start(t *testing.T, signals chan os.Signal, scripts ...string) (lines *bufio.Scanner, stop func() error) {
	t.Helper()
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{
		Exe: "/bin/sh", Backoff: time.Millisecond, Grace: time.Minute, Signals: signals, Stdout: w, Stderr: io.Discard,
		Log: slog.New(slog.DiscardHandler),
	}
	for _, s := range scripts {
		cfg.Children = append(cfg.Children, Child{Name: strings.Fields(s)[0], Args: []string{"-c", s}, Env: []string{"FROM_NODE=yes"}})
	}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg); w.Close() }()
	return bufio.NewScanner(r), func() error {
		cancel()
		go io.Copy(io.Discard, r)
		return <-done
	}
}

func next(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	if !s.Scan() {
		t.Fatal("no more output")
	}
	return s.Text()
}

func TestAChildThatDiesIsStartedAgain(t *testing.T) {
	lines, stop := start(t, nil, "echo up $FROM_NODE; exit 3")
	for range 3 {
		if got := next(t, lines); got != "up yes" {
			t.Errorf("child printed %q, want %q", got, "up yes")
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestSignalsReachTheChild(t *testing.T) {
	signals := make(chan os.Signal)
	lines, stop := start(t, signals, `trap 'echo signalled' USR1; echo ready; while :; do read x; sleep 1; done`)
	next(t, lines)
	// The child may not be registered in the instant of its first line: signal until it answers, but leave it the time to do so:
	// the kernel's fork starts over at each signal, so a shell that gets them without a pause never forks.
	got := make(chan string)
	go func() { got <- next(t, lines) }()
	pause := 50 * time.Millisecond
	again := time.NewTimer(pause)
	defer again.Stop()
	for answered := false; !answered; {
		select {
		case <-again.C:
			signals <- syscall.SIGUSR1 // not SIGHUP, which whoever runs this under nohup(1) has ignored: no shell can trap it then
			pause *= 2                 // for a shell that gets no processor for longer than that
			again.Reset(pause)
		case line := <-got:
			if line != "signalled" {
				t.Errorf("child printed %q, want signalled", line)
			}
			answered = true
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAChildThatIgnoresSIGTERMIsKilledAfterTheGrace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Exe: "/bin/sh", Grace: time.Millisecond, Stdout: w, Log: slog.New(slog.DiscardHandler),
			Children: []Child{{Name: "stubborn", Args: []string{"-c", `trap '' TERM; echo ready; while :; do :; done`}}},
		})
	}()
	next(t, bufio.NewScanner(r))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestChildrenStopInReverseOrder(t *testing.T) {
	script := func(name string) string {
		return `trap 'echo ` + name + ` stops; exit 0' TERM; echo ` + name + `; while :; do sleep 0.01; done`
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		_ = Run(ctx, Config{
			Exe: "/bin/sh", Grace: time.Minute, Stdout: w, Log: slog.New(slog.DiscardHandler),
			Children: []Child{{Name: "a", Args: []string{"-c", script("a")}}, {Name: "b", Args: []string{"-c", script("b")}}},
		})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	next(t, lines)
	next(t, lines)
	cancel()
	if first, second := next(t, lines), next(t, lines); first != "b stops" || second != "a stops" {
		t.Errorf("stopped in order %q, %q; want b, then a", first, second)
	}
}

func TestAChildIsEndedAsItAsks(t *testing.T) {
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Exe: "/bin/sh", Grace: time.Minute, Stdout: w, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler),
			Children: []Child{{Name: "stubborn", Args: []string{"-c", `trap 'echo terminated' TERM; echo ready; while :; do read x; sleep 1; done`}, Quit: syscall.SIGKILL}},
		})
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	next(t, lines)
	cancel()
	if lines.Scan() {
		t.Errorf("it was asked another way: %q", lines.Text())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
