package netnstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Called starts a process of that name in the namespace, with these variables, NAME=value, in addition to the test's own. It does nothing, until it is
// stopped or the test ends.
func (n *NS) Called(name string, environ ...string) (pid int, stop func()) {
	n.t.Helper()
	sleep, err := exec.LookPath("sleep")
	n.must(err)
	program, err := os.ReadFile(sleep)
	n.must(err)
	path := filepath.Join(n.t.TempDir(), name)
	n.must(os.WriteFile(path, program, 0o700))
	ctx, cancel := context.WithCancel(n.t.Context())
	cmd, err := n.ns.Exec(ctx, "/usr/bin/env", append(environ, path, "300")...)
	if err != nil {
		cancel()
		n.t.Fatal(err)
	}
	stop = func() { cancel(); _ = cmd.Wait() }
	n.t.Cleanup(stop)
	for n.t.Context().Err() == nil { // until env has made way for it
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)); strings.TrimSpace(string(comm)) == name {
			break
		}
	}
	return cmd.Process.Pid, stop
}
