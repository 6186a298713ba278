package speaker_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
	"github.com/twillnet/twill/internal/kernel"
)

// hostile is a host with a well-behaved BIRD at 192.0.2.2, and as many peers as are needed that say what they want.
type hostile struct {
	*host
	bird, stranger *bird
	since          time.Time // of the session with BIRD
}

func hostileNetwork(t *testing.T, peers int) *hostile {
	h, birds := network(t, 2)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	well := session("192.0.2.2", 64512)
	well.Keepalive, well.Hold = 30*time.Second, 90*time.Second // a busy machine must not end what these tests see as undisturbed
	sessions := []plan.Session{well}
	addrs := make([]string, peers)
	for i := range addrs {
		addrs[i] = hostileAddr(i)
		s := session(addrs[i], 64512)
		s.Passive = true
		sessions = append(sessions, s)
		birds[1].Addr("eth0", addrs[i]+"/24")
	}
	h.start(planOf(sessions...))
	h.active(addrs...)
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	return &hostile{h, birds[0], birds[1], h.session("192.0.2.2").Since}
}

func hostileAddr(i int) string { return fmt.Sprintf("192.0.2.%d", 100+i) }

// each peer has two routes of its own.
func hostileDsts(i int) (netip.Prefix, netip.Prefix) {
	return prefix(fmt.Sprintf("10.210.%d.0/26", i)), prefix(fmt.Sprintf("10.211.%d.0/26", i))
}

// call establishes a session as a hostile peer, which tells two good routes.
func (h *hostile) call(t *testing.T, i int) *raw {
	t.Helper()
	r := h.connect(t, i)
	a, b := hostileDsts(i)
	good := update(nil, join(origin, asPath, nextHopOf(hostileAddr(i)), localPref), wire(a, b))
	if _, err := r.Write(join(good, endOfRIB)); err != nil {
		t.Fatal(err)
	}
	for _, dst := range []netip.Prefix{a, b} {
		h.wantRoute(fmt.Sprintf("%s via %s proto 186", dst, hostileAddr(i)))
	}
	return r
}

// connect establishes a session as a hostile peer, which tells nothing yet.
func (h *hostile) connect(t *testing.T, i int) *raw {
	t.Helper()
	r, err := callRaw(h.stranger.NS, hostileAddr(i), "192.0.2.1")
	if err == nil {
		err = r.establish(64512)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// others asserts that nobody else noticed anything.
func (h *hostile) others(t *testing.T) {
	t.Helper()
	if s := h.session("192.0.2.2"); s.State != speaker.Established || !s.Since.Equal(h.since) {
		t.Errorf("the session with BIRD: %+v, want up since %s", s, h.since)
	}
	if err := h.routeIs("10.204.0.0/26 via 192.0.2.2 proto 186", true); err != nil {
		t.Error(err)
	}
}

// down waits until a session is not up, and says why.
func (h *hostile) down(i int, why string) {
	h.t.Helper()
	await(h.t, patience, func() error {
		if s := h.session(hostileAddr(i)); s.State == speaker.Established || s.Why == "" || !strings.Contains(s.Why, why) {
			return fmt.Errorf("%+v, want why %q", s, why)
		}
		return nil
	})
}

// What becomes of a session and a route after a message that is wrong.
const (
	stays     = "stays"     // what is wrong is passed over
	withdrawn = "withdrawn" // the routes of the message go, the session stays (RFC 7606)
	reset     = "reset"     // the session ends with a notification
)

// malformed are updates of a peer about its first route, and what is to become of it.
func malformed(i int) []struct {
	name, want string
	message    []byte
} {
	first, _ := hostileDsts(i)
	dst, hop := wire(first), nextHopOf(hostileAddr(i))
	good := join(origin, asPath, hop, localPref)
	return []struct {
		name, want string
		message    []byte
	}{
		{"origin 7", withdrawn, update(nil, join(attribute(0x40, 1, 7), asPath, hop, localPref), dst)},
		{"origin of two bytes", withdrawn, update(nil, join(attribute(0x40, 1, 0, 0), asPath, hop, localPref), dst)},
		{"origin with the flags of another", withdrawn, update(nil, join(attribute(0xc0, 1, 0), asPath, hop, localPref), dst)},
		{"no origin", withdrawn, update(nil, join(asPath, hop, localPref), dst)},
		{"no path", withdrawn, update(nil, join(origin, hop, localPref), dst)},
		{"no next hop", withdrawn, update(nil, join(origin, asPath, localPref), dst)},
		{"a segment of an unknown type in the path", withdrawn, update(nil, join(origin, attribute(0x40, 2, 9, 1, 0, 0, 253, 232), hop, localPref), dst)},
		{"a segment that is longer than the path", withdrawn, update(nil, join(origin, attribute(0x40, 2, 2, 9, 0, 0, 253, 232), hop, localPref), dst)},
		{"a next hop of three bytes", withdrawn, update(nil, join(origin, asPath, attribute(0x40, 3, 192, 0, 2), localPref), dst)},
		{"a metric of three bytes", withdrawn, update(nil, join(good, attribute(0x80, 4, 0, 0, 1)), dst)},
		{"a preference of three bytes", withdrawn, update(nil, join(origin, asPath, hop, attribute(0x40, 5, 0, 0, 1)), dst)},
		{"an atomic aggregate that says something", stays, update(nil, join(good, attribute(0x40, 6, 1)), dst)},
		{"an aggregator of three bytes", stays, update(nil, join(good, attribute(0xc0, 7, 1, 2, 3)), dst)},
		{"communities of three bytes", withdrawn, update(nil, join(good, attribute(0xc0, 8, 1, 2, 3)), dst)},
		{"an originator of three bytes", withdrawn, update(nil, join(good, attribute(0x80, 9, 1, 2, 3)), dst)},
		{"a cluster list of three bytes", withdrawn, update(nil, join(good, attribute(0x80, 10, 1, 2, 3)), dst)},
		{"large communities of eleven bytes", withdrawn, update(nil, join(good, attribute(0xc0, 32, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0)), dst)},
		{"two origins", stays, update(nil, join(good, attribute(0x40, 1, 1)), dst)},
		{"an attribute that nobody knows, optional", stays, update(nil, join(good, attribute(0xc0, 99, 1, 2, 3)), dst)},
		{"an attribute of no length that nobody knows", stays, update(nil, join(good, attribute(0x80, 98)), dst)},
		{"a path of 255 numbers", stays, update(nil, join(origin, attribute(0x40, 2, long(255)...), hop, localPref), dst)},
		{"bits beyond the length of a prefix", stays, update(nil, good, []byte{26, 10, 210, byte(i), 63})},
		// By RFC 4271 it should be advertised; the library withdraws it, which is the safe choice.
		{"the same route, withdrawn and advertised", withdrawn, update(dst, good, dst)},
		{"a withdrawal of what was never advertised", stays, update(wire(prefix("10.222.0.0/26")), nil, nil)},
		{"an attribute that nobody knows, well-known", reset, update(nil, join(good, attribute(0x40, 99, 1)), dst)},
		{"attributes that are longer than the message", reset, message(msgUpdate, []byte{0, 0, 0xff, 0xff, 1})},
		{"withdrawals that are longer than the message", reset, message(msgUpdate, []byte{0xff, 0xff, 0, 0})},
		// RFC 7606 would have the route withdrawn; the library does not read so far, and knows the route as it was before.
		{"an attribute that is longer than the attributes", stays, update(nil, join(good, []byte{0xc0, 8, 200, 1}), dst)},
		{"a prefix of 33 bits", reset, update(nil, good, []byte{33, 10, 210, 0, 0, 0})},
		{"half a prefix", reset, update(nil, good, dst[:3])},
		{"a withdrawal of 200 bits", reset, update([]byte{200, 10}, nil, nil)},
		{"half an IPv6 route in an IPv4 session", reset, update(nil, join(origin, asPath, localPref, attribute(0x80, 14, 0, 2, 1, 16, 1, 2, 3)), nil)},
		{"an update of one byte", reset, message(msgUpdate, []byte{0})},
	}
}

func TestAMalformedUpdateHarmsNobodyElse(t *testing.T) {
	n := len(malformed(0))
	h := hostileNetwork(t, n)
	sent := make([]*raw, n)
	for i := range n {
		sent[i] = h.call(t, i)
		_, second := hostileDsts(i)
		// What comes after shows that the message was read. A session that was reset does not read it.
		if _, err := sent[i].Write(join(malformed(i)[i].message, update(wire(second), nil, nil))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		first, second := hostileDsts(i)
		via := " via " + hostileAddr(i)
		tt := malformed(i)[i]
		t.Run(tt.name, func(t *testing.T) {
			h := &hostile{&host{NS: h.NS, t: t, cmd: h.cmd, in: h.in, out: h.out}, h.bird, h.stranger, h.since}
			h.wantNoRoute(second.String() + via)
			if tt.want == reset {
				h.down(i, "closed by this speaker: what it sent is wrong: update: ")
				if notification, err := sent[i].ended(patience); err != nil || len(notification) == 0 {
					t.Errorf("the peer received %v, %v", notification, err)
				}
			} else if s := h.session(hostileAddr(i)); s.State != speaker.Established {
				t.Errorf("the session is %+v", s)
			}
			if tt.want == stays {
				h.wantRoute(first.String() + via)
			} else {
				h.wantNoRoute(first.String() + via)
			}
		})
	}
	h.others(t)
}

// long is a path with many numbers.
func long(n int) []byte {
	out := []byte{2, byte(n)}
	for range n {
		out = append(out, 0, 0, 253, 232)
	}
	return out
}

func TestAMessageThatIsNoneEndsItsSessionAlone(t *testing.T) {
	wrong := func(i int, b byte) []byte {
		m := message(msgKeepalive, nil)
		m[i] = b
		return m
	}
	tests := []struct {
		name         string
		message      []byte
		notification []byte // code and subcode
	}{
		{"a wrong marker", wrong(3, 0), []byte{1, 1}},
		{"shorter than a header", wrong(17, 18), []byte{1, 2}},
		{"longer than any", wrong(16, 0xff), []byte{1, 2}},
		{"of an unknown kind", wrong(18, 9), []byte{1, 3}},
		{"something else altogether", []byte(strings.Repeat("GET / HTTP/1.1\r\n", 10)), []byte{1, 1}},
		{"half a message, and the end", message(msgUpdate, make([]byte, 50))[:30], nil},
	}
	h := hostileNetwork(t, len(tests))
	for i, tt := range tests {
		r := h.call(t, i)
		if _, err := r.Write(tt.message); err != nil {
			t.Fatal(err)
		}
		if tt.notification == nil {
			_ = r.Close()
			h.down(i, "restarts; its routes are kept") // it did not say that it goes
			continue
		}
		notification, err := r.ended(patience)
		if err != nil || len(notification) < 2 || !slices.Equal(notification[:len(tt.notification)], tt.notification) {
			t.Errorf("%s: the peer received %v, %v; want %v", tt.name, notification, err, tt.notification)
		}
		h.down(i, "closed by this speaker: what it sent is wrong: header: ")
		first, _ := hostileDsts(i)
		h.wantNoRoute(first.String())
	}
	h.others(t)
}

func TestAnOpenThatIsWrongOpensNothing(t *testing.T) {
	change := func(i int, bs ...byte) []byte {
		m := openFrom("192.0.2.99", 64512)
		copy(m[headerLength+i:], bs)
		return m
	}
	tests := []struct {
		name         string
		message      []byte
		notification []byte // nil: it is taken
		why          string
	}{
		{"version 3", change(0, 3), []byte{2, 1}, "its OPEN message is not acceptable"},
		{"another AS", openFrom("192.0.2.99", 65099), []byte{2, 2}, "another AS number"},
		{"another AS of four bytes", openFrom("192.0.2.99", 4_200_000_000), []byte{2, 2}, "another AS number"},
		{"a hold time of one second", change(3, 0, 1), []byte{2, 6}, "its OPEN message is not acceptable"},
		{"no router id", change(5, 0, 0, 0, 0), []byte{2, 3}, "its OPEN message is not acceptable"},
		{"our router id", change(5, 192, 0, 2, 1), []byte{2, 3}, "its OPEN message is not acceptable"},
		{"options that are longer than the message", change(9, 200), []byte{1, 2}, "its OPEN message is not acceptable"},
		{"a capability that is longer than the option", openFrom("192.0.2.99", 64512, 1, 200, 0), []byte{2}, "its OPEN message is not acceptable"},
		{"a keepalive first", message(msgKeepalive, nil), []byte{5}, "its OPEN message is not acceptable"},
		{"an update first", update(nil, join(origin, asPath, nextHopOf("192.0.2.99"), localPref), wire(prefix("10.210.0.0/26"))), []byte{5}, "its OPEN message is not acceptable"},
		{"capabilities that nobody knows", openFrom("192.0.2.99", 64512, 1, 4, 0, 1, 0, 1, 200, 3, 1, 2, 3, 99, 0), nil, ""},
	}
	h := hostileNetwork(t, len(tests))
	for i, tt := range tests {
		r, err := callRaw(h.stranger.NS, hostileAddr(i), "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Write(tt.message); err != nil {
			t.Fatal(err)
		}
		if tt.notification == nil {
			if kind, body, err := r.next(patience); err != nil || kind != msgOpen {
				t.Errorf("%s: the peer received %d %v, %v", tt.name, kind, body, err)
			}
			if _, err := r.Write(message(msgKeepalive, nil)); err != nil {
				t.Fatal(err)
			}
			h.up(hostileAddr(i))
			continue
		}
		notification, err := r.ended(patience)
		if err != nil || !slices.Equal(notification[:min(len(notification), len(tt.notification))], tt.notification) {
			t.Errorf("%s: the peer received %v, %v; want %v", tt.name, notification, err, tt.notification)
		}
		h.down(i, tt.why)
	}
	h.others(t)
}

func TestAFloodOfConnectionsKeepsNobodyOut(t *testing.T) {
	h := hostileNetwork(t, 1)
	h.stranger.Addr("eth0", "192.0.2.66/24")
	var opened atomic.Int64
	stop := make(chan struct{})
	var ended sync.WaitGroup
	for _, from := range []string{"192.0.2.66", "192.0.2.66", hostileAddr(0)} { // strangers, and a peer that never gets to the point
		ended.Go(func() { h.stranger.Do(func() { flood(from, &opened, stop) }) })
	}
	announced := 0
	for ; announced < 20 || opened.Load() < 5000; announced++ {
		dst := fmt.Sprintf("10.65.%d.%d/32", announced/200, announced%200)
		h.agent(dst)
		h.bird.wants(dst)
	}
	close(stop)
	ended.Wait()
	t.Logf("%d connections, and %d routes advertised meanwhile", opened.Load(), announced)
	h.others(t)
	await(t, patience, func() error { // and the one who should come gets in
		r, err := callRaw(h.stranger.NS, hostileAddr(0), "192.0.2.1")
		if err == nil {
			err = r.establish(64512)
		}
		return err
	})
	h.up(hostileAddr(0))
}

// flood opens one connection after the other, with the wrong AS number in its OPEN.
func flood(from string, opened *atomic.Int64, stop <-chan struct{}) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Second}
	for {
		select {
		case <-stop:
			return
		default:
		}
		c, err := d.Dial("tcp", "192.0.2.1:179")
		if err != nil {
			continue
		}
		opened.Add(1)
		_, _ = c.Write(openFrom(from, 65099))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

func TestABIRDOfAnotherASIsNotLetIn(t *testing.T) {
	h, birds := network(t, 2)
	birds[0].run(statics + speaks("twill", "local as 64512; direct;", "", ""))
	birds[1].run(statics + speaks("twill", "local as 65099; multihop;", "", ""))
	h.start(planOf(session("192.0.2.2", 64512), session("192.0.2.3", 64512)))
	h.wantRoute("10.204.0.0/26 via 192.0.2.2 proto 186")
	await(t, patience, func() error {
		if s := h.session("192.0.2.3"); s.State == speaker.Established || !strings.Contains(s.Why, "another AS number than it should") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	h.up("192.0.2.2")
}

func TestARouteThatFlapsManyTimesCostsTheKernelFew(t *testing.T) {
	const flaps = 100_000
	h := hostileNetwork(t, 1)
	r := h.call(t, 0)
	gone := withdrawals(t, h.Rtnl(), kernel.RouteProtocolSpeaker)
	dst := prefix("10.220.0.0/26")
	tell := update(nil, join(origin, asPath, nextHopOf(hostileAddr(0)), localPref), wire(dst))
	both := join(update(wire(dst), nil, nil), tell)
	ended := make(chan error)
	began := time.Now()
	go func() {
		many := slices.Repeat(both, 100)
		for range flaps / 100 {
			if _, err := r.Write(many); err != nil {
				ended <- err
				return
			}
		}
		_, second := hostileDsts(0)
		_, err := r.Write(update(wire(second), nil, nil)) // behind all of it
		ended <- err
	}()
	for i := range 5 {
		h.bird.configure("route 10.204.0.0/26 blackhole;", fmt.Sprintf("route 10.204.0.0/26 blackhole; route 10.205.%d.0/26 blackhole;", i))
		h.wantRoute(fmt.Sprintf("10.205.%d.0/26 via 192.0.2.2 proto 186", i)) // the others live on
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	_, second := hostileDsts(0)
	h.wantNoRoute(second.String())
	h.wantRoute("10.220.0.0/26 via " + hostileAddr(0) + " proto 186")
	n := len(gone())
	t.Logf("%d flaps in %s; the kernel saw %d", flaps, time.Since(began), n)
	// One withdrawal for each turn of the speaker's loop, and a turn takes in all that has come: how many turns there are is
	// the scheduler's choice, so the bound is one that only a speaker which follows each flap passes.
	if n > flaps/10 {
		t.Errorf("%d flaps made %d withdrawals in the kernel", flaps, n)
	}
	h.others(t)
}

func TestNextHopsThatLeadNowhere(t *testing.T) {
	h := hostileNetwork(t, 1)
	r := h.call(t, 0)
	hops := []string{"192.0.2.1", "127.0.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "169.254.9.9", "203.0.113.1"}
	for i, hop := range hops {
		if _, err := r.Write(update(nil, join(origin, asPath, nextHopOf(hop), localPref), wire(prefix(fmt.Sprintf("10.230.%d.0/26", i))))); err != nil {
			t.Fatal(err)
		}
	}
	_, second := hostileDsts(0)
	if _, err := r.Write(update(wire(second), nil, nil)); err != nil {
		t.Fatal(err)
	}
	h.wantNoRoute(second.String())
	for i, hop := range hops {
		dst := prefix(fmt.Sprintf("10.230.%d.0/26", i))
		if err := h.routeIs(dst.String(), false); err != nil {
			t.Errorf("by way of %s: %v", hop, err)
		}
		for _, p := range h.ask(request{Explain: dst}).Explain.Paths {
			if p.Best && (p.Kernel == "installed" || p.Kernel == "") {
				t.Errorf("by way of %s: %+v", hop, p)
			}
			t.Logf("%s: %s", hop, p.Kernel)
		}
	}
	h.others(t)
}
