package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/twillnet/twill/internal/bgp/speaker"
)

// reporter is our own speaker, or the view of a BIRD.
type reporter interface {
	Report(ctx context.Context) (speaker.Report, error)
	Routes(ctx context.Context) ([]speaker.Route, error)
	Explain(ctx context.Context, dst netip.Prefix) (speaker.Explanation, error)
}

// handler serves the daemon's state.
func handler(s reporter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		report, err := s.Report(r.Context())
		writeJSON(w, report, err)
	})
	mux.HandleFunc("GET /routes", func(w http.ResponseWriter, r *http.Request) {
		routes, err := s.Routes(r.Context())
		writeJSON(w, routes, err)
	})
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		dst, err := netip.ParsePrefix(r.URL.Query().Get("dst"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := s.Explain(r.Context(), dst.Masked())
		writeJSON(w, e, err)
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader has gone
}

// Report fetches the state of the daemon at a socket.
func Report(ctx context.Context, socket string) (r speaker.Report, err error) {
	err = ask(ctx, socket, "/report", &r)
	return r, err
}

// Routes fetches all paths that it knows.
func Routes(ctx context.Context, socket string) (r []speaker.Route, err error) {
	err = ask(ctx, socket, "/routes", &r)
	return r, err
}

// Explain fetches its explanation of a destination.
func Explain(ctx context.Context, socket string, dst netip.Prefix) (e speaker.Explanation, err error) {
	err = ask(ctx, socket, "/explain?dst="+url.QueryEscape(dst.String()), &e)
	return e, err
}

func ask(ctx context.Context, socket, path string, into any) error {
	resp, err := get(ctx, socket, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the BGP daemon answers %s to %s", resp.Status, path)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("the BGP daemon's answer: %w", err)
	}
	return nil
}

// get sends a request to a Unix socket.
func get(ctx context.Context, socket, path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bgp"+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}
