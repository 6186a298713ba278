package relay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLS is the files of one end, and who the other end must be. All files are read at each handshake, so that renewed ones count at once.
type TLS struct {
	CertFile, KeyFile, CAFile string
	// What the other end's certificate must have: this common name, or this URI among its subject alternative names. With neither, a client
	// wants the name or address under which it reaches the relay, and a relay takes any client that the authority signed.
	CN, URISAN string
}

// Creds are how one end shows who it is, and knows the other.
type Creds = credentials.TransportCredentials

// Plaintext is no credentials at all.
func Plaintext() credentials.TransportCredentials { return insecure.NewCredentials() }

// Near reports whether an address is of this machine alone: a unix socket, or a loopback address.
func Near(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// Check returns an error if files are lacking, or mean nothing now.
func (t TLS) Check() error {
	var lacks []string
	for _, f := range []struct{ what, name string }{{"certificate", t.CertFile}, {"key", t.KeyFile}, {"CA", t.CAFile}} {
		if f.name == "" {
			lacks = append(lacks, f.what)
		}
	}
	if lacks != nil {
		return fmt.Errorf("TLS without a file of: %s", strings.Join(lacks, ", "))
	}
	if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
		return err
	}
	_, err := t.roots()
	return err
}

func (t TLS) roots() (*x509.CertPool, error) {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", t.CAFile)
	}
	return pool, nil
}

// ServerCreds are those of a relay, which every client must have a certificate for. Check says whether they will do.
func (t TLS) ServerCreds() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.pair() },
		ClientAuth:     tls.RequireAnyClientCert, // verified below
		VerifyConnection: func(s tls.ConnectionState) error {
			return t.verify(s, "", x509.ExtKeyUsageClientAuth)
		},
		SessionTicketsDisabled: true, // each connection shows a certificate that is valid now
	})
}

// ClientCreds are those of an agent that reaches the relay at an address.
func (t TLS) ClientCreds(address string) credentials.TransportCredentials {
	host, _, _ := net.SplitHostPort(address) // of a socket: none
	return credentials.NewTLS(&tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair() },
		InsecureSkipVerify:   true, // verified below, by an authority that is read now
		VerifyConnection: func(s tls.ConnectionState) error {
			name := host
			if t.CN != "" || t.URISAN != "" {
				name = ""
			} else if name == "" {
				return errors.New("the relay has no name that its certificate could be held to")
			}
			return t.verify(s, name, x509.ExtKeyUsageServerAuth)
		},
	})
}

func (t TLS) pair() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	return &c, err
}

// verify judges the other end's certificate. Name: empty, any.
func (t TLS) verify(s tls.ConnectionState, name string, usage x509.ExtKeyUsage) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate was shown")
	}
	roots, err := t.roots()
	if err != nil {
		return err
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(opts); err != nil {
		return err
	}
	var uris []string
	for _, u := range leaf.URIs {
		uris = append(uris, u.String())
	}
	switch {
	case t.CN == "" && t.URISAN == "",
		t.CN != "" && leaf.Subject.CommonName == t.CN,
		t.URISAN != "" && slices.Contains(uris, t.URISAN):
		return nil
	}
	return fmt.Errorf("the certificate is of %q, with URIs %q; wanted is the common name %q or the URI %q", leaf.Subject.CommonName, uris, t.CN, t.URISAN)
}
