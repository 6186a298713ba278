package nft

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestWorkloadsKnowTheirHostByItsAddress: the kernel takes the gateway's address as the source, which each host has.
func TestWorkloadsKnowTheirHostByItsAddress(t *testing.T) {
	h := newHosted(t)
	const gateway, second = "169.254.1.1", "192.0.2.77"
	h.ns.Addr("lo", second+"/32")
	h.ns.Run("ip", "addr", "change", gateway+"/32", "dev", "calia", "scope", "link") // as the agent has it
	web := netip.AddrPortFrom(netip.MustParseAddr(addrs["a"][0]), 8080)
	seen := func(from *netnstest.NS, source string) string {
		t.Helper()
		return seenAs(t, h.a, web, from, source, web)
	}
	own := intent.HostSettings{EndpointToHost: intent.ToHostAccept, MTU: intent.MTUSettings{Own: [2]netip.Addr{netip.MustParseAddr(addrs["host"][0])}}}
	b := pair(nil)
	b.Host = &own
	h.d.Merge(b)
	apply(t, h.d)
	for _, tt := range []struct {
		name   string
		from   *netnstest.NS
		source string
		want   string
	}{
		{"what the kernel chooses", h.ns, "", addrs["host"][0]},
		{"the gateway's address, bound", h.ns, gateway, addrs["host"][0]},
		{"another address of the host's, bound", h.ns, second, second},
		{"another workload", h.b, addrs["b"][0], addrs["b"][0]},
	} {
		if got := seen(tt.from, tt.source); got != tt.want {
			t.Errorf("%s: seen as %s, want %s", tt.name, got, tt.want)
		}
	}
	answered(t, h, gateway+":9000")
	h.d.Merge(intent.Batch{Host: &intent.HostSettings{}})
	apply(t, h.d)
	if got := seen(h.ns, ""); got != gateway {
		t.Errorf("a host whose Node has no address is seen as %s", got)
	}
	if got := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(got, "postrouting-host") {
		t.Errorf("it has no address, and a stage for it:\n%s", got)
	}
}

// seenAs is the address as which a server that listens in a namespace sees who opens a TCP connection to it, by an address that may be translated. An empty
// source is the kernel's choice.
func seenAs(t *testing.T, server *netnstest.NS, at netip.AddrPort, from *netnstest.NS, source string, to netip.AddrPort) string {
	t.Helper()
	l, err := server.ListenTCP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var src netip.AddrPort
	if source != "" {
		src = netip.AddrPortFrom(netip.MustParseAddr(source), 0)
	}
	c, err := from.DialTCP(src, to, time.Now().Add(netnstest.Patience))
	if err != nil {
		t.Fatalf("to %s: %v", to, err)
	}
	defer c.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	return netip.MustParseAddrPort(in.RemoteAddr().String()).Addr().String()
}

// answered has workload a ask a server of the host over UDP that is bound to no address, and wants the answer from somewhere: its flow has taken the
// host's address and port, so that a translated answer would come from another port.
func answered(t *testing.T, h *hosted, want string) {
	t.Helper()
	server, err := h.ns.ListenUDP(netip.MustParseAddrPort("0.0.0.0:9000"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := h.a.ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addrs["a"][0]), 9001))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	for _, c := range []net.PacketConn{server, client} {
		if err := c.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addrs["host"][0]), 9000))); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 1)
	_, from, err := server.ReadFrom(word)
	if err == nil {
		_, err = server.WriteTo([]byte("!"), from)
	}
	if err == nil {
		_, from, err = client.ReadFrom(word)
	}
	if err != nil || from.String() != want {
		t.Errorf("an answer over UDP is from %v, want %s: %v", from, want, err)
	}
}
