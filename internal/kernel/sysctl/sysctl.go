// Package sysctl reads and writes /proc/sys/net of one namespace.
//
// In: a path below /proc/sys/net, such as "ipv4/conf/eth0/rp_filter", and a value. Out: the value, or [ErrNotFound].
//
// The kernel shows the namespace of the thread that reads, so each call runs on a thread in the namespace in which the
// [Handle] was opened.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/netns"
)

const root = "/proc/sys/net"

// ErrNotFound: the kernel has no such setting, or the interface is gone.
var ErrNotFound = errors.New("no such setting")

// Handle reads and writes the settings of one namespace. Any goroutine may use it.
//
// It keeps the directories of interfaces open. The kernel remembers the names below net of all namespaces in one list for
// each name, and walks it: with hundreds of containers, to find a setting by its whole path takes half a millisecond.
type Handle struct {
	ns   *netns.Handle
	mu   sync.Mutex
	dirs map[string]int // open, by their paths
}

// roomy are the directories with an entry for each interface.
var roomy = []string{"ipv4/conf/", "ipv6/conf/", "ipv4/neigh/", "ipv6/neigh/"}

// Setting is one value to write.
type Setting struct{ Path, Value string }

// Open opens a handle in the namespace of the calling thread.
func Open() (*Handle, error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, err
	}
	return &Handle{ns: ns, dirs: map[string]int{}}, nil
}

// OpenIn opens a handle in ns, which may be closed afterwards.
func OpenIn(ns *netns.Handle) (*Handle, error) {
	var h *Handle
	err := ns.Do(func() (err error) { h, err = Open(); return err })
	return h, err
}

// Close closes the handle.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range h.dirs {
		_ = unix.Close(fd)
	}
	clear(h.dirs)
	_ = h.ns.Close()
}

// Get reads a setting, without the white space around it.
func (h *Handle) Get(path string) (string, error) {
	var value string
	err := h.ns.Do(func() (err error) { value, err = h.read(path); return err })
	return value, err
}

// Set writes a setting unless it has that value already: a write, even of the same value, makes events and, for
// forwarding, resets other settings. It reports whether it wrote.
func (h *Handle) Set(path, value string) (changed bool, err error) {
	written, err := h.SetAll([]Setting{{path, value}})
	return len(written) > 0, err
}

// SetAll writes settings in their order, stops at the first error, and returns those that it changed.
func (h *Handle) SetAll(settings []Setting) (changed []string, err error) {
	err = h.ns.Do(func() error {
		for _, s := range settings {
			wrote, err := h.write(s)
			if err != nil {
				return err
			}
			if wrote {
				changed = append(changed, s.Path)
			}
		}
		return nil
	})
	return changed, err
}

// Links returns the names that have settings of their own below dir, such as "ipv6/conf", without all and default.
func (h *Handle) Links(dir string) ([]string, error) {
	path, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	err = h.ns.Do(func() error {
		entries, err := os.ReadDir(path)
		if err != nil {
			return wrap(dir, err)
		}
		for _, e := range entries {
			if n := e.Name(); n != "all" && n != "default" {
				names = append(names, n)
			}
		}
		return nil
	})
	return names, err
}

// Link is an interface's name as a part of a path.
func Link(name string) string { return strings.ReplaceAll(name, "/", "\\") }

// write opens the file once: package os would take three times as many calls of the kernel, and an endpoint has ten settings.
func (h *Handle) write(s Setting) (bool, error) {
	fd, err := h.open(s.Path, unix.O_RDWR)
	if err != nil {
		return false, wrap(s.Path, err)
	}
	defer unix.Close(fd)
	if now, err := content(fd); err != nil || now == s.Value {
		return false, wrap(s.Path, err)
	}
	_, err = unix.Pwrite(fd, []byte(s.Value), 0)
	return true, wrap(s.Path, err)
}

func (h *Handle) read(name string) (string, error) {
	fd, err := h.open(name, unix.O_RDONLY)
	if err != nil {
		return "", wrap(name, err)
	}
	defer unix.Close(fd)
	value, err := content(fd)
	return value, wrap(name, err)
}

// open opens a setting, on a thread of the namespace.
func (h *Handle) open(name string, mode int) (fd int, err error) {
	path, err := resolve(name)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(roomy, func(dir string) bool { return strings.HasPrefix(name, dir) })
	if i < 0 {
		return openAt(unix.AT_FDCWD, path, mode)
	}
	h.mu.Lock()
	dir, known := h.dirs[roomy[i]]
	if !known {
		if dir, err = openAt(unix.AT_FDCWD, filepath.Join(root, roomy[i]), unix.O_PATH|unix.O_DIRECTORY); err == nil {
			h.dirs[roomy[i]] = dir
		}
	}
	h.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return openAt(dir, strings.TrimPrefix(name, roomy[i]), mode)
}

// openAt never creates: in proc that could only be a wrong path.
func openAt(dir int, path string, mode int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(dir, path, mode|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

const longest = 4096 // no setting below net is longer

func content(fd int) (string, error) {
	buf := make([]byte, longest)
	n, err := unix.Pread(fd, buf, 0)
	return strings.TrimSpace(string(buf[:max(n, 0)])), err
}

// resolve keeps a path below root: an interface's name is other people's input.
func resolve(name string) (string, error) {
	if !filepath.IsLocal(name) || filepath.Clean(name) != name {
		return "", fmt.Errorf("sysctl %q: not a path below net", name)
	}
	return filepath.Join(root, name), nil
}

func wrap(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("sysctl net/%s: %w", path, ErrNotFound)
	}
	return fmt.Errorf("sysctl net/%s: %w", path, err)
}
