package linklocal

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"

	"github.com/twillnet/twill/internal/kernel/checksum"
)

var sample = Packet{
	Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("ff02::1:2"), HopLimit: 64, Proto: UDP, SrcPort: 546, DstPort: serverPort, Payload: []byte("odd"),
}

func TestAPacketIsReadAsItWasWritten(t *testing.T) {
	icmp := sample
	icmp.Proto, icmp.HopLimit, icmp.SrcPort, icmp.DstPort, icmp.Payload = ICMPv6, 255, 0, 0, []byte{solicitation, 0, 0, 0, 0, 0, 0, 0}
	for _, want := range []Packet{sample, icmp} {
		b := want.bytes()
		got, ok := parse(b)
		if want.Proto == ICMPv6 {
			binary.BigEndian.PutUint16(got.Payload[2:], 0) // the checksum
		}
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, ok, want)
		}
		b = want.bytes()
		if sum := checksum.Internet(uint32(len(b)-ipHeader)+uint32(want.Proto), b[8:]); sum != 0 {
			t.Errorf("of protocol %d the checksum is off by %#x", want.Proto, sum)
		}
	}
}

func TestWhatIsNoWholePacket(t *testing.T) {
	whole := sample.bytes()
	for n := range whole {
		if p, ok := parse(whole[:n]); ok {
			t.Errorf("%d bytes of it are %+v", n, p)
		}
	}
	for name, change := range map[string]func(b []byte){
		"another version":          func(b []byte) { b[0] = 4 << 4 },
		"another protocol":         func(b []byte) { b[6] = 6 },
		"no room for a UDP header": func(b []byte) { b[5] = 7 },
		"UDP longer than its IP":   func(b []byte) { b[ipHeader+5]++ },
		"UDP shorter than itself":  func(b []byte) { b[ipHeader+5] = 7 },
	} {
		b := sample.bytes()
		change(b)
		if p, ok := parse(b); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
	longer := append(whole, 0) // a short frame is filled up
	if p, ok := parse(longer); !ok || !reflect.DeepEqual(p, sample) {
		t.Errorf("%+v, %v", p, ok)
	}
}
