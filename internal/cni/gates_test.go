package cni

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAddWaitsForReadinessGates(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var later, never atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/later":
			if later.Add(1) < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case "/elsewhere":
			http.Redirect(w, r, "/never", http.StatusFound)
		case "/never":
			w.WriteHeader(http.StatusServiceUnavailable)
			if never.Add(1) == 2 { // the time is over
				cancel()
			}
		}
	}))
	defer s.Close()
	await := func(gates ...string) error { return (&conf{ReadinessGates: gates}).awaitGates(ctx) }
	if err := await(s.URL, s.URL+"/later", s.URL+"/elsewhere"); err != nil || later.Load() != 3 {
		t.Errorf("ready at last: %v, after %d questions", err, later.Load())
	}
	for _, text := range []string{"127.0.0.1:9099", "file:///etc/passwd", "http://", "http://[", ""} {
		if err := await(text); err == nil || !strings.Contains(err.Error(), "want a URL") {
			t.Errorf("%q: %v", text, err)
		}
	}
	err := await(s.URL, strings.Replace(s.URL, "//", "//user:secret@", 1)+"/never", s.URL+"/later")
	if err == nil || !strings.Contains(err.Error(), "/never of readiness_gates is not ready: it answers 503") || strings.Contains(err.Error(), "secret") || later.Load() != 3 {
		t.Errorf("never ready: %v", err)
	}
}
