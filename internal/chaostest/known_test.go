package chaostest_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/conntrack"
)

// known is what kernels know of a flow that does not arrive: the neighbours of its ends, and of a connection its two sockets and
// each host's entry for it.
func (w *world) known(f *flow) string {
	var found []string
	for _, e := range f.ends {
		neighbours := "unknown"
		_ = inside(e.ns, func() error { // of the thread that starts it
			out, err := exec.Command("ip", "neighbour").CombinedOutput()
			neighbours = strings.Join(strings.Fields(string(out)), " ")
			return err
		})
		found = append(found, e.addr.String()+" has neighbours "+neighbours)
	}
	if f.proto != "tcp" {
		return strings.Join(found, "; ")
	}
	from := f.tx.LocalAddr().(*net.TCPAddr).AddrPort()
	found = append(found, "sender "+socket(f.tx), "receiver "+socket(f.rx))
	for _, h := range hosts {
		err := inside(w.Spec.Prefix+h, func() error {
			c, err := conntrack.Open()
			if err != nil {
				return err
			}
			defer c.Close()
			return c.Each(func(e conntrack.Flow) {
				if e.Original.Proto == unix.IPPROTO_TCP && (isEnd(from, e.Original.Src, e.Original.SrcPort) || isEnd(from, e.Original.Dst, e.Original.DstPort)) {
					found = append(found, fmt.Sprintf("%s: %+v", h, e))
				}
			})
		})
		if err != nil {
			found = append(found, fmt.Sprintf("%s: %v", h, err))
		}
	}
	return strings.Join(found, "; ")
}

func isEnd(of netip.AddrPort, a netip.Addr, port uint16) bool {
	return of == netip.AddrPortFrom(a, port)
}

// socket is a connection's state as tcp(7), TCP_INFO, has it; times are in milliseconds.
func socket(c net.Conn) string {
	raw, err := c.(syscall.Conn).SyscallConn()
	found := ""
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			var i *unix.TCPInfo
			i, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				found = fmt.Sprintf("state %d ca %d retransmits %d probes %d backoff %d rto %d unacked %d lost %d retrans %d last sent %d received %d ack %d rtt %d var %d cwnd %d notsent %d window %d",
					i.State, i.Ca_state, i.Retransmits, i.Probes, i.Backoff, i.Rto/1000, i.Unacked, i.Lost, i.Retrans, i.Last_data_sent, i.Last_data_recv, i.Last_ack_recv,
					i.Rtt/1000, i.Rttvar/1000, i.Snd_cwnd, i.Notsent_bytes, i.Snd_wnd)
			}
		})
	}
	if err != nil {
		return err.Error()
	}
	return found
}
