package kubestore

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// mostReadWait bounds how long a read that the server could not answer (5xx) waits before it is sent again. A server that starts asks for
// 5 s, and has its resources long before. Of writes, and of who asks too much (429), the server knows best.
const mostReadWait = time.Second

// client is one whose reads wait no longer than mostReadWait.
type client struct{ rest.Interface }

// Get begins a request that changes nothing.
func (c client) Get() *rest.Request { return c.Interface.Get().BackOffWithContext(&readWaits{}) }

// readWaits are the waits between the attempts of one read.
type readWaits struct {
	rest.NoBackoff
	code int // of the last answer; 0: there was none
}

// UpdateBackoffWithContext is part of rest.BackoffManagerWithContext.
func (w *readWaits) UpdateBackoffWithContext(_ context.Context, _ *url.URL, _ error, code int) {
	w.code = code
}

// SleepWithContext is part of rest.BackoffManagerWithContext; wait is what the server asked for. Of agents that were refused
// together, each comes at another time.
func (w *readWaits) SleepWithContext(ctx context.Context, wait time.Duration) {
	if w.code != http.StatusTooManyRequests && wait > 0 {
		wait = min(wait, mostReadWait)
		wait = wait/2 + rand.N(wait/2)
	}
	w.NoBackoff.SleepWithContext(ctx, wait)
}
