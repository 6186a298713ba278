package ctl

import (
	"os"
	"path/filepath"
	"testing"
)

func TestANodeKeepsItsName(t *testing.T) {
	dir := t.TempDir()
	was := nameFiles
	t.Cleanup(func() { nameFiles = was })
	nameFiles = []string{filepath.Join(dir, "nodename"), filepath.Join(dir, "upstream")}
	t.Setenv("NODENAME", "")
	t.Setenv("HOSTNAME", "Host-A")
	step := func(says, flag, want string) {
		t.Helper()
		if got := nodeName(flag); got != want {
			t.Errorf("%s: the name is %q, want %q", says, got, want)
		}
	}
	step("nothing is known", "", "host-a")
	if err := os.WriteFile(nameFiles[1], []byte("old-calico\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	step("upstream's agent was here", "", "old-calico")
	if err := keepName(dir, "first"); err != nil {
		t.Fatal(err)
	}
	step("it was written down", "", "first")
	t.Setenv("NODENAME", "told")
	step("the environment says so", "", "told")
	step("a flag says so", "flag", "flag")
}
