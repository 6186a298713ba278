package nft

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestTheHostHasTheTunnelsAddressInIt: DNAT sends what a process of the host opened to an address of services through a tunnel. The source was chosen
// before, for another way.
func TestTheHostHasTheTunnelsAddressInIt(t *testing.T) {
	h := newHosted(t)
	for _, tt := range []struct {
		kind              intent.TunnelKind
		own, far, service string
	}{
		{intent.VXLAN, "10.66.0.1", "10.66.1.5", "192.0.2.80"},
		{intent.VXLAN6, "fd66::1", "fd66:1::5", "fd00::80"},
		{intent.IPIP, "10.67.0.1", "10.67.1.5", "192.0.2.81"},
	} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			family, ip, bits := 0, "ip", "/32"
			if tt.kind.Family() == intent.IPv6 {
				family, ip, bits = 1, "ip6", "/128"
			}
			host, a := addrs["host"][family], addrs["a"][family]
			far, link := netnstest.New(t), tt.kind.Link()
			h.ns.VethTo(far, link, "eth0")
			h.ns.Addr(link, tt.own+bits)
			far.Addr("eth0", tt.far+bits)
			h.ns.Route(tt.far + bits + " dev " + link)
			far.Route(tt.own + bits + " dev eth0")
			for _, other := range []string{host, a} {
				far.Route(other + bits + " via " + tt.own + " dev eth0")
			}
			h.ns.Run("nft", fmt.Sprintf("table %s proxy%d { chain output { type nat hook output priority -100; %s daddr %s dnat to %s; }; }", ip, tt.kind, ip, tt.service, tt.far))
			port := func(a string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(a), 8080) }
			seen := func(from *netnstest.NS, source, to string) string {
				t.Helper()
				return seenAs(t, far, port(tt.far), from, source, port(to))
			}
			want := func(when, service string) {
				t.Helper()
				if got := seen(h.ns, "", tt.service); got != service {
					t.Errorf("%s: the host at the address of a service is seen as %s, want %s", when, got, service)
				}
				if got := seen(h.ns, "", tt.far); got != tt.own {
					t.Errorf("%s: the host is seen as %s, want the device's address", when, got)
				}
				if got := seen(h.a, a, tt.far); got != a {
					t.Errorf("%s: a workload is seen as %s, want its own address", when, got)
				}
			}
			b := pair(nil)
			b.IPSets = append(b.IPSets, intent.IPSet{ID: tt.kind.Peers()})
			b.Host = &intent.HostSettings{}
			h.d.Merge(b)
			apply(t, h.d)
			want("without a tunnel", host)
			b = intent.Batch{Host: &intent.HostSettings{}}
			b.Host.Tunnels[tt.kind] = intent.Tunnel{Host: netip.MustParseAddr(host), Addr: netip.MustParseAddr(tt.own)}
			h.d.Merge(b)
			apply(t, h.d)
			want("with one", tt.own)
			h.d.Merge(intent.Batch{Host: &intent.HostSettings{}})
			apply(t, h.d)
			if got := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(got, "postrouting-tunnel") {
				t.Errorf("there is no tunnel, and a stage for it:\n%s", got)
			}
		})
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
