package daemon

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore"
)

func TestPasswordsAreTriedWithoutASession(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bgp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bgp", "a"), []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	there, absent := plan.Secret{Name: "bgp", Key: "a"}, plan.Secret{Name: "bgp", Key: "b"}
	p := plan.Plan{Sessions: []plan.Session{{Peer: netip.MustParseAddr("192.0.2.1")}, {Password: &there}, {Password: &absent}}}
	got, err := CheckPasswords(t.Context(), Config{Secrets: dir, Log: slog.New(slog.DiscardHandler)}, p)
	if err != nil || len(got) != 2 || got[there] != "" || !strings.Contains(got[absent], "bgp/b") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := CheckPasswords(t.Context(), Config{Store: datastore.Config{Type: "kubernetes", Kubeconfig: filepath.Join(dir, "nowhere")}, Log: slog.New(slog.DiscardHandler)}, p); err == nil {
		t.Error("a cluster that nobody knows was asked")
	}
}
