package cli_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// daemonArgs has this test's binary run a daemon, for a test of signals that would end the test itself.
const daemonArgs = "TWILL_TEST_DAEMON"

func TestRunADaemon(t *testing.T) {
	if args := os.Getenv(daemonArgs); args != "" {
		os.Exit(cli.Run(t.Context(), append([]string{"twill"}, strings.Fields(args)...), console.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
}

func TestAHangupEndsNoDaemon(t *testing.T) {
	for _, name := range []string{"bfd", "etcd", "confd"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sock := filepath.Join(dir, "s")
			args := fmt.Sprintf("bfd --data-dir %s --socket %s", dir, sock)
			switch name {
			case "etcd":
				args = fmt.Sprintf("etcd --data-dir %s/etcd --listen unix://%s", dir, sock)
			case "confd": // of a datastore that does not answer
				args = fmt.Sprintf("confd --node h1 --etcd http://127.0.0.1:1 --data-dir %s --output %s/conf --bird-socket= --socket %s", dir, dir, sock)
			}
			outlivesAHangup(t, args, func() error {
				c, err := net.Dial("unix", sock)
				if err == nil {
					_ = c.Close()
				}
				return err
			})
		})
	}
	t.Run("bird, before it becomes BIRD", func(t *testing.T) {
		machinetest.Program(t, "bird")
		dir := t.TempDir()
		outlivesAHangup(t, fmt.Sprintf("bird --config %s/none --bird-socket %s/run/ctl", dir, dir), func() error {
			_, err := os.Stat(filepath.Join(dir, "run")) // it makes this before it waits for a configuration
			return err
		})
	})
}

// outlivesAHangup runs a daemon until it is up, hangs up, and wants it to end of itself when it is asked to.
func outlivesAHangup(t *testing.T, args string, up func() error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRunADaemon$")
	cmd.Env = append(os.Environ(), daemonArgs+"="+args)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); ; {
		err := up()
		if err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, output.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf("it does not come up: %v", err)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	<-ended // etcd that ends before it is ready says so
	if state := cmd.ProcessState; !state.Exited() {
		t.Errorf("after SIGHUP and SIGTERM: %v\n%s", state, output.String())
	}
}
