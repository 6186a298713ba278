package kubetest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
)

// Request is one of those of [Server.Many].
type Request struct {
	Method, Path string
	Body         any // as JSON, of the type application/json, or of a merge patch if the method is PATCH
}

// Many makes n requests with an administrator's rights, 32 at a time over connections that stay, in no particular order. It fails the test
// with the first that is refused, and returns when all are answered: a few thousand a second.
func (s *Server) Many(t testing.TB, n int, request func(i int) Request) {
	t.Helper()
	admin := s.Admin()
	kept := admin.http.Transport.(*http.Transport).Clone()
	kept.DisableKeepAlives, kept.ForceAttemptHTTP2 = false, true
	defer kept.CloseIdleConnections()
	admin.http = &http.Client{Transport: kept}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := range next {
				if err := admin.send(ctx, request(i)); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

func (c *Client) send(ctx context.Context, r Request) error {
	body, err := json.Marshal(r.Body)
	if err != nil {
		return err
	}
	kind := "application/json"
	if r.Method == http.MethodPatch {
		kind = "application/merge-patch+json"
	}
	return c.call(ctx, r.Method, r.Path, kind, body, nil)
}
