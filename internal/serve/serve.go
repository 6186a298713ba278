// Package serve keeps HTTP listeners as settings say, while they change.
//
// In: a handler, and where it is to listen, again and again. Out: a listener
// there. The new one is opened before the old one is closed; one that cannot be
// opened is tried again, and the old one stays until then. Nothing of it may
// stop an agent.
package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// At says where to listen. The zero value: nowhere.
type At struct {
	Network string // tcp or unix
	Address string
	// Files of a TLS server; without a certificate it speaks plain HTTP. With a
	// ClientCA, clients need a certificate that it signed.
	CertFile, KeyFile, ClientCAFile string
}

const (
	retry       = 5 * time.Second
	readTimeout = 10 * time.Second
)

// Server is one listener. Any goroutine may use it.
type Server struct {
	name    string
	handler http.Handler
	log     *slog.Logger
	wake    chan struct{}

	mu   sync.Mutex
	want At
}

// New returns a server that listens nowhere until it is Moved and Run.
func New(name string, handler http.Handler, log *slog.Logger) *Server {
	return &Server{name: name, handler: handler, log: log, wake: make(chan struct{}, 1)}
}

// Move says where to listen from now on.
func (s *Server) Move(to At) {
	s.mu.Lock()
	changed := s.want != to
	s.want = to
	s.mu.Unlock()
	if changed {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Run listens until the context ends.
func (s *Server) Run(ctx context.Context) error {
	var at At
	stop := func() {}
	defer func() { stop() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-timer.C:
		}
		s.mu.Lock()
		want := s.want
		s.mu.Unlock()
		if want == at {
			continue
		}
		if _, err := want.tls(); err == nil && want.Network == at.Network && want.Address == at.Address {
			stop() // only the certificate changes, and the address is free once
			at, stop = At{}, func() {}
		}
		next, err := s.open(want)
		if err != nil {
			if said != err.Error() {
				s.log.Error("cannot listen; trying again", "for", s.name, "at", want.Address, "err", err)
				said = err.Error()
			}
			timer.Reset(retry)
			continue
		}
		stop()
		at, stop, said = want, next, ""
	}
}

// open starts to serve, and returns how to stop.
func (s *Server) open(at At) (stop func(), err error) {
	if at == (At{}) {
		return func() {}, nil
	}
	conf, err := at.tls()
	if err != nil {
		return nil, err
	}
	l, err := listen(at)
	if err != nil {
		return nil, err
	}
	if conf != nil {
		l = tls.NewListener(l, conf)
	}
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readTimeout, MaxHeaderBytes: 1 << 16,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("stopped listening", "for", s.name, "err", err)
		}
	}()
	s.log.Debug("listens", "for", s.name, "at", l.Addr().String())
	return func() { _ = server.Close() }, nil
}

func listen(at At) (net.Listener, error) {
	if at.Network != "unix" {
		return net.Listen(at.Network, at.Address)
	}
	if err := os.MkdirAll(filepath.Dir(at.Address), 0o755); err != nil {
		return nil, err
	}
	// What a killed process left behind would be in the way. Beside it and
	// renamed: the name always leads to a socket with the right mode.
	fresh := at.Address + ".new"
	_ = os.Remove(fresh)
	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, at.Address)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return rootOnly{l}, nil
}

func (at At) tls() (*tls.Config, error) {
	if at.CertFile == "" {
		if at.ClientCAFile != "" {
			return nil, errors.New("a client CA without a certificate of the server: set both, or none")
		}
		return nil, nil
	}
	// Read anew at each handshake, so that a renewed certificate needs nothing else.
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(at.CertFile, at.KeyFile)
		return &c, err
	}}
	if _, err := conf.GetCertificate(nil); err != nil {
		return nil, err
	}
	if at.ClientCAFile == "" {
		return conf, nil
	}
	pem, err := os.ReadFile(at.ClientCAFile)
	if err != nil {
		return nil, err
	}
	conf.ClientCAs, conf.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !conf.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", at.ClientCAFile)
	}
	return conf, nil
}
