package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/leader"
)

// TestAnErrorOfTheServerIsOneOfADatastore, whatever was asked: who asks tries again what passes, says which right is missing, and shows the server's reason.
func TestAnErrorOfTheServerIsOneOfADatastore(t *testing.T) {
	const reason = "what the server says"
	calls := map[string]func(context.Context, *Client) error{
		"configmap": func(ctx context.Context, c *Client) error { _, _, err := c.ConfigMap(ctx, "ns", "m"); return err },
		"service":   func(ctx context.Context, c *Client) error { _, _, err := c.Service(ctx, "ns", "s"); return err },
		"ingress": func(ctx context.Context, c *Client) error {
			return c.SetIngress(ctx, Service{Namespace: "ns", Name: "s"}, nil)
		},
		"has": func(ctx context.Context, c *Client) error { _, _, err := c.Pod(ctx, "ns", "p"); return err },
		"node": func(ctx context.Context, c *Client) error {
			_, err := c.NodeNetwork(ctx, "h1", true, "r", "m")
			return err
		},
		"pod": func(ctx context.Context, c *Client) error {
			return Pods{Client: c, Node: "h1"}.Attached(ctx, "ns", "p")
		},
		"lease": func(ctx context.Context, c *Client) error { _, _, err := c.Lease("ns", "l").Get(ctx); return err },
		"renewal": func(ctx context.Context, c *Client) error {
			_, err := c.Lease("ns", "l").Put(ctx, leader.Record{}, "5")
			return err
		},
	}
	for _, tt := range []struct {
		code   int
		reason string
		want   error
		none   string // calls that take it for an answer
	}{
		{http.StatusForbidden, "Forbidden", datastore.ErrUnauthorized, "configmap"},
		{http.StatusUnauthorized, "Unauthorized", datastore.ErrUnauthorized, "configmap"},
		{http.StatusInternalServerError, "InternalError", datastore.ErrUnavailable, ""},
		{http.StatusServiceUnavailable, "ServiceUnavailable", datastore.ErrUnavailable, ""},
		{http.StatusGatewayTimeout, "Timeout", datastore.ErrUnavailable, ""},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, tt.code, tt.reason, reason)
		}))
		defer srv.Close()
		c, err := New(datastore.Config{Type: "kubernetes", Server: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range calls {
			err := call(t.Context(), c)
			if name == tt.none && err == nil {
				continue
			}
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), reason) {
				t.Errorf("%s, %d: %v; want %v, and %q", name, tt.code, err, tt.want, reason)
			}
		}
	}
}

// TestAServerThatIsAwayIsADatastoreThatIsAway: there is no answer at all.
func TestAServerThatIsAwayIsADatastoreThatIsAway(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	c, err := New(datastore.Config{Type: "kubernetes", Server: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = c.ConfigMap(t.Context(), "ns", "m"); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("%v, want %v", err, datastore.ErrUnavailable)
	}
}
