package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetworksAreThoseThatRuntimesFind: in the order of names, whatever is in them.
func TestNetworksAreThoseThatRuntimesFind(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10-calico.conflist": `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","ipam":{"type":"host-local","ranges":[]},"nodename_file_optional":true,"dreams":1},{"type":"portmap"}]}`,
		"20-single.conf":     `{"name":"one","cniVersion":"0.3.1","type":"bridge"}`,
		"30-broken.conflist": `{`,
		"40-refused.conf":    `{"name":"x","cniVersion":"0.3.1","type":"calico","dataplane_options":{"type":"grpc"}}`,
		"50-empty.conflist":  `{"name":"none","cniVersion":"0.3.1","plugins":[]}`,
		"60-other.txt":       `{"name":"one","cniVersion":"0.3.1","type":"bridge"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Networks(dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, n := range got {
		lines = append(lines, fmt.Sprintf("%s: %s %v %s %v, error %t", filepath.Base(n.File), n.Name, n.Types, n.IPAM, n.Idle, n.Err != nil))
	}
	want := `10-calico.conflist: k8s-pod-network [calico portmap] host-local [dreams (not known) nodename_file_optional], error false
20-single.conf: one [bridge]  [], error false
30-broken.conflist:  []  [], error true
40-refused.conf: x [calico]  [], error true
50-empty.conflist:  []  [], error true`
	if text := strings.Join(lines, "\n"); text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	if none, err := Networks(filepath.Join(dir, "nowhere")); err != nil || len(none) != 0 {
		t.Errorf("where there is no directory: %v, %v", none, err)
	}
}

// TestOursIsABinaryOfThisSource: this test's own is one, a text is none.
func TestOursIsABinaryOfThisSource(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "calico")
	if err := os.WriteFile(text, []byte("upstream's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]bool{exe: {true, true}, text: {true, false}, text + "2": {false, false}} {
		if there, our := Ours(path); there != want[0] || our != want[1] {
			t.Errorf("%s: there %t, ours %t; want %v", path, there, our, want)
		}
	}
}
