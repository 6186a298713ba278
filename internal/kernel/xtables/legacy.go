package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Chain is a chain that somebody made in a legacy table; those that every table has are not among them.
type Chain struct {
	Family      Family
	Table, Name string
}

// layout is where a family's entries have what (struct ipt_entry of linux/netfilter_ipv4/ip_tables.h, ip6t_entry of
// linux/netfilter_ipv6/ip6_tables.h).
type layout struct {
	family       Family
	names        string // file of /proc that names the tables there are
	domain       int
	level        int
	targetOffset int // a 16 bit number; that of the next entry follows
	size         int // of an entry without matches and target
}

var layouts = []layout{
	{IPv4, "ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 88, 112},
	{IPv6, "ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 140, 168},
}

// Socket options, the same for both families, and parts of their structures.
const (
	getInfo    = 64
	getEntries = 65
	nameLen    = 32 // of a table
	infoLen    = 84 // struct ipt_getinfo; its last word is the size of the entries
	entriesAt  = 40 // in struct ipt_get_entries: a name, a size, and what aligns entries to 8 bytes
	targetLen  = 32 // struct xt_entry_target: its size, a name of 29 bytes, a revision
	errorLen   = 30 // the name in the target "ERROR", which begins a chain
)

// LegacyChains lists the chains of all legacy tables there are. It makes no table and loads no module: a kernel without
// ip_tables, or a namespace in which nobody used it, has none.
func LegacyChains() ([]Chain, error) {
	var out []Chain
	for _, l := range layouts {
		names, err := os.ReadFile("/proc/thread-self/net/" + l.names)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("legacy tables: %w", err)
		}
		for _, table := range strings.Fields(string(names)) {
			entries, err := l.entries(table)
			if err != nil {
				return nil, fmt.Errorf("legacy table %s %s: %w", l.family, table, err)
			}
			for _, name := range l.chains(entries) {
				out = append(out, Chain{l.family, table, name})
			}
		}
	}
	return out, nil
}

// entries are all rules of a table, as the kernel keeps them.
func (l layout) entries(table string) ([]byte, error) {
	fd, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	for try := 0; ; try++ {
		info := make([]byte, infoLen)
		copy(info[:nameLen-1], table)
		if err := getsockopt(fd, l.level, getInfo, info); err != nil {
			return nil, err
		}
		size := binary.NativeEndian.Uint32(info[infoLen-4:])
		all := make([]byte, entriesAt+int(size))
		copy(all[:nameLen-1], table)
		binary.NativeEndian.PutUint32(all[nameLen:], size)
		err := getsockopt(fd, l.level, getEntries, all)
		if errors.Is(err, unix.EAGAIN) && try < 10 { // it was changed since, and has another size
			continue
		}
		return all[entriesAt:], err
	}
}

func getsockopt(fd, level, option int, b []byte) error {
	size := uint32(len(b))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// chains are the names that entries with the target ERROR bear; the last one is the end of the table. What does not look
// like entries ends the list.
func (l layout) chains(entries []byte) (out []string) {
	for len(entries) >= l.size {
		target := int(binary.NativeEndian.Uint16(entries[l.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(entries[l.targetOffset+2:]))
		if next < l.size || next >= len(entries) {
			return out
		}
		if target >= l.size && target+targetLen+errorLen <= next && text(entries[target+2:target+targetLen-1]) == "ERROR" {
			out = append(out, text(entries[target+targetLen:target+targetLen+errorLen]))
		}
		entries = entries[next:]
	}
	return out
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
