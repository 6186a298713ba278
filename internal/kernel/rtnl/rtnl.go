// Package rtnl reads and changes links, addresses, routes and neighbours over routing netlink.
//
// In and out: values of [netip] and of this package. A [Handle] belongs to the namespace in which it was opened, and any
// goroutine may use it. Nothing is ever replaced: what exists already is [ErrExists], so that no foreign route is overwritten.
package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Errors for errors.Is.
var (
	ErrExists   = errors.New("exists already")
	ErrNotFound = errors.New("does not exist")
	ErrDown     = errors.New("its interface is down")
	// ErrOverrun: the kernel dropped events since the reader was slow, so that all must be listed again.
	ErrOverrun = errors.New("events were lost")
)

// Handle has the netlink sockets of one namespace.
type Handle struct {
	nl *netlink.Handle
	ns *netns.Handle

	mu sync.Mutex
	// loose does without strict checks; nil: not opened yet, see nonStrict.
	loose *netlink.Handle

	writing sync.Mutex
	writer  *writer // nil: not opened yet
}

// Open opens a handle in the namespace of the calling thread.
func Open() (*Handle, error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, err
	}
	return open(ns)
}

// OpenIn opens a handle in ns, which may be closed afterwards.
func OpenIn(ns *netns.Handle) (*Handle, error) {
	var h *Handle
	err := ns.Do(func() (err error) { h, err = Open(); return err })
	return h, err
}

func open(ns *netns.Handle) (*Handle, error) {
	nl, err := netlink.NewHandleAt(vnetns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rtnetlink: %w", err), ns.Close())
	}
	h := &Handle{nl: nl, ns: ns}
	// With it the kernel filters dumps, which is ten times faster than to filter here.
	if err := nl.SetStrictCheck(true); err != nil {
		h.Close()
		return nil, &kernel.UnsupportedError{Feature: "strict netlink requests", Err: err}
	}
	return h, nil
}

// Close closes the handle.
func (h *Handle) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nl.Close()
	if h.loose != nil {
		h.loose.Close()
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	if h.writer != nil {
		h.writer.close()
	}
	_ = h.ns.Close()
}

// nonStrict returns a socket without strict checks, for neighbours and for what a route is: the library sends the padding of such
// requests as it finds it in memory, and a strict kernel answers now and then "invalid argument" [tried]. Few handles need one.
func (h *Handle) nonStrict() (*netlink.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loose != nil {
		return h.loose, nil
	}
	err := h.ns.Do(func() (err error) { h.loose, err = netlink.NewHandleAt(vnetns.None(), unix.NETLINK_ROUTE); return err })
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return h.loose, nil
}

// Namespace is the namespace of the handle; it is closed with it.
func (h *Handle) Namespace() *netns.Handle { return h.ns }

// wrap adds the operation, and one of our errors where callers test for it. It keeps the errno's text.
func wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	what = fmt.Sprintf(what, args...)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: %w", what, ErrExists)
	case errors.As(err, &notFound), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s: %w (%w)", what, ErrNotFound, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%s: %w (%w)", what, ErrDown, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return &kernel.UnsupportedError{Feature: what, Err: err}
	}
	return fmt.Errorf("%s: %w", what, os.NewSyscallError("rtnetlink", err))
}

// dump runs a dump again if the kernel says that its tables changed meanwhile, so that the answer would have holes.
func dump(run func() error) error {
	var err error
	for range 10 {
		if err = run(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
	return err
}

// host is a prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
