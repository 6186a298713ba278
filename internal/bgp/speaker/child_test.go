package speaker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// A speaker belongs to one process and one namespace: tests run this binary again, in theirs.
const asChild = "TWILL_TEST_SPEAKER"

// asReturning: a speaker was there before.
const asReturning = "TWILL_TEST_RETURNS"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		if err := child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// request is a line to a child: a plan, or a question.
type request struct {
	Plan    *plan.Plan   `json:",omitempty"`
	Alive   []bfd.Status `json:",omitempty"`
	Explain netip.Prefix `json:",omitzero"`
	// Secret is the password bgp/set from now on.
	Secret string `json:",omitempty"`
	// Profile is a file to write the profile of the processor into, from now until the next request; .heap: the memory's.
	Profile string `json:",omitempty"`
	// Processors is how many threads of the child run at a time from now on.
	Processors int `json:",omitempty"`
}

// answer is a line from a child, to each request.
type answer struct {
	Report  speaker.Report
	Routes  []speaker.Route
	Explain speaker.Explanation
}

// passwords are the secrets of all children.
var passwords = map[plan.Secret]string{{Name: "bgp", Key: "right"}: "sesame", {Name: "bgp", Key: "wrong"}: "open", {Name: "bgp", Key: "long"}: strings.Repeat("x", 100), {Name: "bgp", Key: "stale"}: "sesame"}

func child(in io.Reader, out io.Writer) error {
	h, err := rtnl.Open()
	if err != nil {
		return err
	}
	alive := make(chan []bfd.Status)
	var set atomic.Value
	s := speaker.New(speaker.Config{
		Rtnl: h, BFD: alive, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Restarting: os.Getenv(asReturning) != "",
		Secret: func(k plan.Secret) (string, error) {
			if k.Key == "stale" {
				return passwords[k], errors.New("its file is gone")
			}
			if p, ok := passwords[k]; ok {
				return p, nil
			}
			if p, ok := set.Load().(string); ok && k.Key == "set" {
				return p, nil
			}
			return "", errors.New("no such secret")
		},
	})
	plans, failed := make(chan plan.Plan), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { failed <- s.Run(ctx, plans) }()
	lines, encoder := bufio.NewScanner(in), json.NewEncoder(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		pprof.StopCPUProfile()
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		if q.Profile != "" {
			if err := errors.Join(profile(q.Profile), encoder.Encode(answer{})); err != nil {
				return err
			}
			continue
		}
		if q.Secret != "" {
			set.Store(q.Secret)
		}
		if q.Processors > 0 {
			runtime.GOMAXPROCS(q.Processors)
		}
		if q.Plan != nil {
			select {
			case plans <- *q.Plan:
			case err := <-failed:
				return err
			}
		}
		if q.Alive != nil {
			alive <- q.Alive
		}
		var a answer
		if a.Report, err = s.Report(ctx); err == nil {
			a.Routes, err = s.Routes(ctx)
		}
		if err == nil && q.Explain.IsValid() {
			a.Explain, err = s.Explain(ctx, q.Explain)
		}
		if err = errors.Join(err, encoder.Encode(a)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func profile(file string) error {
	f, err := os.Create(file)
	switch {
	case err != nil:
		return err
	case strings.HasSuffix(file, ".heap"):
		runtime.GC()
		return pprof.WriteHeapProfile(f)
	}
	return pprof.StartCPUProfile(f)
}

// host is a namespace in which a speaker runs.
type host struct {
	*netnstest.NS
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// start runs a speaker with a plan.
func (h *host) start(p plan.Plan) {
	h.t.Helper()
	h.launch()
	h.plan(p)
}

// launch runs a speaker that has no plan yet.
func (h *host) launch() {
	h.t.Helper()
	h.cmd = exec.Command(os.Args[0])
	h.cmd.Env = append(os.Environ(), asChild+"=1")
	log, err := os.CreateTemp(h.t.TempDir(), "log")
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	h.cmd.Stderr = log
	h.t.Cleanup(func() {
		if text, _ := os.ReadFile(log.Name()); h.t.Failed() {
			h.t.Logf("speaker:\n%s", text)
		}
	})
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		h.t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	h.out = bufio.NewScanner(out)
	h.out.Buffer(nil, 1<<26)
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.Handle().Start(h.cmd); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.kill)
}

// kill ends the speaker without a word.
func (h *host) kill() {
	if h.cmd != nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		h.cmd = nil
	}
}

func (h *host) plan(p plan.Plan) answer { return h.ask(request{Plan: &p}) }

// alive tells the speaker what BFD says.
func (h *host) alive(statuses ...bfd.Status) answer { return h.ask(request{Alive: statuses}) }

func (h *host) ask(q request) answer {
	h.t.Helper()
	line, err := json.Marshal(q)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.in.Write(append(line, '\n')); err != nil {
		h.t.Fatal(err)
	}
	var a answer
	if !h.out.Scan() {
		h.t.Fatalf("the speaker ended: %v", h.out.Err())
	}
	if err := json.Unmarshal(h.out.Bytes(), &a); err != nil {
		h.t.Fatal(err)
	}
	return a
}

// patience is how long what should come may take, on a machine that is busy with other things.
const patience = 2 * time.Minute

// await looks until a condition holds.
func await(t testing.TB, within time.Duration, look func() error) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waited %s: %v", within, err)
		case <-tick.C:
		}
	}
}

// up waits until sessions are up.
func (h *host) up(peers ...string) {
	h.t.Helper()
	await(h.t, patience, func() error {
		for _, peer := range peers {
			if s := h.session(peer); s.State != speaker.Established {
				return fmt.Errorf("session with %s: %+v", peer, s)
			}
		}
		return nil
	})
}

// active waits until sessions take connections. Until then they are Idle and refuse them (RFC 4271, 8.2.2), so that a peer has to call again;
// peers of tests call once.
func (h *host) active(peers ...string) {
	h.t.Helper()
	await(h.t, patience, func() error {
		for _, peer := range peers {
			if s := h.session(peer); s.State != "Active" {
				return fmt.Errorf("session with %s: %+v", peer, s)
			}
		}
		return nil
	})
}

func (h *host) session(peer string) speaker.Session {
	h.t.Helper()
	for _, s := range h.ask(request{}).Report.Sessions {
		if s.Peer.String() == peer {
			return s
		}
	}
	return speaker.Session{State: "none"}
}

// wantRoute waits for a learned route in the kernel, in the words of ip route.
func (h *host) wantRoute(words string) {
	h.t.Helper()
	await(h.t, patience, func() error { return h.routeIs(words, true) })
}

func (h *host) wantNoRoute(words string) {
	h.t.Helper()
	await(h.t, patience, func() error { return h.routeIs(words, false) })
}

// routeIs looks whether the kernel's table has a route whose line holds these words in their order.
func (h *host) routeIs(words string, want bool) error {
	family := "-4"
	if strings.Contains(words, ":") {
		family = "-6"
	}
	table := h.Run("ip", "-N", "-o", family, "route", "show")
	for line := range strings.Lines(table) {
		if holds(line, words) {
			if want {
				return nil
			}
			return fmt.Errorf("there is a route %q in:\n%s", words, table)
		}
	}
	if want {
		return fmt.Errorf("there is no route %q in:\n%s", words, table)
	}
	return nil
}

// holds reports whether a line begins with the first word and has the others in this order.
func holds(line, words string) bool {
	fields, wanted := strings.Fields(line), strings.Fields(words)
	if len(fields) == 0 || fields[0] != wanted[0] {
		return false
	}
	for _, f := range fields {
		if len(wanted) > 0 && f == wanted[0] {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0
}
