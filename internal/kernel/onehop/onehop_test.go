package onehop_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/onehop"
)

const port = 3784

// receive waits for the next datagram.
func receive(t *testing.T, r *onehop.Receiver, within time.Duration) (string, onehop.From) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); {
		if err := r.Wait(time.Until(end)); err != nil {
			t.Fatal(err)
		}
		if b, from, ok := r.Receive(); ok {
			return string(b), from
		}
	}
	return "", onehop.From{}
}

func TestOnlyPacketsOfNeighboursAreReceived(t *testing.T) {
	for _, onlyFour := range []bool{false, true} {
		a, b := netnstest.New(t), netnstest.New(t)
		a.VethTo(b, "eth0", "eth0")
		addrs := map[string]string{"192.0.2.1": "192.0.2.2", "2001:db8::1": "2001:db8::2"}
		a.Addr("eth0", "192.0.2.1/24", "2001:db8::1/64")
		b.Addr("eth0", "192.0.2.2/24", "2001:db8::2/64")
		var r *onehop.Receiver
		var err error
		b.Do(func() { r, err = onehop.ListenFamily(port, onlyFour) })
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for source, to := range addrs {
			from, dst := netip.MustParseAddr(source), netip.AddrPortFrom(netip.MustParseAddr(to), port)
			if onlyFour && from.Is6() {
				continue
			}
			for _, given := range []netip.Addr{from, {}} { // given, and left to the kernel
				var s *onehop.Sender
				a.Do(func() { s, err = onehop.Dial(a.Link("eth0").Index, given, dst) })
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				text, got := receive(t, r, netnstest.Patience)
				if want := (onehop.From{Addr: from, Link: b.Link("eth0").Index}); text != "hello" || got != want {
					t.Errorf("%s: %q from %+v, want %+v", source, text, got, want)
				}
				_ = s.Close()
			}
			a.Do(func() { // with the TTL that everybody has
				c, err := net.Dial("udp", dst.String())
				if err == nil {
					_, err = c.Write([]byte("far"))
				}
				if err != nil {
					t.Error(err)
				}
			})
			badTTL := r.BadTTL() // which receive counts
			for end := time.Now().Add(netnstest.Patience); r.BadTTL() == badTTL && time.Now().Before(end); {
				if text, _ := receive(t, r, netnstest.Silence); text != "" {
					t.Errorf("%q from far away was heard", text)
				}
			}
			if n := r.BadTTL() - badTTL; n != 1 {
				t.Errorf("%d from far away were counted, want 1", n)
			}
		}
	}
}

func TestWakeEndsAWait(t *testing.T) {
	n := netnstest.New(t)
	var r *onehop.Receiver
	var err error
	n.Do(func() { r, err = onehop.Listen(port) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	began := time.Now()
	go r.Wake()
	if err := r.Wait(4 * time.Minute); err != nil || time.Since(began) > 2*time.Minute {
		t.Errorf("waited %s, %v", time.Since(began), err)
	}
	began = time.Now()
	r.Pause(4 * time.Minute) // it is woken, too
	if time.Since(began) > 2*time.Minute {
		t.Errorf("rested %s", time.Since(began))
	}
	began = time.Now()
	r.Pause(50 * time.Millisecond) // but once
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("rested %s", took)
	}
	n.Do(func() { _, err = onehop.Listen(port) })
	if err == nil {
		t.Error("two listen at one port")
	}
}
