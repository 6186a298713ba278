package chaostest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/kubetest"
)

// dice is a source of random numbers for requests that come at the same time.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// often is true three times of four.
func (d *dice) often() bool { return d.below(4) > 0 }

// wrongAnswers are faults of what the API server answers.
func wrongAnswers() []fault {
	wrongly := func(kind string, wrong func(d *dice, over <-chan struct{}) kubetest.Wrong) fault {
		return fault{kind: kind, do: func(ctx context.Context, w *world, rng *rand.Rand) error { return w.answeredWrongly(ctx, rng, wrong) }}
	}
	return []fault{
		wrongly("api-too-many-requests", func(d *dice, _ <-chan struct{}) kubetest.Wrong { return d.tooMany }),
		wrongly("api-errors", func(d *dice, _ <-chan struct{}) kubetest.Wrong { return d.fails }),
		wrongly("api-expired", func(d *dice, _ <-chan struct{}) kubetest.Wrong { return d.expired }),
		wrongly("api-answers-truncated", func(d *dice, _ <-chan struct{}) kubetest.Wrong { return d.truncated }),
		wrongly("api-answers-garbled", func(d *dice, _ <-chan struct{}) kubetest.Wrong { return d.garbled }),
		wrongly("api-answers-held", func(d *dice, over <-chan struct{}) kubetest.Wrong {
			return func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
				held := d.often()
				if held {
					select {
					case <-over:
					case <-r.Context().Done():
					}
				}
				pass(w, r)
				return held
			}
		}),
	}
}

// answeredWrongly ends all watches, so that agents ask again, and has three of four of what they ask answered wrongly.
func (w *world) answeredWrongly(ctx context.Context, rng *rand.Rand, wrong func(*dice, <-chan struct{}) kubetest.Wrong) error {
	p := w.kube.wrong
	if err := w.through(ctx, p.Address); err != nil {
		return err
	}
	over := make(chan struct{})
	end := sync.OnceFunc(func() { p.Set(nil); close(over) })
	defer end()
	before := p.Harmed()
	p.Set(wrong(&dice{rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}, over))
	p.EndWatches(func() bool { return true })
	if rng.IntN(2) == 0 { // and a watch that began well may end
		defer p.EndWatches(func() bool { return true })
	}
	if err := w.hold(ctx, rng, 5*time.Second); err != nil {
		return err
	}
	end()
	err := w.harmed(ctx, before)
	w.logf("  %d requests were answered wrongly", p.Harmed()-before)
	return err
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"of a test","reason":%q,"code":%d}`, reason, code)
}

func (d *dice) tooMany(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if !d.often() {
		pass(w, r)
		return false
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusTooManyRequests, "TooManyRequests")
	return true
}

func (d *dice) fails(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if !d.often() {
		pass(w, r)
		return false
	}
	code := []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}[d.below(4)]
	if d.below(2) == 0 {
		refuse(w, code, "InternalError")
	} else {
		http.Error(w, "<html>of a proxy</html>", code)
	}
	return true
}

// expired says of positions of watches, and of lists that go on, that they are forgotten: at once, or as the first event.
func (d *dice) expired(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	old := kubetest.IsWatch(r) || r.URL.Query().Has("continue")
	switch {
	case !old || !d.often():
		pass(w, r)
		return false
	case kubetest.IsWatch(r) && r.Header.Get("Accept") == "application/json" && d.below(2) == 0:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}}`+"\n")
	default:
		refuse(w, http.StatusGone, "Expired")
	}
	return true
}

// truncated ends answers too soon: as if they were whole, or by breaking them off.
func (d *dice) truncated(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if r.Method != http.MethodGet || !d.often() {
		pass(w, r)
		return false
	}
	short := &cutWriter{ResponseWriter: w, left: d.below(1500)}
	asWhole := d.below(2) == 0
	defer func() {
		if e := recover(); e != nil && (!asWhole || !short.cut) {
			panic(e)
		}
	}()
	pass(short, r)
	return short.cut
}

// cutWriter breaks off after some bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
	cut  bool
}

func (c *cutWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutWriter) WriteHeader(code int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(code)
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	c.cut = true
	_, _ = c.ResponseWriter.Write(p[:c.left])
	panic(http.ErrAbortHandler)
}

// garbled answers with what is no answer.
func (d *dice) garbled(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if r.Method != http.MethodGet || !d.often() {
		pass(w, r)
		return false
	}
	noise := make([]byte, d.below(500))
	for i := range noise {
		noise[i] = byte(d.below(256))
	}
	body := [][]byte{
		nil, []byte("null"), []byte("{}"), []byte("[]"), []byte("<html>log in first</html>"), []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":503}`),
		noise, append([]byte("k8s\x00"), noise...), []byte(`{"type":"ADDED","object":{}}`), []byte(`{"metadata":{"resourceVersion":"x"}`),
	}[d.below(10)]
	w.Header().Set("Content-Type", strings.Split(r.Header.Get("Accept"), ",")[0])
	_, _ = w.Write(body)
	return true
}

// cache keeps answers to lists.
type cache struct {
	mu       sync.Mutex
	answers  map[string]answer // by what was asked
	asked    map[string]int    // by what was asked, over which connection
	replayed int
}

type answer struct {
	contentType string
	body        []byte
}

func newCache() *cache { return &cache{answers: map[string]answer{}, asked: map[string]int{}} }

// nth counts how often something was asked over one connection.
func (c *cache) nth(what string, r *http.Request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	what += " " + r.RemoteAddr
	c.asked[what]++
	return c.asked[what]
}

// begins reports whether a watch of policies is the first one over its connection: who wants it must list then.
func (c *cache) begins(what string, r *http.Request) bool {
	return kubetest.IsWatch(r) && strings.HasSuffix(r.URL.Path, "/globalnetworkpolicies") && c.nth(what, r) == 1
}

func (c *cache) key(r *http.Request) string { return r.URL.String() + " " + r.Header.Get("Accept") }

// record keeps lists, and has each agent make them.
func (c *cache) record(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if c.begins("recorded", r) {
		refuse(w, http.StatusGone, "Expired")
		return true
	}
	if !kubetest.IsList(r) {
		pass(w, r)
		return false
	}
	copied := &copyWriter{ResponseWriter: w}
	pass(copied, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[c.key(r)] = answer{w.Header().Get("Content-Type"), copied.body.Bytes()}
	return false
}

// replay has each agent list once more, which is answered as before two times.
func (c *cache) replay(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
	if c.begins("replayed", r) {
		refuse(w, http.StatusGone, "Expired")
		return true
	}
	c.mu.Lock()
	old, ok := c.answers[c.key(r)]
	c.mu.Unlock()
	if !ok || !kubetest.IsList(r) || c.nth(c.key(r), r) > 2 {
		pass(w, r)
		return false
	}
	c.mu.Lock()
	c.replayed++
	c.mu.Unlock()
	w.Header().Set("Content-Type", old.contentType)
	_, _ = w.Write(old.body)
	return true
}

// copyWriter keeps what it passes on.
type copyWriter struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (c *copyWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *copyWriter) Write(p []byte) (int, error) {
	c.body.Write(p)
	return c.ResponseWriter.Write(p)
}
