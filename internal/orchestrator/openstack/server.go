package openstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/mirror"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/serve"
)

// Config configures the plugin.
type Config struct {
	Store  datastore.Store
	Region string // of Neutron's servers, as openstackRegion of FelixConfiguration; empty: there is but one
	Socket string // where the mechanism driver asks
	Group  string // that may; empty: root alone
	Log    *slog.Logger
}

// DefaultSocket is where the mechanism driver asks.
const DefaultSocket = "/run/twill-openstack/plugin.sock"

const (
	writeTimeout = 30 * time.Second // for one object: Neutron's user waits
	allTimeout   = 10 * time.Minute // for all
	pollTimeout  = 30 * time.Second // without news
	mostOfOne    = 1 << 20          // bytes of an object
	mostOfAll    = 1 << 30          // bytes of all
	mostBegun    = 4                // resyncs that have begun
)

type server struct {
	writer
	feedback *feedback
	election *election

	mu    sync.Mutex
	begun map[string]begun // resyncs, by token
	order []string
	asked []chan Report   // by people, for a resync that has not begun yet
	wake  chan struct{}   // closed when one asks
	known map[string]bool // problems that the last resync had
}

// begun is a resync of which Neutron's database is read.
type begun struct {
	was        snapshot
	generation string // of the datastore; empty: nothing is said of it
	asked      []chan Report
}

// Run serves the mechanism driver until the context ends.
func Run(ctx context.Context, cfg Config) error {
	r := region(cfg.Region)
	if err := r.check(); err != nil {
		return err
	}
	s := &server{writer: writer{cfg.Store, r, cfg.Log}, feedback: newFeedback(r), election: newElection(cfg.Store, r, cfg.Log), begun: map[string]begun{}, wake: make(chan struct{})}
	listener, err := serve.Replace(ctx, serve.At{Network: "unix", Address: cfg.Socket, Group: cfg.Group})
	if err != nil {
		return err
	}
	following, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.feedback.run(following, cfg.Store, cfg.Log) })
	all.Go(func() { s.election.run(following) })
	all.Go(func() { s.warnOfRegion(following) })
	defer all.Wait()
	defer end()
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return following }}
	defer h.Close()
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(listener) }()
	cfg.Log.Info("answers Neutron", "socket", cfg.Socket, "namespace", r.namespace())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// answer is what a call returns, beside its code.
type answer struct {
	Problems []string `json:"problems,omitempty"` // what of the object has no effect
	Error    string   `json:"error,omitempty"`
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/ports/{id}", put(s, func(p *Port) *string { return &p.ID }, s.takePort))
	mux.HandleFunc("DELETE /v1/ports/{id}", s.remove(s.deletePort))
	mux.HandleFunc("PUT /v1/security-groups/{id}", put(s, func(g *SecurityGroup) *string { return &g.ID }, s.putGroup))
	mux.HandleFunc("DELETE /v1/security-groups/{id}", s.remove(s.deleteGroup))
	mux.HandleFunc("PUT /v1/subnets/{id}", put(s, func(n *Subnet) *string { return &n.ID }, func(ctx context.Context, n *Subnet) ([]string, error) { return nil, s.putSubnet(ctx, n) }))
	mux.HandleFunc("DELETE /v1/subnets/{id}", s.remove(func(ctx context.Context, id string) error { return s.deleteKey(ctx, s.region.subnets()+id) }))
	mux.HandleFunc("POST /v1/resync", s.begin)
	mux.HandleFunc("GET /v1/resync", s.waitForAsked)
	mux.HandleFunc("POST /v1/resync/asked", s.ask)
	mux.HandleFunc("PUT /v1/resync/{token}", s.finish)
	mux.HandleFunc("GET /v1/feedback", s.feed)
	mux.HandleFunc("GET /v1/lead", s.election.ask)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusNotFound, answer{Error: r.Method + " " + r.URL.Path + ": there is no such call; the mechanism driver and this plugin are of different versions"})
	})
	return mux
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // who asked is gone
}

// done answers a call: an object that cannot be is the caller's fault, a datastore that does not take it is not.
func (s *server) done(w http.ResponseWriter, r *http.Request, problems []string, err error) {
	for _, p := range problems {
		s.log.Warn("not all of it has an effect", "what", r.URL.Path, "problem", p)
	}
	switch {
	case err == nil:
		reply(w, http.StatusOK, answer{Problems: problems})
	case unavailable(err):
		s.log.Warn("the datastore did not take it", "what", r.URL.Path, "err", err)
		reply(w, http.StatusServiceUnavailable, answer{Error: err.Error()})
	default:
		s.log.Warn("refused", "what", r.URL.Path, "err", err)
		reply(w, http.StatusUnprocessableEntity, answer{Error: err.Error()})
	}
}

// unavailable reports whether an error is one of the datastore, which may end by itself.
func unavailable(err error) bool {
	for _, of := range []error{mirror.ErrSuperseded, datastore.ErrUnavailable, datastore.ErrFull, datastore.ErrUnauthorized, datastore.ErrConflict, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// takePort writes a port. The caller sees what its agent reports once more: it may be bound to another host than before.
func (s *server) takePort(ctx context.Context, p *Port) (problems []string, err error) {
	problems, err = s.putPort(ctx, p)
	s.feedback.again(s.region.namespace(), p)
	return problems, err
}

// put is the call that writes an object.
func put[T any](s *server, id func(*T) *string, write func(context.Context, *T) ([]string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
		defer cancel()
		var object T
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostOfOne)).Decode(&object); err != nil {
			reply(w, http.StatusBadRequest, answer{Error: "this is no object of Neutron's: " + err.Error()})
			return
		}
		if have, want := *id(&object), r.PathValue("id"); have != want {
			reply(w, http.StatusBadRequest, answer{Error: fmt.Sprintf("its id is %q, and the call is about %q", have, want)})
			return
		}
		problems, err := write(ctx, &object)
		s.done(w, r, problems, err)
	}
}

// remove is the call that deletes an object.
func (s *server) remove(do func(ctx context.Context, id string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
		defer cancel()
		s.done(w, r, nil, do(ctx, r.PathValue("id")))
	}
}

// complete says that Neutron's part is all there, of a datastore that was lost (its generation is not empty) and in general: without a
// ClusterInformation agents that knew one leave everything as it is.
func (s *server) complete(ctx context.Context, generation string) error {
	if generation != "" {
		if err := mirror.Complete(ctx, s.store, s.region.namespace(), generation); err != nil {
			return err
		}
	}
	err := resources.EnsureReady(ctx, s.store)
	if errors.Is(err, datastore.ErrUnauthorized) {
		s.log.Warn("agents leave everything as it is until somebody runs: twill datastore unlock; see the roles in docs/etcd.md", "err", err)
		return nil
	}
	return err
}

// begin begins a resync: what is stored is read, and then Neutron's database is. A datastore that was lost is marked as one that is rebuilt.
func (s *server) begin(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
	defer cancel()
	mark, err := mirror.Begin(ctx, s.store, s.region.namespace(), false)
	if errors.Is(err, datastore.ErrUnauthorized) {
		s.log.Warn("agents whose datastore is a mirror (TWILL_DATASTORE_MASTERS) wait for ever: it cannot be marked as complete; see the roles in docs/etcd.md", "err", err)
		err = nil
	}
	var was snapshot
	if err == nil {
		was, err = s.snapshot(ctx)
	}
	if err != nil {
		s.done(w, r, nil, err)
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.begun[token] = begun{was, mark.Generation, s.asked}
	s.asked = nil
	if s.order = append(s.order, token); len(s.order) > mostBegun {
		s.askAgain(s.begun[s.order[0]].asked)
		delete(s.begun, s.order[0])
		s.order = s.order[1:]
	}
	s.mu.Unlock()
	reply(w, http.StatusOK, map[string]string{"token": token})
}

// finish is the second half of a resync.
func (s *server) finish(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), allTimeout)
	defer cancel()
	token := r.PathValue("token")
	s.mu.Lock()
	of, ok := s.begun[token]
	delete(s.begun, token)
	s.mu.Unlock()
	if !ok {
		reply(w, http.StatusConflict, answer{Error: "this resync is not known any more: begin again"})
		return
	}
	var report *Report
	defer func() { s.answer(token, of.asked, report) }()
	var all State
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostOfAll)).Decode(&all); err != nil {
		reply(w, http.StatusBadRequest, answer{Error: "this is not what Neutron has: " + err.Error()})
		return
	}
	done, err := s.resync(ctx, of.was, &all)
	if err == nil {
		err = s.complete(ctx, of.generation)
	}
	for _, p := range s.news(done.Problems) {
		s.log.Warn("not all of it has an effect", "problem", p)
	}
	if err != nil {
		s.done(w, r, nil, err)
		return
	}
	report = &done
	s.log.Info("as Neutron's database says", "ports", done.Ports, "securityGroups", done.SecurityGroups, "subnets", done.Subnets, "written", done.Written, "deleted", done.Deleted)
	reply(w, http.StatusOK, done)
}

// news are the problems that the resync before had not: each is logged once, as long as it stays.
func (s *server) news(problems []string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]bool{}
	for _, p := range problems {
		if !s.known[p] && !now[p] {
			out = append(out, p)
		}
		now[p] = true
	}
	s.known = now
	return out
}

// feed answers once something has changed since epoch and at: for a server that does not lead, with term 0, the reports about ports that it has handed
// over itself. It answers also when its term has changed.
func (s *server) feed(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pollTimeout)
	defer cancel()
	ctx, end := s.election.during(ctx, r)
	defer end()
	q := r.URL.Query()
	at, _ := strconv.ParseUint(q.Get("at"), 10, 64) // none: from the beginning
	reply(w, http.StatusOK, s.feedback.since(ctx, q.Get("epoch"), at, q.Get("term") == "0"))
}
