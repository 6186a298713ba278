package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheBinaryIsAKubectlPluginByItsName runs it by the name under which kubectl looks for it.
func TestTheBinaryIsAKubectlPluginByItsName(t *testing.T) {
	exe, dir := testBinary(t), t.TempDir()
	plugin, ctl := filepath.Join(dir, "kubectl-calico"), filepath.Join(dir, "calicoctl") // upstream's are one program
	must(t, os.Symlink(exe, plugin))
	must(t, os.Symlink(exe, ctl))
	say := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if got, want := say(plugin, "version", "--client"), say(ctl, "version", "--client"); got != want || !strings.HasPrefix(got, "Client Version:") {
		t.Errorf("as a plugin it says %q, want %q", got, want)
	}
}
