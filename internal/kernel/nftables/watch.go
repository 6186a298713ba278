package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/nlsock"
)

// ErrOverrun: events were lost; what changed is not known.
var ErrOverrun = errors.New("nftables: events were lost")

const (
	watchBuffer     = 1 << 20
	newGeneration   = unix.NFT_MSG_NEWGEN
	attributeTable  = 1 // of every message but that of a generation: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, …
	messagePortAt   = 12
	subsystemOfType = 8
)

// large is the size in bytes, of some 50 elements in as many sets, from which a transaction is committed with its watcher out of the group.
const large = 4 << 10

// Watcher receives changes that others make.
type Watcher struct {
	f       *os.File
	buf     []byte
	overrun atomic.Bool // events may have been missed while it was out of the group
}

// Watch listens, in the network namespace of the calling thread, to all changes but those of own, which the kernel
// does not even hand over: a large transaction would drown the rest.
func Watch(own *Conn) (*Watcher, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("nftables: watch: %w", err)
	}
	w := &Watcher{f: os.NewFile(uintptr(fd), "nftables events"), buf: make([]byte, readSize)}
	steps := []func() error{
		func() error { return nlsock.ReceiveBuffer(fd, watchBuffer) },
		func() error { return ignore(fd, own.port) },
		func() error { return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) },
		func() error {
			return unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(fmt.Errorf("nftables: watch: %w", err), w.Close())
		}
	}
	own.mu.Lock()
	own.watcher = w
	own.mu.Unlock()
	return w, nil
}

// commitUnwatched commits with the watcher out of its group if the transaction is large:
// while anybody listens, the kernel makes a message of each element, which
// costs more than the element itself [tried: two thirds of a first
// transaction]. The generation tells whether somebody else came between.
func (c *Conn) commitUnwatched(b *Batch, before uint32, commit func() error) error {
	if c.watcher == nil || b.Size() < large || c.watcher.listen(unix.NETLINK_DROP_MEMBERSHIP) != nil {
		return commit()
	}
	err := commit()
	lerr := c.watcher.listen(unix.NETLINK_ADD_MEMBERSHIP)
	after, gerr := c.genID()
	applied := uint32(1)
	if err != nil {
		applied = 0
	}
	if lerr != nil || gerr != nil || after-before != applied {
		c.watcher.overrun.Store(true)
		_ = c.watcher.f.SetReadDeadline(time.Unix(1, 0)) // wakes it; fails only once it is closed
	}
	return err
}

// listen enters or leaves the group.
func (w *Watcher) listen(option int) error {
	raw, err := w.f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, option, unix.NFNLGRP_NFTABLES)
	}); cerr != nil {
		return cerr
	}
	return err
}

// ignore makes the socket drop messages about changes that came through a port. All messages of one datagram are about
// the same transaction.
func ignore(fd int, port uint32) error {
	var swapped [4]byte
	binary.NativeEndian.PutUint32(swapped[:], port)
	const takeAll = 0xffffffff
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: messagePortAt}, // loads as big-endian
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: binary.BigEndian.Uint32(swapped[:])},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: takeAll},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// Close ends the watch, and a Receive that waits, with os.ErrClosed.
func (w *Watcher) Close() error { return w.f.Close() }

// Receive waits for changes and returns the names of the tables that were touched. After ErrOverrun the watch goes on.
func (w *Watcher) Receive() ([]string, error) {
	raw, err := w.f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("nftables: watch: %w", err)
	}
	var n int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		n, _, rerr = unix.Recvfrom(int(fd), w.buf, unix.MSG_TRUNC)
		return !errors.Is(rerr, unix.EAGAIN)
	})
	if w.overrun.Swap(false) || errors.Is(err, os.ErrDeadlineExceeded) {
		_ = w.f.SetReadDeadline(time.Time{})
		return nil, ErrOverrun
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("nftables: watch: %w (%w)", os.ErrClosed, err)
	case errors.Is(rerr, unix.ENOBUFS), n > len(w.buf):
		return nil, ErrOverrun
	case rerr != nil:
		return nil, fmt.Errorf("nftables: watch: %w", rerr)
	}
	seen := map[string]bool{}
	var tables []string
	err = eachMessage(w.buf[:n], func(m message) error {
		if m.typ>>subsystemOfType != unix.NFNL_SUBSYS_NFTABLES || m.typ&0xff == newGeneration {
			return nil
		}
		as, err := parseAttrs(m.body)
		if err != nil {
			return err
		}
		if name := as.str(attributeTable); name != "" && !seen[name] {
			seen[name] = true
			tables = append(tables, name)
		}
		return nil
	})
	if err != nil {
		return nil, ErrOverrun // unreadable is as good as lost
	}
	return tables, nil
}

// Receiver is what Follow needs of a [Watcher].
type Receiver interface {
	Receive() ([]string, error)
	Close() error
}

// Follow sends note after a change of a table that concerns reports, and after [ErrOverrun], when any may have changed. Changes that come before a note
// is taken are one: who is slow reads once for all of them. It ends with the context, and closes the receiver then; any other error of the
// receiver ends it too, and is returned.
func Follow(ctx context.Context, r Receiver, concerns func(table string) bool, notes chan<- func(), note func()) error {
	defer context.AfterFunc(ctx, func() { _ = r.Close() })()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- receive(r, concerns, changed) }()
	var pending chan<- func() // nil: nothing has changed since the last note
	for {
		select {
		case <-changed:
			pending = notes
		case pending <- note:
			pending = nil
		case err := <-ended:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
}

// receive marks changes that concern somebody, until the receiver fails or is closed.
func receive(r Receiver, concerns func(table string) bool, changed chan<- struct{}) error {
	for {
		tables, err := r.Receive()
		switch {
		case err != nil && !errors.Is(err, ErrOverrun):
			return err
		case err == nil && !slices.ContainsFunc(tables, concerns):
			continue
		}
		select {
		case changed <- struct{}{}:
		default: // it is marked
		}
	}
}
