// Package health serves an agent's liveness and readiness.
//
// In: parts with a liveness probe, and readiness conditions.
// Out: HTTP handlers. A part is alive if it answers: a probe goes through the very
// loop that does the work, so that one that hangs is found, and one that is
// merely busy is not as long as it comes back within its patience. Nothing is
// asked unless somebody asks us.
package health

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// wait bounds how long a request waits for answers: probes are impatient.
const wait = 500 * time.Millisecond

// Checker knows the parts. Any goroutine may use it.
type Checker struct {
	ready func() []string

	mu    sync.Mutex
	parts []*part
}

type part struct {
	name     string
	patience time.Duration
	override time.Duration // by settings; zero: none
	ping     func(context.Context) error

	asked time.Time // when the pending probe began; zero: none
	done  chan struct{}
	err   error // of the last answer
}

// New returns a Checker. Ready says why the agent is not ready; none: it is.
func New(ready func() []string) *Checker { return &Checker{ready: ready} }

// Part adds a part; call it before the handlers are served. Ping returns when the part has given a
// sign of life. Patience is how long it may be busy.
func (c *Checker) Part(name string, patience time.Duration, ping func(context.Context) error) {
	c.parts = append(c.parts, &part{name: name, patience: patience, ping: ping})
}

// Patience changes how long a part may be busy; zero: as it was given with the part.
func (c *Checker) Patience(name string, patience time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		if p.name == name {
			p.override = patience
		}
	}
}

// Dead returns the parts that do not answer, and why.
func (c *Checker) Dead(ctx context.Context) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, p := range c.parts {
		p.ask()
	}
	var out []string
	for _, p := range c.parts {
		select {
		case <-p.done:
			p.asked = time.Time{}
			if p.err != nil {
				out = append(out, fmt.Sprintf("%s: %v", p.name, p.err))
			}
		case <-ctx.Done():
			if since := time.Since(p.asked); since > cmp.Or(p.override, p.patience) {
				out = append(out, fmt.Sprintf("%s: no sign of life for %s", p.name, since.Round(time.Second)))
			}
		}
	}
	return out
}

// ask sends a probe on its way, unless one is.
func (p *part) ask() {
	if !p.asked.IsZero() {
		return
	}
	p.asked, p.done, p.err = time.Now(), make(chan struct{}), nil
	go func() {
		// Not the request's context: an answer may come long after it.
		err := p.ping(context.Background())
		p.err = err
		close(p.done)
	}()
}

// Handler serves /liveness and /readiness: 200, or 503 with one reason a line.
func (c *Checker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /liveness", func(w http.ResponseWriter, r *http.Request) { answer(w, "live", c.Dead(r.Context())) })
	mux.HandleFunc("GET /readiness", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "ready", append(c.Dead(r.Context()), c.ready()...))
	})
	return mux
}

func answer(w http.ResponseWriter, what string, reasons []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(reasons) == 0 {
		_, _ = io.WriteString(w, what+"\n")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, r := range reasons {
		_, _ = io.WriteString(w, r+"\n")
	}
}
