// Package netns makes, opens and enters network namespaces.
//
// In: a name (as of `ip netns`), a path, a process id, or nothing for a namespace without a name.
// Out: a [Handle], in which functions run ([Handle.Do]) and children start ([Handle.Start], [Handle.Exec]).
//
// A socket belongs for life to the namespace of the thread that opened it, a child to that of the thread that forked
// it, and /proc/sys/net shows that of the thread that reads. So Do gives each function a thread of its own, unless the caller's is in the
// namespace already, and never hands a thread back to the scheduler whose namespace could not be restored.
package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dir is where named namespaces are, as `ip netns` has it.
const Dir = "/run/netns"

// threadPath is the namespace of the calling thread; /proc/self would be that of the main thread.
const threadPath = "/proc/thread-self/ns/net"

// Handle is an open namespace. It keeps the namespace alive until closed, and any goroutine may use it.
type Handle struct {
	f    *os.File
	id   identity
	name string
}

// identity is what distinguishes a namespace from all others, while a handle keeps it alive.
type identity struct{ dev, ino uint64 }

func identityOf(st unix.Stat_t) identity { return identity{uint64(st.Dev), st.Ino} } //nolint:unconvert // 32 bits on some machines

// Current opens the namespace of the calling thread. Outside of Do, that is the one in which the process was started.
func Current() (*Handle, error) { return OpenPath(threadPath) }

// Open opens a namespace by its name.
func Open(name string) (*Handle, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	h, err := OpenPath(path)
	if err != nil {
		return nil, err
	}
	h.name = name
	return h, nil
}

// OpenPath opens a namespace by the path of its file, as container runtimes give it.
func OpenPath(path string) (*Handle, error) {
	fd, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil || fs.Type != unix.NSFS_MAGIC {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("network namespace: %s is not one", path) // the mount point outlived its mount
	}
	return &Handle{f: os.NewFile(uintptr(fd), path), id: identityOf(st)}, nil
}

// open opens without package os, which would ask five times whether the kernel has events of the file. A plugin opens ten.
func open(path string) (fd int, err error) {
	for {
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

// New makes a namespace without a name; it lives as long as something is in it or holds it open.
func New() (*Handle, error) {
	var h *Handle
	err := onThread(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", os.NewSyscallError("unshare", err))
		}
		var err error
		h, err = Current()
		return err
	})
	return h, err
}

// Create makes a namespace that `ip netns` sees under name. It is an error if there is one.
func Create(name string) (*Handle, error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	if err := shareDir(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	_ = f.Close()
	h, err := New()
	if err == nil {
		err = os.NewSyscallError("mount", unix.Mount(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), h.FD()), path, "none", unix.MS_BIND, ""))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", name, err), h.Close(), os.Remove(path))
	}
	h.name = name
	return h, nil
}

// Delete removes the name. The namespace itself goes when nothing is left in it and all its handles are closed.
func Delete(name string) error {
	path, err := namedPath(name)
	if err != nil {
		return err
	}
	// EINVAL: nothing is mounted there, which is what a crash in Create leaves.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("network namespace %s: %w", name, os.NewSyscallError("umount", err))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	return nil
}

// Processes returns those whose network namespace has this name, by their main threads. One that ends meanwhile is not among them.
func Processes(name string) (pids []int, err error) {
	path, err := namedPath(name)
	if err != nil {
		return nil, err
	}
	var is unix.Stat_t
	if err := unix.Stat(path, &is); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, os.NewSyscallError("stat", err))
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		var of unix.Stat_t
		if unix.Stat(p+"/ns/net", &of) != nil || of.Dev != is.Dev || of.Ino != is.Ino {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// List returns the names of all named namespaces, sorted.
func List() ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, nil
}

// Name is the name with which h was created or opened, or empty.
func (h *Handle) Name() string { return h.name }

// FD is the open file of the namespace; it is valid until Close.
func (h *Handle) FD() int { return int(h.f.Fd()) }

// Same reports whether two handles are of one namespace.
func (h *Handle) Same(o *Handle) bool { return h.id == o.id }

// Close lets go of the namespace. A nil handle may be closed.
func (h *Handle) Close() error {
	if h == nil {
		return nil
	}
	return h.f.Close()
}

// Do runs f in the namespace, and returns f's error: on the caller's thread, if that is in the namespace, and on a thread of its own
// else. Goroutines that f starts are elsewhere.
// A panic in f and the end of a goroutine (testing.T.Fatal) pass through to the caller.
func (h *Handle) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if h.isCurrent() {
		return f()
	}
	return onThread(h, f)
}

// isCurrent reports whether the calling thread is in the namespace.
func (h *Handle) isCurrent() bool {
	var st unix.Stat_t
	return unix.Stat(threadPath, &st) == nil && identityOf(st) == h.id
}

// Start starts the command in the namespace.
func (h *Handle) Start(cmd *exec.Cmd) error { return h.Do(cmd.Start) }

// Exec starts a program in the namespace; the caller waits for it. For control of its files and environment, use Start.
func (h *Handle) Exec(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	if err := h.Start(cmd); err != nil {
		return nil, err
	}
	return cmd, nil
}

// Output runs a program in the namespace to its end and returns what it wrote, errors included.
func (h *Handle) Output(ctx context.Context, program string, args ...string) (string, error) {
	var out []byte
	err := h.Do(func() error {
		var err error
		out, err = exec.CommandContext(ctx, program, args...).CombinedOutput()
		return err
	})
	return string(out), err
}

// onThread runs f on a thread of its own, in h unless that is nil, and restores the thread afterwards.
func onThread(h *Handle, f func() error) error {
	var (
		err      error
		crash    any
		returned bool
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, e := Current()
		if e != nil {
			err, returned = e, true
			runtime.UnlockOSThread() // nothing has changed yet
			return
		}
		defer func() {
			if e := unix.Setns(home.FD(), unix.CLONE_NEWNET); e == nil {
				runtime.UnlockOSThread()
			} // else the thread ends with this goroutine, since it is locked
			_ = home.Close()
		}()
		defer func() { crash = recover() }()
		if h != nil {
			if e := unix.Setns(h.FD(), unix.CLONE_NEWNET); e != nil {
				err, returned = fmt.Errorf("network namespace %s: %w", h.name, os.NewSyscallError("setns", e)), true
				return
			}
		}
		err = f()
		returned = true
	}()
	<-done
	switch {
	case crash != nil:
		panic(crash)
	case !returned:
		runtime.Goexit()
	}
	return err
}

func namedPath(name string) (string, error) {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
		return "", fmt.Errorf("network namespace: %q is not a name", name)
	}
	return filepath.Join(Dir, name), nil
}

// shareDir makes the directory a shared mount, as `ip netns add` does, so that names made in one mount namespace are
// seen, and can be removed, in others.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return fmt.Errorf("network namespaces: %w", err)
	}
	err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("network namespaces: %w", os.NewSyscallError("mount "+Dir, err))
	}
	return nil
}
