package caliconode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAHostOfHostLocalIsNotUpgradedByHalves: without addresses of its there is nothing to do; with some all stays as it is.
func TestAHostOfHostLocalIsNotUpgradedByHalves(t *testing.T) {
	alone(t)
	was := HostLocal
	t.Cleanup(func() { HostLocal = was })
	HostLocal = filepath.Join(t.TempDir(), "k8s-pod-network")
	want := func(code int, part string) {
		t.Helper()
		for _, flag := range []string{"-upgrade", "--upgrade"} {
			if _, got, out := call(t.Context(), "/opt/cni/bin/calico-ipam", flag); got != code || !strings.Contains(out, part) {
				t.Errorf("%s: %d %s; want %d, %q", flag, got, out, code, part)
			}
		}
	}
	want(0, "there is nothing to do")
	if err := os.Mkdir(HostLocal, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"lock", "last_reserved_ip.0"} {
		if err := os.WriteFile(filepath.Join(HostLocal, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want(0, "there is nothing to do")
	if err := os.WriteFile(filepath.Join(HostLocal, "10.65.0.7"), []byte("container\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(1, "host-local gave out 1 addresses here, 10.65.0.7 among them")
	HostLocal = filepath.Join(HostLocal, "lock")
	want(1, "not a directory")
}
