package hostfacts

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
)

// Processes are those in the host's network namespace.
func (h *Host) Processes() (out []doctor.Process) {
	own, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", h.ns.FD()))
	if err != nil {
		return nil
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		ns, err := os.Stat(dir + "/ns/net")
		if err != nil || !os.SameFile(own, ns) {
			continue // it ended meanwhile, or is elsewhere
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		out = append(out, doctor.Process{Name: nameOf(dir), PID: pid})
	}
	return out
}

// nameOf is the name of the process of a directory of /proc. One of this binary is twill, also if it was called by a name of upstream's
// (decision 057).
func nameOf(dir string) string {
	self, err1 := os.Stat("/proc/self/exe")
	exe, err2 := os.Stat(dir + "/exe")
	if err1 == nil && err2 == nil && os.SameFile(self, exe) {
		return "twill"
	}
	name, _ := os.ReadFile(dir + "/comm")
	return strings.TrimSpace(string(name))
}

// healthPort is where upstream's agent says how it is, and ours, by default.
const healthPort = 9099

// Listeners fills in the processes that listen on BGP's ports, and on that of agents.
func (h *Host) Listeners(f *doctor.Facts) {
	var ports []uint16
	for _, l := range f.BGP.Listen {
		ports = append(ports, l.Port())
	}
	for _, l := range h.listeners(f, append(ports, healthPort)) {
		if slices.Contains(ports, l.At.Port()) {
			f.Listeners = append(f.Listeners, l)
		} else {
			f.Health = append(f.Health, l)
		}
	}
}

func (h *Host) listeners(f *doctor.Facts, ports []uint16) (out []doctor.Listener) {
	sockets := map[string]netip.AddrPort{}
	for _, table := range []string{"tcp", "tcp6"} {
		var text []byte
		_ = h.ns.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/" + table); return err }) // a family that is off has none
		for inode, at := range listening(string(text)) {
			if slices.Contains(ports, at.Port()) {
				sockets[inode] = at
			}
		}
	}
	for _, p := range f.Processes {
		if len(sockets) == 0 {
			return out
		}
		dir := fmt.Sprintf("/proc/%d", p.PID)
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, fd := range fds {
			link, _ := os.Readlink(fd)
			inode, isSocket := strings.CutPrefix(link, "socket:[")
			inode = strings.TrimSuffix(inode, "]")
			if at, ok := sockets[inode]; isSocket && ok {
				out = append(out, doctor.Listener{At: at, Process: p.Name, PID: p.PID, Ours: ours(dir)})
				delete(sockets, inode)
			}
		}
	}
	for _, at := range sockets {
		out = append(out, doctor.Listener{At: at, Process: "somebody unknown"})
	}
	return out
}

// ours reports whether a process is of this binary, or of an older one of the same name.
func ours(dir string) bool {
	a, errA := os.Stat(dir + "/exe")
	b, errB := os.Stat("/proc/self/exe")
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return true
	}
	exe, _ := os.Readlink(dir + "/exe")
	return filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == "twill"
}

const listenState = "0A" // TCP_LISTEN

// listening reads /proc/net/tcp: the addresses of sockets that listen, by inode.
func listening(table string) map[string]netip.AddrPort {
	out := map[string]netip.AddrPort{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != listenState {
			continue
		}
		if at, ok := socketAddr(f[1]); ok {
			out[f[9]] = at
		}
	}
	return out
}

// socketAddr parses an address as the kernel prints it: 32-bit words in the host's byte order, and a port.
func socketAddr(text string) (netip.AddrPort, bool) {
	addr, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(addr)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), ok
}
