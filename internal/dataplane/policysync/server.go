// Package policysync serves to the proxies of workloads, which look into requests, the share of policy of each, as upstream's agent does
// (docs/policy-sync.md, decision 094).
//
// In: policy that is in force, labels of namespaces and service accounts, and below a directory a file for each workload that is to have a socket. Out: a
// socket for each, which streams messages of api/felixpb: all that the workload's endpoint is subject to, InSync, and then what changes; and the
// workloads whose proxies have it. A proxy that does not read holds up itself alone.
package policysync

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/intent"
)

// Config is what a Server needs.
type Config struct {
	// Proxied is called from Run's goroutine with the workloads whose proxies have their share, all of them each time, and may wait; nil: not called.
	Proxied  func(ctx context.Context, workloads map[intent.EndpointID]bool) error
	Note     string        // a file in which these are kept for the next agent; empty: none
	Hold     time.Duration // how long a workload counts as one of them after its last proxy went, or the agent has started; zero: 30 s
	Poll     time.Duration // how often the directory is looked at; zero: 500 ms
	Patience time.Duration // how long a proxy may take to read a message until it is disconnected; zero: 30 s
	Log      *slog.Logger  // nil: nothing is logged
}

// Server serves workloads' shares. Make it with New.
type Server struct {
	cfg   Config
	hub   *hub
	woken chan struct{} // has one if something has happened

	mu     sync.Mutex
	prefix string
	held   map[intent.EndpointID]time.Time // without a proxy now: until when they count as having one
	sent   map[intent.EndpointID]bool      // what Proxied was called with
}

// New returns a Server that serves nobody yet. What a former one noted counts for a while.
func New(cfg Config) *Server {
	for at, value := range map[*time.Duration]time.Duration{&cfg.Hold: 30 * time.Second, &cfg.Poll: 500 * time.Millisecond, &cfg.Patience: 30 * time.Second} {
		if *at == 0 {
			*at = value
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, woken: make(chan struct{}, 1), held: map[intent.EndpointID]time.Time{}, sent: map[intent.EndpointID]bool{}}
	s.hub = newHub(s.wake)
	ids, err := Noted(cfg.Note)
	if err != nil {
		cfg.Log.Warn("which workloads had proxies is not known", "file", cfg.Note, "err", err)
	}
	for id := range ids {
		s.held[id], s.sent[id] = time.Now().Add(cfg.Hold), true
	}
	return s
}

// Held are the workloads that count as proxied before Run has called anybody.
func (s *Server) Held() map[intent.EndpointID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.sent)
}

func (s *Server) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Configure says below which directory workloads' sockets are; empty: there are none, and no policy is kept in memory. All is called, at once, where there were
// none before, and returns all that was decided until now: what of it is not in force yet comes again when it is. It may be called from any goroutine.
func (s *Server) Configure(prefix string, all func() intent.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch was := s.prefix; {
	case was == prefix:
		return
	case was == "":
		whole := all()
		whole.InSync = false // who knows that is InForce
		s.hub.note(func(m *model) { m.merge(whole) })
	case prefix == "":
		s.hub.note((*model).forget)
	}
	s.prefix = prefix
	s.wake()
}

// InForce implements [dataplane.Follower]. It only takes note.
func (s *Server) InForce(changed intent.Batch, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix == "" {
		changed = intent.Batch{InSync: changed.InSync}
	}
	s.hub.note(func(m *model) { m.merge(changed) })
}

// Labels are those of a namespace or a service account.
type Labels struct {
	Namespace, Account string // Account is empty of a namespace
	Labels             map[string]string
	Gone               bool
}

// Know takes over labels, and only takes note. It may be called from any goroutine; the map must not be changed.
func (s *Server) Know(l Labels) { s.hub.note(func(m *model) { m.know(l) }) }

// Run serves until ctx ends. Sockets that it made are then gone.
func (s *Server) Run(ctx context.Context) error {
	sockets := newSockets(s)
	defer sockets.close()
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.woken:
		case <-tick.C:
		}
		s.hub.work()
		s.mu.Lock()
		prefix := s.prefix
		s.mu.Unlock()
		sockets.follow(prefix)
		if err := s.publish(ctx); err != nil {
			return err
		}
	}
}

// publish has Proxied called if other workloads have proxies than it was called with.
func (s *Server) publish(ctx context.Context) error {
	now, is := time.Now(), s.hub.proxied()
	s.mu.Lock()
	for id := range s.sent {
		if _, waits := s.held[id]; !is[id] && !waits {
			s.held[id] = now.Add(s.cfg.Hold)
		}
	}
	for id, until := range s.held {
		if is[id] || !now.Before(until) {
			delete(s.held, id)
		} else {
			is[id] = true
		}
	}
	same := maps.Equal(is, s.sent)
	s.sent = is
	s.mu.Unlock()
	if same {
		return nil
	}
	s.cfg.Log.Info("workloads have proxies that look into requests", "workloads", len(is))
	s.keep(is)
	if s.cfg.Proxied == nil {
		return nil
	}
	return s.cfg.Proxied(ctx, maps.Clone(is))
}

// keep writes the note. If that fails, the next agent counts nobody as having a proxy until it has connected.
func (s *Server) keep(is map[intent.EndpointID]bool) {
	if s.cfg.Note == "" {
		return
	}
	ids := slices.AppendSeq([]intent.EndpointID{}, maps.Keys(is))
	slices.SortFunc(ids, func(a, b intent.EndpointID) int { return intent.CompareKeys(a, b) })
	text, err := json.Marshal(ids)
	if err == nil {
		err = os.WriteFile(s.cfg.Note+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.cfg.Note+".new", s.cfg.Note)
	}
	if err != nil {
		s.cfg.Log.Warn("which workloads have proxies is not kept for the next agent", "file", s.cfg.Note, "err", err)
	}
}

// Noted are the workloads that an agent's note names; none without a note.
func Noted(file string) (map[intent.EndpointID]bool, error) {
	out := map[intent.EndpointID]bool{}
	if file == "" {
		return out, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	var ids []intent.EndpointID
	if err == nil {
		err = json.Unmarshal(text, &ids)
	}
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		out[id] = true
	}
	return out, nil
}
