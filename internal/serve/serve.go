// Package serve keeps HTTP listeners as settings say, while they change.
//
// In: a handler, and where it is to listen, again and again. Out: a listener
// there. The new one is opened before the old one is closed; one that cannot be
// opened is tried again, and the old one stays until then, unless it is what is
// in the way (Group). Nothing of it may stop an agent.
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
	"os/user"
	"path/filepath"
	"strconv"
	"time"
)

// At says where to listen. The zero value: nowhere.
type At struct {
	Network string // tcp or unix
	Address string
	Group   string // whose members may use a unix socket as root may, who then is not asked for again at each connection; empty: root alone may
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
	group   *Group

	// Guarded by the group's mutex.
	want    At
	at      At           // where it listens
	listens net.Addr     // the same, as the kernel says
	waits   *net.TCPAddr // it wants to listen there, and somebody else does; nil: it does not wait for that
	tried   At           // what it wanted then
}

// try is one to listen somewhere.
type try struct {
	to    At
	moves int // of the group, before
}

// New returns a server that is alone, and listens nowhere until it is Moved and Run.
func New(name string, handler http.Handler, log *slog.Logger) *Server {
	return new(Group).New(name, handler, log)
}

// Move says where to listen from now on.
func (s *Server) Move(to At) {
	s.group.mu.Lock()
	changed := s.want != to
	s.want = to
	s.group.mu.Unlock()
	if changed {
		s.poke()
	}
}

// poke has Run look at what is wanted.
func (s *Server) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next is where it is to listen, and whether it does not yet.
func (s *Server) next() (try, bool) {
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	return try{s.want, s.group.moves}, s.want != s.at
}

// Run listens until the context ends.
func (s *Server) Run(ctx context.Context) error {
	stop := func() {}
	defer func() { stop() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	logged := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-timer.C:
		}
		t, moves := s.next()
		if !moves {
			continue
		}
		next, at, err := s.open(t.to)
		if err != nil && s.group.failed(s, t, err) {
			stop()
			stop = func() {}
			s.group.moved(s, At{}, nil)
			s.poke()
			continue
		}
		if err != nil {
			if logged != err.Error() {
				s.log.Error("cannot listen; trying again", "for", s.name, "at", t.to.Address, "err", err)
				logged = err.Error()
			}
			timer.Reset(retry)
			continue
		}
		stop()
		s.group.moved(s, t.to, at)
		stop, logged = next, ""
	}
}

// open starts to serve, and returns how to stop, and where it listens.
func (s *Server) open(at At) (stop func(), where net.Addr, err error) {
	if at == (At{}) {
		return func() {}, nil, nil
	}
	conf, err := at.tls()
	if err != nil {
		return nil, nil, err
	}
	l, err := Listen(at)
	if err != nil {
		return nil, nil, err
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
	return func() {
		_ = server.Close()
		_ = l.Close() // which Serve may not have told the server of yet
	}, l.Addr(), nil
}

// Replace listens on a unix socket in place of a process that is gone, and of no other.
func Replace(ctx context.Context, at At) (net.Listener, error) {
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", at.Address); err == nil {
		conn.Close()
		return nil, fmt.Errorf("another process answers at %s: end it first", at.Address)
	}
	return Listen(at)
}

// Listen opens what At says, without TLS: a socket is root's alone, or also a group's, and takes the place of one that a killed process left.
func Listen(at At) (net.Listener, error) {
	if at.Network != "unix" {
		return net.Listen(at.Network, at.Address)
	}
	if err := os.MkdirAll(filepath.Dir(at.Address), 0o755); err != nil {
		return nil, err
	}
	// A socket that a killed process left would block the address. Next to it and
	// renamed: the name always leads to a socket with the right mode.
	fresh := at.Address + ".new"
	_ = os.Remove(fresh)
	l, err := net.Listen("unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(fresh, 0o600)
	if err == nil && at.Group != "" {
		err = giveTo(fresh, at.Group)
	}
	if err == nil {
		err = os.Rename(fresh, at.Address)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	if at.Group != "" {
		return l, nil // the mode of the socket is the guard
	}
	return rootOnly{l}, nil
}

// giveTo lets a group use a socket, too.
func giveTo(path, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return err
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("group %s: %w", group, err)
	}
	if err := os.Chown(path, -1, id); err != nil {
		return err
	}
	return os.Chmod(path, 0o660)
}

func (at At) tls() (*tls.Config, error) {
	if at.CertFile == "" {
		if at.ClientCAFile != "" {
			return nil, errors.New("a client CA without a certificate of the server: set both, or none")
		}
		return nil, nil
	}
	// Read at each handshake, so that a renewed certificate is used at once.
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
