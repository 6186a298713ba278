package rtnl

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Shrink makes the buffer of the watch as small as the kernel allows.
func (w *Watcher) Shrink(t *testing.T) {
	t.Helper()
	if err := unix.SetsockoptInt(int(w.f.Fd()), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(w.f.Fd()), true); err != nil { // which Fd undoes
		t.Fatal(err)
	}
}
