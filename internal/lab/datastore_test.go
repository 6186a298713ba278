package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// aloneHost is a machine of its own as far as files below /run and networks go, with `twill node` and no setting at all.
type aloneHost struct {
	t    *testing.T
	exe  string
	node *exec.Cmd
}

func newAloneHost(t *testing.T) *aloneHost {
	t.Helper()
	h := &aloneHost{t: t, exe: testBinary(t)}
	for dir := filepath.Dir(h.exe); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755)) // anybody may run it
	}
	const script = `mount -t tmpfs none /run && ip link set lo up && exec "$0" node --bgp=off --ip=none --data-dir "$1"`
	h.node = exec.Command(machinetest.Program(t, "unshare"), "--mount", "--net", "sh", "-c", script, h.exe, t.TempDir())
	h.node.Env = h.env()
	h.node.Stdout, h.node.Stderr = os.Stderr, os.Stderr
	must(t, h.node.Start())
	t.Cleanup(func() {
		_ = h.node.Process.Signal(os.Interrupt)
		_ = h.node.Wait()
	})
	return h
}

// env is the environment without what says where a datastore is.
func (h *aloneHost) env() (out []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "ETCD_") && !strings.HasPrefix(e, "TWILL_") && !strings.HasPrefix(e, "FELIX_") {
			out = append(out, e)
		}
	}
	return append(out, "NODENAME=alone")
}

// run runs twill on that host as a user, and returns what it said and its exit code.
func (h *aloneHost) run(uid int, args ...string) (said string, code int) {
	h.t.Helper()
	id := strconv.Itoa(uid)
	cmd := exec.Command(machinetest.Program(h.t, "nsenter"), append([]string{"-t", strconv.Itoa(h.node.Process.Pid), "-m", "-n", "-S", id, "-G", id, h.exe}, args...)...)
	cmd.Env = h.env()
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

func TestADefaultNodesDatastoreIsRootsAlone(t *testing.T) {
	const nobody = 65534
	h := newAloneHost(t)
	await(t, "root reads what the node wrote", func() bool {
		said, code := h.run(0, "get", "tiers")
		return code == 0 && strings.Contains(said, "default")
	})
	for _, args := range [][]string{{"get", "tiers"}, {"delete", "clusterinformation", "default"}, {"datastore", "lock"}} {
		said, code := h.run(nobody, append(args, "--timeout=3s")...)
		if code != 1 || !strings.Contains(said, "permission denied") || !strings.Contains(said, "run this as root") {
			t.Errorf("as nobody, twill %s: exit code %d\n%s", strings.Join(args, " "), code, said)
		}
	}
	if said, code := h.run(nobody, "get", "tiers", "--timeout=3s", "--etcd=http://127.0.0.1:2379"); code != 1 || !strings.Contains(said, "No datastore answers") {
		t.Errorf("as nobody, over loopback: exit code %d\n%s", code, said)
	}
	if said, code := h.run(0, "get", "clusterinformation", "default"); code != 0 {
		t.Errorf("it is gone: %s", said)
	}
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.node.Process.Pid), "net", table))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" && f[1] != "0100007F:238B" { // the agent's health, 127.0.0.1:9099
				t.Errorf("a TCP socket listens: %s", line)
			}
		}
	}
}
