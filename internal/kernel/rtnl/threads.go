package rtnl

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Threaded reports whether threads of the kernel's take what a link receives, and not the processor that was interrupted. It is a
// kernel.UnsupportedError where the kernel knows no such thing (before Linux 5.12).
func (h *Handle) Threaded(link string) (bool, error) {
	value := ""
	err := h.sysfs(link, func(fd int) error {
		f, err := openAt(fd, "threaded", unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		b := make([]byte, 8)
		n, err := f.Read(b)
		value = strings.TrimSpace(string(b[:n]))
		return err
	})
	return value != "" && value != "0", wrap(err, "threads of %s", link)
}

// SetThreaded says whether they do.
func (h *Handle) SetThreaded(link string, on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	return wrap(h.sysfs(link, func(fd int) error {
		f, err := openAt(fd, "threaded", unix.O_WRONLY)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(value)
		return err
	}), "threads of %s: %t", link, on)
}

// sysfs calls f with the directory of a link below /sys/class/net. What is mounted at /sys is of the namespace that mounted it; this is of
// the handle's.
func (h *Handle) sysfs(link string, f func(fd int) error) error {
	if link == "" || strings.ContainsAny(link, "/") || link == "." || link == ".." {
		return unix.ENODEV
	}
	return h.ns.Do(func() error {
		sys, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(sys) }()
		if err := unix.FsconfigCreate(sys); err != nil {
			return err
		}
		mount, err := unix.Fsmount(sys, unix.FSMOUNT_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(mount) }()
		fd, err := unix.Openat(mount, "class/net/"+link, unix.O_PATH|unix.O_CLOEXEC, 0) // a symbolic link within
		if errors.Is(err, unix.ENOENT) {
			return unix.ENODEV
		} else if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return f(fd)
	})
}

func openAt(dir int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, unix.EOPNOTSUPP
	} else if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
