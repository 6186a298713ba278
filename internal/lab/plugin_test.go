package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTheBinaryIsAKubectlPluginByItsName runs it by the name under which kubectl looks for it.
func TestTheBinaryIsAKubectlPluginByItsName(t *testing.T) {
	exe := testBinary(t)
	plugin := filepath.Join(t.TempDir(), "kubectl-calico")
	must(t, os.Symlink(exe, plugin))
	say := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if got, want := say(plugin, "version", "--client"), say(exe, "version", "--client"); got != want || got == "" {
		t.Errorf("as a plugin it says %q, want %q", got, want)
	}
}
