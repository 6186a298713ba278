package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/datastore"
)

// handshakeTime bounds the search for a reason.
const handshakeTime = time.Second

// withTLSReason adds to an error after which etcd did not answer what a TLS handshake
// of our own reports: the client does not return that, and "deadline
// exceeded" does not point to certificates.
func (s *Store) withTLSReason(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(err, datastore.ErrUnavailable) {
		return err
	}
	cfg := s.reached()
	conf, terr := cfg.tls()
	if terr != nil || conf == nil {
		return err
	}
	for _, e := range cfg.Endpoints {
		u, perr := url.Parse(e)
		if perr != nil || u.Scheme != "https" {
			continue
		}
		if reason := tlsReason(conf, u.Host); reason != nil {
			return fmt.Errorf("%w: %w", err, reason)
		}
	}
	return err
}

// socketError returns why this process may not use its endpoints, if all are sockets; nil: it may, or nothing listens, or
// there are others. The client would retry until the caller's deadline, and return "deadline exceeded".
func socketError(endpoints []string) (err error) {
	for _, e := range endpoints {
		path, ok := strings.CutPrefix(e, "unix://")
		if !ok {
			return nil
		}
		var c net.Conn
		if c, err = net.DialTimeout("unix", path, handshakeTime); err == nil {
			c.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			return nil
		}
	}
	return err
}

// tlsReason returns why one side does not accept the other's certificate; nil: both do, or nothing listens.
func tlsReason(conf *tls.Config, address string) error {
	conf = conf.Clone()
	conf.NextProtos = []string{"h2"}
	raw, err := net.DialTimeout("tcp", address, handshakeTime)
	if err != nil {
		return nil
	}
	defer raw.Close()
	if conf.ServerName, _, err = net.SplitHostPort(address); err != nil {
		return nil
	}
	_ = raw.SetDeadline(time.Now().Add(handshakeTime))
	c := tls.Client(raw, conf)
	if err = c.Handshake(); err == nil {
		// In TLS 1.3 the server verifies our certificate after the handshake is complete for us.
		_, err = c.Read(make([]byte, 1))
	}
	var timeout net.Error
	if errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	if err != nil && !strings.Contains(err.Error(), "tls:") && !strings.Contains(err.Error(), "x509:") {
		return nil
	}
	return err
}
