package bfd_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/bfd"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/onehop"
)

func TestACutIsNoticedInTimeAndAnEndOnPurposeIsNone(t *testing.T) {
	here, there, bridge := link(t)
	a, b := start(t, here, usual, "192.0.2.2", "2001:db8::2"), start(t, there, usual, "192.0.2.1", "2001:db8::1")
	for _, peer := range []string{"192.0.2.2", "2001:db8::2"} {
		if st := a.is(peer, "up", up); !st.Independent || time.Duration(st.Interval) != usual.Interval {
			t.Errorf("%+v", st)
		}
	}
	b.is("192.0.2.1", "up", up)
	// The last packet came at most 300 ms before the cut, unless the machine was busy just then. How long after the detection time a busy machine runs what
	// notices, nobody promises: see session_test.go.
	took := time.Duration(0)
	for tries := 0; took < 600*time.Millisecond && tries < 10; tries++ {
		a.is("192.0.2.2", "fast", func(st bfd.Status) bool { return up(st) && time.Duration(st.Detection) == 900*time.Millisecond })
		cut := time.Now()
		if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, 0); err != nil {
			t.Fatal(err)
		}
		took = a.is("192.0.2.2", "dead", dead).Since.Sub(cut)
		b.is("2001:db8::1", "dead", dead)
		if err := bridge.Rtnl().SetMaster(bridge.Link("p2").Index, bridge.Link("br0").Index); err != nil {
			t.Fatal(err)
		}
		a.is("192.0.2.2", "up", up)
		a.is("2001:db8::2", "up", up)
	}
	if took < 600*time.Millisecond {
		t.Errorf("noticed after %s", took)
	}

	a.want(calm, "192.0.2.2", "2001:db8::2")
	b.want(calm, "192.0.2.1", "2001:db8::1")
	slow := func(st bfd.Status) bool { return up(st) && time.Duration(st.Detection) >= time.Minute }
	a.is("2001:db8::2", "slow", slow)
	a.is("192.0.2.2", "slow", slow)
	losses := a.is("192.0.2.2", "up", up).Losses
	b.stop()
	for _, peer := range []string{"192.0.2.2", "2001:db8::2"} {
		if st := a.is(peer, "aside", aside); !strings.Contains(st.Why, "administratively down") {
			t.Errorf("%+v", st)
		}
	}
	c := start(t, there, calm, "192.0.2.1", "2001:db8::1")
	a.is("192.0.2.2", "up", up)
	c.want(calm, "192.0.2.1") // the other is not wanted any more
	a.is("2001:db8::2", "aside", aside)
	c.want(calm, "192.0.2.1", "2001:db8::1")
	a.is("2001:db8::2", "up", up)
	if st := a.is("192.0.2.2", "up", up); st.Losses != losses {
		t.Errorf("there were %d losses: %+v", losses, st)
	}
}

func TestAPeerIsLookedForWhereItIs(t *testing.T) {
	here, there, _ := link(t)
	here.Route("198.51.100.0/24 via 192.0.2.2")
	a := start(t, here, usual, "198.51.100.1", "203.0.113.1", "192.0.2.2")
	off := func(why string) func(bfd.Status) bool {
		return func(st bfd.Status) bool { return st.State == bfd.Off && strings.Contains(st.Why, why) }
	}
	a.is("198.51.100.1", "off", off("behind 192.0.2.2"))
	a.is("203.0.113.1", "off", off("unreachable"))
	here.Addr("eth0", "203.0.113.2/24")
	there.Addr("eth0", "203.0.113.1/24")
	a.engine.LinksChanged()
	start(t, there, usual, "203.0.113.2", "192.0.2.1")
	a.is("192.0.2.2", "up", up)
	a.is("203.0.113.1", "up", up)
}

// TestOnlyPacketsOfThePeerAreAccepted sends what could take a session down, from elsewhere, or saying what nobody of the session knows.
func TestOnlyPacketsOfThePeerAreAccepted(t *testing.T) {
	here, there, _ := link(t)
	there.Addr("eth0", "192.0.2.3/24")
	a := start(t, here, calm, "192.0.2.2")
	start(t, there, calm, "192.0.2.1")
	a.is("192.0.2.2", "up", up)
	before := a.engine.Counts() // while sessions begin, ends may forget each other
	to := netip.MustParseAddrPort("192.0.2.1:3784")
	lie := bfd.Packet{State: bfd.Down, Diag: bfd.DiagExpired, Multiplier: 3, MyDiscriminator: 9, DesiredMinTx: time.Second, RequiredMinRx: time.Second}
	send := func(n *netnstest.NS, source string, b []byte) {
		t.Helper()
		var s *onehop.Sender
		var err error
		n.Do(func() { s, err = onehop.Dial(n.Link("eth0").Index, netip.MustParseAddr(source), to) })
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Send(b); err != nil {
			t.Fatal(err)
		}
	}
	other := lie
	other.YourDiscriminator = 12345 // it is a random number
	send(there, "192.0.2.3", lie.Append(nil))
	send(there, "192.0.2.2", other.Append(nil))
	send(there, "192.0.2.2", []byte("no packet"))
	there.Do(func() { // with a TTL that says that it may come from anywhere
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.2:0")), net.UDPAddrFromAddrPort(to))
		if err == nil {
			_, err = c.Write(lie.Append(nil))
		}
		if err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(2 * time.Minute)
	for c := before; c.NoSession != before.NoSession+2 || c.Invalid != before.Invalid+1 || c.BadTTL != before.BadTTL+1; c = a.engine.Counts() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, before %+v", c, before)
		}
	}
	if st := a.is("192.0.2.2", "up", up); st.Losses > 0 {
		t.Errorf("%+v", st)
	}
	send(there, "192.0.2.2", lie.Append(nil)) // and this one is the peer's own
	a.is("192.0.2.2", "taken down", func(st bfd.Status) bool { return st.Losses == 1 })
}
