package nflog

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nlsock"
)

const group = 7

// open opens a group in a namespace until the end of the test.
func open(t *testing.T, ns *netnstest.NS, cfg Config) *Conn {
	t.Helper()
	var c *Conn
	var err error
	ns.Do(func() { c, err = Open(cfg) })
	machinetest.Supported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// reporting is a namespace whose lo reports what is sent to UDP port 9 to group 7.
func reporting(t *testing.T) *netnstest.NS {
	t.Helper()
	machinetest.Program(t, "nft")
	ns := netnstest.New(t)
	ns.Run("nft", `table inet t { chain c { type filter hook output priority 0; udp dport 9 log prefix "twill a b" group 7; }; }`)
	return ns
}

// sender sends payloads of these sizes to a port of an address.
func sender(t *testing.T, ns *netnstest.NS, to string) func(sizes ...int) {
	t.Helper()
	c, err := ns.ListenUDP(netip.MustParseAddrPort("0.0.0.0:0"))
	if err != nil {
		t.Fatal(err)
	}
	return func(sizes ...int) {
		t.Helper()
		for _, n := range sizes {
			if _, err := c.WriteTo(bytes.Repeat([]byte{'x'}, n), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// want is the next report; the test fails if none comes.
func want(t *testing.T, c *Conn) Packet {
	t.Helper()
	p, ok, err := c.Receive(time.Now().Add(netnstest.Patience))
	if err != nil || !ok {
		t.Fatalf("no report: %v, %v", ok, err)
	}
	return p
}

func TestAReportSaysWhichRuleAndWhichWay(t *testing.T) {
	machinetest.Program(t, "nft")
	a, r, b := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	a.VethTo(r, "eth0", "ra")
	b.VethTo(r, "eth0", "rb")
	a.Addr("eth0", "192.0.2.2/24")
	r.Addr("ra", "192.0.2.1/24")
	r.Addr("rb", "198.51.100.1/24")
	b.Addr("eth0", "198.51.100.2/24")
	a.Route("default via 192.0.2.1")
	b.Route("default via 198.51.100.1")
	r.Forward()
	ra, rb := r.Link("ra").Index, r.Link("rb").Index
	for _, tt := range []struct {
		name, hook string
		from       *netnstest.NS
		to         string
		want       Packet
	}{
		{"before it is routed", "prerouting", a, "198.51.100.2:9", Packet{In: ra, Early: true}},
		{"on its way through", "forward", a, "198.51.100.2:9", Packet{In: ra, Out: rb}},
		{"to the host", "input", a, "192.0.2.1:9", Packet{In: ra}},
		{"from the host", "output", r, "192.0.2.2:9", Packet{Out: ra}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, r, Config{Group: group, Collect: 1})
			r.Run("nft", `table inet t { chain c { type filter hook `+tt.hook+` priority 0; udp dport 9 log prefix "rule of `+tt.hook+`" group 7; }; }`)
			defer r.Run("nft", "delete table inet t")
			sender(t, tt.from, tt.to)(4)
			p := want(t, c)
			tt.want.Prefix, tt.want.Payload = "rule of "+tt.hook, p.Payload
			if p.Prefix != tt.want.Prefix || p.In != tt.want.In || p.Out != tt.want.Out || p.Early != tt.want.Early {
				t.Errorf("got %+v, want %+v", p, tt.want)
			}
			if len(p.Payload) != 20+8+4 || p.Payload[9] != 17 || string(p.Payload[28:]) != "xxxx" {
				t.Errorf("the packet reads % x", p.Payload)
			}
		})
	}
}

func TestOnlyAsMuchIsCopiedAsWasAskedFor(t *testing.T) {
	ns := reporting(t)
	c := open(t, ns, Config{Group: group, Collect: 1, Snaplen: 64})
	send := sender(t, ns, "127.0.0.1:9")
	send(1000, 3)
	for i, n := range []int{64, 20 + 8 + 3} {
		if p := want(t, c); len(p.Payload) != n {
			t.Errorf("report %d has %d bytes, want %d", i, len(p.Payload), n)
		}
	}
}

// The kernel keeps reports until they are enough: nothing comes of two, and three come together.
func TestReportsInOneDatagramAreReturnedOneByOne(t *testing.T) {
	ns := reporting(t)
	c := open(t, ns, Config{Group: group, Collect: 3, Wait: time.Hour})
	send := sender(t, ns, "127.0.0.1:9")
	send(1, 2)
	if p, ok, err := c.Receive(time.Now().Add(netnstest.Silence)); ok || err != nil {
		t.Fatalf("before three were collected: %+v, %v", p, err)
	}
	send(3)
	for n := 1; n <= 3; n++ {
		if p := want(t, c); len(p.Payload) != 28+n || p.Prefix != "twill a b" {
			t.Errorf("report %d: %q with %d bytes", n, p.Prefix, len(p.Payload))
		}
		if n < 3 && len(c.rest) == 0 {
			t.Errorf("after %d, nothing is left of the datagram", n)
		}
	}
}

func TestAGroupHasOneReader(t *testing.T) {
	ns := reporting(t)
	first := open(t, ns, Config{Group: group, Collect: 1})
	second := func() (c *Conn, err error) {
		ns.Do(func() { c, err = Open(Config{Group: group, Collect: 1}) })
		return c, err
	}
	if _, err := second(); err == nil || !strings.Contains(err.Error(), "another process reads this group") {
		t.Errorf("the second reader gets %v", err)
	}
	send := sender(t, ns, "127.0.0.1:9")
	send(1)
	want(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := second()
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	defer c.Close()
	send(1)
	want(t, c)
}

func TestWhatNobodyTakesInTimeIsCountedAsLost(t *testing.T) {
	ns := reporting(t)
	c := open(t, ns, Config{Group: group, Collect: 1})
	if err := nlsock.ReceiveBuffer(c.sock.FD(), 16<<10); err != nil {
		t.Fatal(err)
	}
	send := sender(t, ns, "127.0.0.1:9")
	for range 200 {
		send(100)
	}
	got := 0
	for {
		_, ok, err := c.Receive(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got++
	}
	if got == 0 || got >= 200 || c.Lost() == 0 {
		t.Errorf("%d of 200 came, lost %d times", got, c.Lost())
	}
	lost := c.Lost()
	send(1)
	want(t, c)
	if c.Lost() != lost {
		t.Errorf("lost %d times, %d before anything more was", c.Lost(), lost)
	}
}

// What is cut off anywhere is read as far as it goes.
func TestMessagesThatAreCutOff(t *testing.T) {
	body := append([]byte{2, 0, 0, group}, attribute(attrHeader, []byte{8, 0, 0, 0})...)
	body = append(body, attribute(attrIfindexIn, []byte{0, 0, 0, 5})...)
	body = append(body, attribute(attrPrefix, []byte("twill x\x00"))...)
	body = append(body, attribute(attrPayload, []byte("abcde"))...)
	whole := decode(body)
	if whole.Prefix != "twill x" || whole.In != 5 || !whole.Early || string(whole.Payload) != "abcde" {
		t.Fatalf("whole: %+v", whole)
	}
	for n := range len(body) - 4 { // the last attribute has three bytes of padding
		if p := decode(body[:n]); p.Payload != nil || p.In != 0 && p.In != 5 || p.Prefix != "" && p.Prefix != "twill x" {
			t.Errorf("of %d bytes: %+v", n, p)
		}
	}
	if p := decode(append([]byte{2, 0, 0, group}, 3, 0, attrPayload, 0, 'a')); p.Payload != nil {
		t.Errorf("an attribute shorter than its head: %+v", p)
	}
	for _, b := range [][]byte{nil, make([]byte, 15), {0: 15, 15: 0}, {0: 17, 15: 0}} {
		if _, _, _, ok := next(b); ok {
			t.Errorf("a message was read of % x", b)
		}
	}
}
