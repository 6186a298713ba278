package conntrack_test

import (
	"io"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/conntrack"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func open(t *testing.T, ns *netnstest.NS) *conntrack.Conn {
	t.Helper()
	var c *conntrack.Conn
	ns.Do(func() {
		var err error
		if c, err = conntrack.Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tracked is a namespace whose connections over lo are tracked, with one TCP, one UDP and one ICMP flow in each family.
func tracked(t *testing.T) *netnstest.NS {
	t.Helper()
	ns := netnstest.New(t)
	ns.KeepFlows()
	ns.Run("sh", "-c", "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose") // the last packets of a flow that is deleted make no new one
	ns.Run("nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }; add rule inet t c ct state established accept")
	for _, a := range []string{"127.0.0.1", "::1"} {
		at := netip.MustParseAddr(a)
		for _, proto := range []string{"tcp", "udp", "icmp"} {
			p := netnstest.Probe{From: ns, To: ns, Proto: proto, Dst: netip.AddrPortFrom(at, 4000)}
			if err := p.Try(netnstest.Patience); err != nil {
				t.Fatal(proto, err)
			}
		}
	}
	return ns
}

func flows(t *testing.T, c *conntrack.Conn) map[conntrack.Tuple]conntrack.Flow {
	t.Helper()
	out := map[conntrack.Tuple]conntrack.Flow{}
	if err := c.Each(func(f conntrack.Flow) { out[f.Original] = f }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMarkChangesTheBitsOfOneFlowAndNoOther(t *testing.T) {
	c := open(t, tracked(t))
	before := flows(t, c)
	kinds := map[[2]bool]map[uint8]bool{}
	for _, f := range before {
		k := [2]bool{f.Original.Src.Is6(), true}
		if kinds[k] == nil {
			kinds[k] = map[uint8]bool{}
		}
		kinds[k][f.Original.Proto] = true
		if f.Reply.Src != f.Original.Dst || f.Reply.DstPort != f.Original.SrcPort {
			t.Errorf("the reply of %+v is %+v", f.Original, f.Reply)
		}
	}
	for _, six := range []bool{false, true} {
		icmp := uint8(1)
		if six {
			icmp = 58
		}
		for _, proto := range []uint8{6, 17, icmp} {
			if !kinds[[2]bool{six, true}][proto] {
				t.Errorf("no flow of protocol %d, IPv6 %v, in %v", proto, six, before)
			}
		}
	}
	for tuple, f := range before {
		steps := []struct{ mark, mask, want uint32 }{
			{0x00000007, 0x0000000f, 0x7}, {0x00010000, 0x00010000, 0x00010007}, {0, 0x00010000, 0x7}, {0, 0xffffffff, 0},
		}
		for _, s := range steps {
			n, err := c.Mark([]conntrack.Change{{Flow: f, Mark: s.mark, Mask: s.mask}})
			if err != nil || n != 1 {
				t.Fatalf("%+v: %d flows changed: %v", tuple, n, err)
			}
			for other, now := range flows(t, c) {
				want := uint32(0)
				if other == tuple {
					want = s.want
				}
				if now.Mark != want {
					t.Errorf("mark of %+v is %#x, want %#x", other, now.Mark, want)
				}
			}
		}
	}
}

// TestAChangeWaitsForNoReading: while the table is read, flows are counted, marked and deleted.
func TestAChangeWaitsForNoReading(t *testing.T) {
	c := open(t, tracked(t))
	before := len(flows(t, c))
	deleted := map[conntrack.Tuple]bool{}
	if err := c.Each(func(f conntrack.Flow) {
		if deleted[f.Original] {
			return
		}
		deleted[f.Original] = true
		if n, err := c.Mark([]conntrack.Change{{Flow: f, Mark: 1, Mask: 1}}); err != nil || n != 1 {
			t.Errorf("%d flows marked: %v", n, err)
		}
		if n, err := c.Forget([]conntrack.Flow{f}); err != nil || n != 1 {
			t.Errorf("%d flows deleted: %v", n, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Count(); err != nil || n != 0 || len(deleted) != before || before == 0 {
		t.Errorf("of %d flows %d were deleted, and %d are left: %v", before, len(deleted), n, err)
	}
}

func TestForgetDeletesOneFlowAndNoOther(t *testing.T) {
	c := open(t, tracked(t))
	left := flows(t, c)
	for tuple, f := range left {
		if n, err := c.Forget([]conntrack.Flow{f}); err != nil || n != 1 {
			t.Fatalf("%+v: %d flows deleted: %v", tuple, n, err)
		}
		if n, err := c.Forget([]conntrack.Flow{f}); err != nil || n != 0 {
			t.Errorf("%+v again: %d flows deleted: %v", tuple, n, err)
		}
		delete(left, tuple)
		now := flows(t, c)
		if len(now) != len(left) {
			t.Errorf("after %+v there are %d flows, want %d", tuple, len(now), len(left))
		}
		for other := range left {
			if _, is := now[other]; !is {
				t.Errorf("%+v went with %+v", other, tuple)
			}
		}
	}
}

func TestAFlowThatIsGoneIsNeitherAnErrorNorCreated(t *testing.T) {
	c := open(t, netnstest.New(t))
	a := netip.MustParseAddr("192.0.2.1")
	gone := conntrack.Flow{Original: conntrack.Tuple{Src: a, Dst: a, Proto: 6, SrcPort: 1, DstPort: 2}}
	n, err := c.Mark([]conntrack.Change{{Flow: gone, Mark: 1, Mask: 1}})
	if n != 0 || err != nil {
		t.Errorf("%d flows changed: %v", n, err)
	}
	if all := flows(t, c); len(all) != 0 {
		t.Errorf("flows now: %v", all)
	}
}

// TestAConnectionThatWasCutGoesOn: the kernel forgets the windows of a connection that is cut, since the rules go and come, and
// then sees data of one end before a keepalive of the other. See [conntrack.Change].
func TestAConnectionThatWasCutGoesOn(t *testing.T) {
	const patience = netnstest.Patience
	for _, a := range []string{"127.0.0.1", "::1"} {
		t.Run(a, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			rules := func() {
				ns.Run("nft", "add table inet t; add counter inet t keepalives; add chain inet t c { type filter hook input priority 0; };"+
					"add rule inet t c ct mark 1 tcp sport 4000 counter name keepalives; add rule inet t c ct mark 1 drop; add rule inet t c ct state invalid drop")
			}
			rules()
			c, at := open(t, ns), netip.AddrPortFrom(netip.MustParseAddr(a), 4000)
			l, err := ns.ListenTCP(at)
			if err != nil {
				t.Fatal(err)
			}
			client, err := ns.DialTCP(netip.AddrPort{}, at, time.Now().Add(patience))
			if err != nil {
				t.Fatal(err)
			}
			server, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			go func() { _, _ = io.Copy(server, server) }()
			if err := netnstest.Exchange(client, time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			err = server.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 100})
			if err != nil {
				t.Fatal(err)
			}
			mark := func(change conntrack.Change) {
				for _, change.Flow = range flows(t, c) {
					if n, err := c.Mark([]conntrack.Change{change}); n != 1 || err != nil {
						t.Fatalf("%d flows changed: %v", n, err)
					}
				}
			}
			mark(conntrack.Change{Mark: 1, Mask: 1})
			ns.Run("nft", "delete table inet t")
			rules()
			if _, err := client.Write([]byte("twill")); err != nil {
				t.Fatal(err)
			}
			until := time.Now().Add(patience)
			for sent := regexp.MustCompile(`packets ([2-9]|\d\d)`); !sent.MatchString(ns.Run("nft", "list counter inet t keepalives")); {
				if time.Now().After(until) {
					t.Fatal("the server has sent no keepalives")
				}
			}
			mark(conntrack.Change{Mask: 1, AnyWindow: true})
			if err := client.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
				t.Errorf("what the client sent while it was cut never arrived: %v", err)
			}
		})
	}
}

// TestFlowsOfAnAddressAreThoseThatItBeginsOrAnswers: with DNAT, who answers is not whom the first packet was for.
func TestFlowsOfAnAddressAreThoseThatItBeginsOrAnswers(t *testing.T) {
	ns := tracked(t)
	ns.Run("nft", "add chain inet t n { type nat hook output priority -100; }; add rule inet t n ip daddr 127.0.0.9 dnat ip to 127.0.0.3")
	for _, dst := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.9"} {
		p := netnstest.Probe{From: ns, To: ns, Proto: "icmp", Dst: netip.AddrPortFrom(netip.MustParseAddr(dst), 0)}
		if err := p.Try(netnstest.Patience); err != nil {
			t.Fatal(dst, err)
		}
	}
	c := open(t, ns)
	all := flows(t, c)
	if n, err := c.Count(); err != nil || n != len(all) {
		t.Errorf("%d flows are counted, and %d are there: %v", n, len(all), err)
	}
	for _, a := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.9", "::1", "192.0.2.1"} {
		a := netip.MustParseAddr(a)
		got, want := map[conntrack.Tuple]conntrack.Flow{}, map[conntrack.Tuple]conntrack.Flow{}
		if err := c.EachOf(map[netip.Addr]bool{a: true}, func(f conntrack.Flow) { got[f.Original] = f }); err != nil {
			t.Fatal(err)
		}
		for tuple, f := range all {
			if f.Original.Src == a || f.Reply.Src == a {
				want[tuple] = f
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("the flows of %s are %v, want %v", a, got, want)
		}
		if some := a.String() != "127.0.0.9" && a.String() != "192.0.2.1"; some != (len(want) > 0) {
			t.Errorf("%s has flows %v", a, want)
		}
	}
}

// TestFindSaysWhatBecameOfFlows: those that are gone are left out, and so is one that began the other way.
func TestFindSaysWhatBecameOfFlows(t *testing.T) {
	c := open(t, tracked(t))
	var asked []conntrack.Flow
	for _, f := range flows(t, c) {
		if n, err := c.Mark([]conntrack.Change{{Flow: f, Mark: uint32(len(asked)), Mask: 0xff}}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		asked = append(asked, conntrack.Flow{Original: f.Original}, conntrack.Flow{Original: f.Reply})
	}
	want := flows(t, c)
	found, err := c.Find(asked)
	got := map[conntrack.Tuple]conntrack.Flow{}
	for _, f := range found {
		got[f.Original] = f
	}
	if err != nil || len(found) != len(want) || !maps.Equal(got, want) {
		t.Errorf("found %v: %v, want %v", found, err, want)
	}
	if _, err := c.Forget(found[1:]); err != nil {
		t.Fatal(err)
	}
	if left, err := c.Find(asked); err != nil || len(left) != 1 || left[0] != found[0] {
		t.Errorf("of which %v are left: %v, want %v", left, err, found[0])
	}
}
