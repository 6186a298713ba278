package kubetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
)

// Client speaks to a server with one token.
type Client struct {
	url, token string
	http       *http.Client
	err        error // why it cannot speak
}

// StatusError is an answer of the API server that says no.
type StatusError struct {
	Code    int    // of HTTP
	Reason  string // in one word, such as Forbidden, if the server gave one
	Message string
}

// Error is part of error.
func (e *StatusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// Admin is a client whom RBAC allows everything.
func (s *Server) Admin() *Client { return s.As(s.token) }

// As is a client with a token, such as one of Token.
func (s *Server) As(token string) *Client {
	pem, err := os.ReadFile(s.CAFile)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	// A connection for each request: one that outlived a server which was killed would fail the first request to the next.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	return &Client{url: s.URL, token: token, http: &http.Client{Transport: transport}, err: err}
}

// Do sends a request and returns the answer, whatever its code; the caller closes its body. It is for watches, and for bodies that are
// not JSON; contentType is that of body.
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	if c.err != nil {
		return nil, c.err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return c.http.Do(req)
}

// Call sends in as JSON and reads the answer into out; nil stands for none of each. What the server refuses is a *StatusError.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	var contentType string
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
		contentType = "application/json"
	}
	return c.call(ctx, method, path, contentType, body, out)
}

func (c *Client) call(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	resp, err := c.Do(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		var status struct{ Reason, Message string }
		if json.Unmarshal(answer, &status) != nil || status.Message == "" {
			status.Message = string(answer)
		}
		return fmt.Errorf("%s %s: %w", method, path, &StatusError{resp.StatusCode, status.Reason, status.Message})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// missing reports whether an error is the server's 404.
func missing(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// Token is one of a service account, by TokenRequest, for an hour. The account must be there.
func (s *Server) Token(t testing.TB, namespace, account string) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	ask := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"expirationSeconds": 3600}}
	path := fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s/token", namespace, account)
	if err := s.Admin().Call(t.Context(), "POST", path, ask, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// KubeconfigFor writes a kubeconfig with such a token, and returns its path. It goes with the test.
func (s *Server) KubeconfigFor(t testing.TB, namespace, account string) string {
	t.Helper()
	file := t.TempDir() + "/kubeconfig"
	if err := s.writeKubeconfig(file, s.Token(t, namespace, account)); err != nil {
		t.Fatal(err)
	}
	return file
}
