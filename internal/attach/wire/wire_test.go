package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/attach/wire"
)

// socket is where f answers each connection.
func socket(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	return path
}

func TestAQuestionIsAnsweredOrRefused(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("POST /echo", wire.Answer(func(_ context.Context, r wire.Ref) (wire.Ref, error) { return r, nil }))
	mux.Handle("POST /no", wire.Answer(func(context.Context, wire.Ref) (wire.Ref, error) {
		return wire.Ref{}, fmt.Errorf("asked: %w", &wire.Refusal{Reason: "not now", Later: true})
	}))
	mux.Handle("POST /wrong", wire.Answer(func(context.Context, wire.Ref) (wire.Ref, error) { return wire.Ref{}, errors.New("broken") }))
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	at := l.Addr().String()

	long := wire.Ref{Network: "net", ContainerID: strings.Repeat("c", 100_000)} // which is sent in pieces
	var got wire.Ref
	if err := wire.Ask(t.Context(), at, "/echo", long, &got); err != nil || got.ContainerID != long.ContainerID {
		t.Errorf("a long one: %d characters came back: %v", len(got.ContainerID), err)
	}
	if err := wire.Ask(t.Context(), at, "/echo", long, nil); err != nil {
		t.Errorf("an answer that nobody wants: %v", err)
	}
	for path, later := range map[string]bool{"/no": true, "/wrong": false} {
		var refusal *wire.Refusal
		if err := wire.Ask(t.Context(), at, path, long, &got); !errors.As(err, &refusal) || refusal.Later != later {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := wire.Ask(t.Context(), at, "/new", long, &got); err == nil || !strings.Contains(err.Error(), "404 Not Found to /new; is it of this version?") {
		t.Errorf("what it does not know: %v", err)
	}
	if err := wire.Ask(t.Context(), at+"x", "/echo", long, &got); !errors.Is(err, wire.ErrNoAgent) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestAnAnswerThatIsNoneIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       "",
		"another":       "SSH-2.0-x\r\n\r\n",
		"half a head":   "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n",
		"half a body":   "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"network\":",
		"half a text":   "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"network\":",
		"no refusal":    "HTTP/1.0 409 Conflict\r\nContent-Type: application/json\r\n\r\n{",
		"another's 409": "HTTP/1.0 409 Conflict\r\nContent-Type: text/html\r\n\r\n<html>",
	} {
		at := socket(t, func(c net.Conn) {
			buf := make([]byte, 4096)
			_, _ = c.Read(buf)
			_, _ = io.WriteString(c, text)
		})
		var got wire.Ref
		if err := wire.Ask(t.Context(), at, "/echo", wire.Ref{}, &got); err == nil || errors.Is(err, wire.ErrNoAgent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAQuestionEndsWithItsContext(t *testing.T) {
	gone := make(chan error, 1)
	at := socket(t, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c) // until the other end goes
		gone <- err
	})
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- wire.Ask(ctx, at, "/echo", wire.Ref{}, nil) }()
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("Ask = %v", err)
	}
	select {
	case <-gone:
	default: // it may have been cancelled before it was connected
	}
}
