package nft

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// limited is the pair of workloads, of which a has limits.
func limited(in, out intent.Limits) intent.Batch {
	b := pair(nil)
	b.Host = &intent.HostSettings{EndpointToHost: intent.ToHostAccept}
	b.Endpoints[0].QoS = intent.QoS{In: in, Out: out}
	return b
}

// burst sends datagrams at once, and returns how many arrived of them. One has found the neighbours before.
func (h *hosted) burst(t *testing.T, from, to string, family, n int) (arrived int) {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addrs[to][family]), 9)
	rx, err := h.party(to).ListenUDP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer rx.Close()
	tx, err := h.party(from).ListenUDP(netip.AddrPortFrom(netip.MustParseAddr(addrs[from][family]), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	before := h.dropped(t, "packet rate")
	for range n {
		if _, err := tx.WriteToUDPAddrPort([]byte("x"), at); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(netnstest.Patience); arrived+int(h.dropped(t, "packet rate")-before) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%s to %s: of %d packets %d arrived, %d were dropped by a limit", from, to, n, arrived, h.dropped(t, "packet rate")-before)
		}
		if err := rx.SetReadDeadline(time.Now().Add(netnstest.Silence / 10)); err != nil {
			t.Fatal(err)
		}
		for {
			if _, _, err := rx.ReadFromUDPAddrPort(make([]byte, 8)); err != nil {
				break
			}
			arrived++
		}
	}
	return arrived
}

// TestPacketsBeyondARateAreDropped: as many as the burst pass at once, and then one a second. The limit of one direction is not that of the other, and
// what a host sends to its own workload is under none.
func TestPacketsBeyondARateAreDropped(t *testing.T) {
	const burst, sent = 10, 60
	h := newHosted(t)
	h.d.Merge(limited(intent.Limits{}, intent.Limits{}))
	apply(t, h.d)
	for _, way := range []string{"a>b udp/9", "out>a udp/9", "a>host udp/9"} {
		h.check(t, way)
	}
	few := intent.Limits{PacketRate: 1, PacketBurst: burst}
	for _, tt := range []struct {
		in, out  intent.Limits
		from, to string
		limited  bool
	}{
		{few, intent.Limits{}, "out", "a", true},
		{few, intent.Limits{}, "b", "a", true},
		{few, intent.Limits{}, "a", "b", false},
		{few, intent.Limits{}, "host", "a", false},
		{intent.Limits{}, few, "a", "out", true},
		{intent.Limits{}, few, "a", "b", true},
		{intent.Limits{}, few, "a", "host", true},
		{intent.Limits{}, few, "out", "a", false},
	} {
		for family := range 2 {
			h.d.Merge(limited(intent.Limits{}, intent.Limits{})) // the next bucket is full
			apply(t, h.d)
			h.d.Merge(limited(tt.in, tt.out))
			apply(t, h.d)
			begin := time.Now()
			got := h.burst(t, tt.from, tt.to, family, sent)
			most := burst + int(time.Since(begin)/time.Second) + 1
			if tt.limited && (got < burst || got > most) || !tt.limited && got != sent {
				t.Errorf("%s to %s, in %+v, out %+v: %d of %d arrived; want all, or if that is limited %d–%d", tt.from, tt.to, tt.in, tt.out, got, sent, burst, most)
			}
		}
	}
	h.d.Merge(limited(intent.Limits{}, intent.Limits{}))
	apply(t, h.d)
	if text := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(text, "limit rate") || strings.Contains(text, "chain forward-limits") {
		t.Errorf("nothing is limited any more:\n%s", text)
	}
}

// TestConnectionsBeyondANumberAreRejected, and those that there are go on. The number survives the agent, and changes of all else.
func TestConnectionsBeyondANumberAreRejected(t *testing.T) {
	const most = 3
	for _, tt := range []struct {
		from, to string
		limits   func(rate uint32) (in, out intent.Limits)
	}{
		{"out", "a", func(rate uint32) (in, out intent.Limits) {
			return intent.Limits{Connections: most, PacketRate: rate, PacketBurst: rate}, out
		}},
		{"a", "out", func(rate uint32) (in, out intent.Limits) {
			return in, intent.Limits{Connections: most, PacketRate: rate, PacketBurst: rate}
		}},
	} {
		for family := range 2 {
			h := newHosted(t)
			h.d.Merge(limited(tt.limits(10000)))
			apply(t, h.d)
			l, err := h.party(tt.to).ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(addrs[tt.to][family]), 80))
			if err != nil {
				t.Fatal(err)
			}
			dial := func(from string) (net.Conn, error) {
				return h.party(from).DialTCP(netip.AddrPort{}, netip.MustParseAddrPort(l.Addr().String()), time.Now().Add(netnstest.Patience))
			}
			var open, far []net.Conn
			for len(open) < most {
				c, err := dial(tt.from)
				if err != nil {
					t.Fatalf("connection %d of %d: %v", len(open)+1, most, err)
				}
				x, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				open, far = append(open, c), append(far, x)
			}
			refused := func(when string) {
				t.Helper()
				if _, err := dial(tt.from); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s, %s to %s: connection %d: %v, want it refused", when, tt.from, tt.to, most+1, err)
				}
			}
			refused("as many are open as there may be")
			h.d.Merge(limited(tt.limits(9000)))
			apply(t, h.d)
			refused("the packet rate is another")
			h.d = New(h.kernelConn, Config{})
			h.d.Merge(limited(tt.limits(9000)))
			apply(t, h.d)
			refused("the agent began again")
			if n := h.dropped(t, "connections"); n < 3 {
				t.Errorf("3 were refused, counted are %d", n)
			}
			for i, c := range open {
				if _, err := c.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				if _, err := far[i].Read(make([]byte, 1)); err != nil {
					t.Errorf("connection %d does not live: %v", i+1, err)
				}
			}
			if tt.to == "a" {
				if _, err := dial("host"); err != nil {
					t.Errorf("a host always reaches its workloads: %v", err)
				}
			}
			_, _ = open[0].Close(), far[0].Close()
			for deadline := time.Now().Add(netnstest.Patience); ; {
				if _, err = dial(tt.from); err == nil || time.Now().After(deadline) {
					break
				}
			}
			if err != nil {
				t.Errorf("%s to %s: one has gone, and the next: %v", tt.from, tt.to, err)
			}
		}
	}
}
