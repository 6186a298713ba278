package kubetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
)

// Wrong is what a [Proxy] does with a request; pass passes it on, and the server's answer back. It reports whether it did any harm.
type Wrong func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool

// Proxy passes requests on to an API server, and answers them wrongly where it is told to. It speaks TLS with the server's own certificate, and HTTP/2.
type Proxy struct {
	Address string // HOST:PORT, for Server.KubeconfigAt

	server *http.Server
	pass   http.Handler

	mu      sync.Mutex
	wrong   Wrong
	harmed  int
	watches map[*http.Request]context.CancelFunc // that run
}

// Proxy starts one, which ends with the test. Lists that ask for pieces get pieces of at most piece objects; 0: as they ask.
func (s *Server) Proxy(t testing.TB, piece string) *Proxy {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	silent := log.New(io.Discard, "", 0) // what goes wrong is wanted
	p := &Proxy{watches: map[*http.Request]context.CancelFunc{}, pass: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if q := r.Out.URL.Query(); piece != "" && q.Has("limit") && q.Get("limit") > "1" {
				q.Set("limit", piece)
				r.Out.URL.RawQuery = q.Encode()
			}
		},
		Transport: transport, FlushInterval: -1, ErrorLog: silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as the server's own end looks
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.Address = l.Addr().String()
	p.server = &http.Server{Handler: p, ErrorLog: silent} //nolint:gosec // it serves tests alone
	go func() { _ = p.server.ServeTLS(l, s.in("apiserver", "server.crt"), s.in("apiserver", "server.key")) }()
	t.Cleanup(func() {
		_ = p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// Set has requests that come from now on suffer something; nil: nothing.
func (p *Proxy) Set(w Wrong) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = w
}

// Harmed is how many requests were answered wrongly so far.
func (p *Proxy) Harmed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.harmed
}

// EndWatches breaks off those running watches that are chosen, in the middle of their answers, and returns how many those were.
func (p *Proxy) EndWatches(chosen func() bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.watches {
		if chosen() {
			end()
			n++
		}
	}
	return n
}

// ServeHTTP is part of http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := context.WithCancel(r.Context())
	defer end()
	r = r.WithContext(ctx)
	p.mu.Lock()
	wrong := p.wrong
	if IsWatch(r) {
		p.watches[r] = end
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, r)
	}()
	if wrong == nil {
		p.pass.ServeHTTP(w, r)
		return
	}
	harmed := true // also if it panics, which breaks the answer off
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if harmed {
			p.harmed++
		}
	}()
	harmed = wrong(w, r, p.pass.ServeHTTP)
}

// IsWatch reports whether a request is for a watch.
func IsWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// IsList reports whether a request is for a list, or for a piece of one.
func IsList(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Has("limit") }
