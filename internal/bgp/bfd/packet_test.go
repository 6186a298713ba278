package bfd

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestPacketsAreThoseOfTheRFC(t *testing.T) {
	p := Packet{
		State: Up, Diag: DiagNeighbour, Poll: true, ControlPlaneIndependent: true, Multiplier: 3, MyDiscriminator: 0x01020304, YourDiscriminator: 0x05060708,
		DesiredMinTx: 300 * ms, RequiredMinRx: time.Second,
	}
	want := "23e80318" + "01020304" + "05060708" + "000493e0" + "000f4240" + "00000000"
	b := p.Append(nil)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, err := Parse(append(b, 1, 2, 3)); got != p || err != nil { // what follows is not the packet's
		t.Errorf("%+v, %v", got, err)
	}
	p.Poll, p.Final = false, true
	if got, err := Parse(p.Append(nil)); got != p || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatIsNoPacketIsDiscarded(t *testing.T) {
	good := Packet{State: Down, Multiplier: 3, MyDiscriminator: 1, DesiredMinTx: time.Second}.Append(nil)
	for _, tt := range []struct {
		name string
		at   int
		is   byte
		cut  int
	}{
		{name: "short", cut: 23},
		{name: "nothing at all", cut: 0},
		{name: "longer than the datagram", at: 3, is: 25, cut: 24},
		{name: "shorter than a packet", at: 3, is: 23, cut: 24},
		{name: "version 0", at: 0, is: 0, cut: 24},
		{name: "version 2", at: 0, is: 2 << 5, cut: 24},
		{name: "authenticated", at: 1, is: byte(Down)<<6 | flagAuthentication, cut: 24},
		{name: "multipoint", at: 1, is: byte(Down)<<6 | flagMultipoint, cut: 24},
		{name: "poll and final", at: 1, is: byte(Down)<<6 | flagPoll | flagFinal, cut: 24},
		{name: "multiplier 0", at: 2, is: 0, cut: 24},
		{name: "no discriminator", at: 7, is: 0, cut: 24},
		{name: "up without our discriminator", at: 1, is: byte(Up) << 6, cut: 24},
		{name: "init without our discriminator", at: 1, is: byte(Init) << 6, cut: 24},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := bytes.Clone(good)
			if tt.at > 0 || tt.cut == packetSize {
				b[tt.at] = tt.is
			}
			if p, err := Parse(b[:tt.cut]); err == nil {
				t.Errorf("taken for %+v", p)
			}
		})
	}
	if _, err := Parse(good); err != nil {
		t.Error(err)
	}
}

// FuzzPackets wants of any bytes that they crash nothing, and of what is taken that it is what it says, and that no
// session answers more than once.
func FuzzPackets(f *testing.F) {
	f.Add(Packet{State: Up, Multiplier: 3, MyDiscriminator: 1, YourDiscriminator: 2, DesiredMinTx: time.Second, RequiredMinRx: time.Second, Poll: true}.Append(nil), uint8(3))
	f.Add(Packet{State: AdminDown, Multiplier: 255, MyDiscriminator: 1, DesiredMinTx: 4294 * time.Second}.Append(nil), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, state uint8) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := Parse(p.Append(nil)); err != nil || again != p {
			t.Fatalf("%+v, %v; want %+v", again, err, p)
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := newSession(7, Timing{300 * ms, 3}, now, func() float64 { return 0.5 })
		s.state = State(state % 4)
		for range 3 {
			s.receive(p, now)
			sent := 0
			for end := now.Add(20 * ms); !s.next().IsZero() && s.next().Before(end); {
				if now = s.next(); now.IsZero() {
					break
				}
				if _, sends := s.tick(now); sends {
					sent++
				}
			}
			if sent > 2 {
				t.Fatalf("%d packets in 20 ms after %+v", sent, p)
			}
			now = now.Add(20 * ms)
		}
	})
}
