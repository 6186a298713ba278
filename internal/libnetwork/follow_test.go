package libnetwork

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
)

// TestWhatIsMadeWhileDockerAnswersIsNotCollected: the answer has what there was when Docker was asked, however long ago that is when it is judged by.
func TestWhatIsMadeWhileDockerAnswersIsNotCollected(t *testing.T) {
	dir, err := os.MkdirTemp("", "twd-") // sockets' paths are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	serve := func(name string, handler http.HandlerFunc) string {
		socket := filepath.Join(dir, name)
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler} //nolint:gosec // of a test
		t.Cleanup(func() { _ = s.Close() })
		go func() { _ = s.Serve(l) }()
		return socket
	}
	var took time.Duration
	docker := serve("docker", func(w http.ResponseWriter, _ *http.Request) {
		began := time.Now()
		<-time.After(10 * time.Millisecond)
		took = time.Since(began)
		_, _ = w.Write([]byte("[]"))
	})
	var got wire.Valid
	agent := serve("agent", wire.Answer(func(_ context.Context, v wire.Valid) (nothing, error) {
		got = v
		return nothing{}, nil
	}))
	p := &plugin{cfg: Config{Agent: agent, CollectAfter: time.Minute, Log: slog.New(slog.DiscardHandler)}, docker: newDocker(docker)}
	if err := p.survey(t.Context()); err != nil {
		t.Error(err)
	}
	if !got.Docker || got.Age < time.Minute+took {
		t.Errorf("the agent collects what is older than %s, though Docker answered for %s: %+v", got.Age, took, got)
	}
}
