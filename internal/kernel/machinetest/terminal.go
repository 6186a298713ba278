package machinetest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal of so many columns (a pseudo-terminal, pty(7)), and what was written to it when it is closed; that closes it.
func Terminal(t testing.TB, columns uint16) (tty *os.File, written func() string) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0) // else Fd makes it blocking, and closing waits for a reader
	if err != nil {
		missing(t, "pseudo-terminals")
	}
	t.Cleanup(func() { _ = user.Close() })
	number := -1
	control := func(fd uintptr) {
		err = errors.Join(unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
		if err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}
	raw, bad := user.SyscallConn()
	if bad == nil {
		bad = raw.Control(control)
	}
	if err = errors.Join(bad, err); err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan []byte, 1)
	go func() { // a terminal that nobody reads takes 4 KiB
		b, err := io.ReadAll(user)
		if err != nil && !errors.Is(err, syscall.EIO) { // EIO is its end
			b = append(b, err.Error()...)
		}
		all <- b
	}()
	return tty, func() string {
		_ = tty.Close()
		return string(<-all)
	}
}
