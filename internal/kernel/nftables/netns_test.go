package nftables

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// testNet is a network namespace of its own, with a connection into it. Its thread is never given back to the runtime:
// it ends with the goroutine, and the namespace with it.
type testNet struct {
	*Conn
	calls chan func()
}

func newNet(tb testing.TB) *testNet {
	tb.Helper()
	machinetest.Root(tb)
	n := &testNet{calls: make(chan func())}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.Conn, err = Open()
		}
		opened <- err
		for f := range n.calls {
			f()
		}
	}()
	if err := <-opened; err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
		close(n.calls)
	})
	return n
}

// do runs f on the thread of the namespace.
func (n *testNet) do(f func()) {
	done := make(chan struct{})
	n.calls <- func() { defer close(done); f() }
	<-done
}

// nft runs Debian's tool in the namespace.
func (n *testNet) nft(tb testing.TB, args ...string) string {
	tb.Helper()
	path := machinetest.Program(tb, "nft")
	var out []byte
	var err error
	n.do(func() { out, err = exec.Command(path, args...).CombinedOutput() })
	if err != nil {
		tb.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *testNet) mustCommit(tb testing.TB, b *Batch) {
	tb.Helper()
	if err := n.Commit(b); err != nil {
		tb.Fatal(err)
	}
}

func (n *testNet) mustList(tb testing.TB, table string) *Ruleset {
	tb.Helper()
	rs, err := n.List(table)
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}
