package netnstest

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OneCore keeps the caller on one core, with the thread that it is on, until undo. What a thread sends through veth waits in the queue of its core
// (netif_rx in net/core/dev.c): from two of them packets overtake each other, as far as one is busy with other things.
func OneCore(t testing.TB) (undo func()) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	err := unix.SchedGetaffinity(0, &all)
	for cpu := 0; err == nil && one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
			err = unix.SchedSetaffinity(0, &one)
		}
	}
	if err != nil {
		t.Error(err)
	}
	return func() {
		if err := errors.Join(err, unix.SchedSetaffinity(0, &all)); err == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}
}
