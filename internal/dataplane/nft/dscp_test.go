package nft

import (
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// seenDSCP sends a datagram and returns the code point with which it arrives.
func (h *hosted) seenDSCP(t *testing.T, from, to string, family int) int {
	t.Helper()
	rx, err := h.party(to).ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addrs[to][family]), 9))
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	level, option := syscall.IPPROTO_IP, syscall.IP_RECVTOS
	if family == 1 {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_RECVTCLASS
	}
	raw, err := rx.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, 1) })
	}
	if err != nil {
		t.Fatal(err)
	}
	tx, err := h.party(from).ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addrs[from][family]), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if _, err := tx.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addrs[to][family]), 9))); err != nil {
		t.Fatal(err)
	}
	if err := rx.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, 64)
	_, n, _, _, err := rx.ReadMsgUDPAddrPort(make([]byte, 8), oob)
	if err != nil {
		t.Fatalf("%s to %s: %v", from, to, err)
	}
	ms, err := syscall.ParseSocketControlMessage(oob[:n])
	if err != nil || len(ms) != 1 {
		t.Fatalf("control messages %v, %v", ms, err)
	}
	return int(ms[0].Data[0]) >> 2
}

// TestPacketsThatLeaveTheClusterGetTheCodePoint of the workload, or of the host's endpoint, that sends them; what stays inside, and others', do not.
func TestPacketsThatLeaveTheClusterGetTheCodePoint(t *testing.T) {
	h := newHosted(t)
	inside := []netip.Prefix{netip.MustParsePrefix("10.65.0.0/16"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("fd65::/64")}
	all := inside
	all = append(all[:len(all):len(all)], netip.MustParsePrefix("192.0.2.2/32"), netip.MustParsePrefix("fd00::2/128"))
	host := intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "uplink"}, Link: "up0", Group: pair(nil).Endpoints[0].Group}
	batch := func(in []netip.Prefix, a, of intent.DSCP) intent.Batch {
		b := pair(nil)
		b.Host = &intent.HostSettings{EndpointToHost: intent.ToHostAccept, Inside: in}
		for i, e := range b.Endpoints {
			for _, x := range addrs[e.ID.Name] {
				b.Endpoints[i].Addrs = append(b.Endpoints[i].Addrs, netip.MustParseAddr(x))
			}
		}
		b.Endpoints[0].QoS.DSCP = a
		host.QoS.DSCP = of
		b.Endpoints = append(b.Endpoints, host)
		return b
	}
	for _, tt := range []struct {
		name     string
		in       []netip.Prefix
		a, host  intent.DSCP
		from, to string
		want     int
	}{
		{"a workload's", inside, 1 + 46, 0, "a", "out", 46},
		{"zero is one", inside, 1, 0, "a", "out", 0},
		{"all bits", inside, 1 + 63, 1 + 10, "a", "out", 63},
		{"another workload has none", inside, 1 + 46, 0, "b", "out", 0},
		{"the host's is not a workload's", inside, 0, 1 + 10, "a", "out", 0},
		{"the host's", inside, 1 + 46, 1 + 10, "host", "out", 10},
		{"to another workload", inside, 1 + 46, 1 + 10, "a", "b", 0},
		{"to a host of the cluster", all, 1 + 46, 1 + 10, "a", "out", 0},
		{"from a host to one", all, 1 + 46, 1 + 10, "host", "out", 0},
		{"to its own host", inside, 1 + 46, 1 + 10, "a", "host", 0},
		{"an answer", inside, 1 + 46, 1 + 10, "out", "a", 0},
	} {
		h.d.Merge(batch(tt.in, tt.a, tt.host))
		apply(t, h.d)
		for family := range 2 {
			if got := h.seenDSCP(t, tt.from, tt.to, family); got != tt.want {
				t.Errorf("%s: %s to %s, %s: code point %d, want %d", tt.name, tt.from, tt.to, addrs[tt.to][family], got, tt.want)
			}
		}
	}
	table := func() string { return h.ns.Run("nft", "-s", "list", "table", "inet", "twill") }
	before := table()
	if strings.Count(before, "dscp set ") != 4 {
		t.Errorf("want a rule for each endpoint and family:\n%s", before)
	}
	again := New(h.kernelConn, Config{}) // the agent restarts, and knows nothing yet
	again.Merge(intent.Batch{})
	apply(t, again)
	if after := table(); after != before {
		t.Errorf("changed before all was known:\n%s\nto\n%s", before, after)
	}
	again.Merge(batch(nil, 0, 0))
	apply(t, again)
	if after := table(); strings.Contains(after, "dscp") {
		t.Errorf("no endpoint has one any more:\n%s", after)
	}
}
