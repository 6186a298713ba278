package packet

import (
	"net/netip"
	"testing"
)

func TestAFrameReadsBackAsThePacketItWas(t *testing.T) {
	a4, b4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	for _, p := range []Packet{
		{Src: a4, Dst: b4, Proto: 6, SrcPort: 1000, DstPort: 80, Mark: 7},
		{Src: a6, Dst: b6, Proto: 17, SrcPort: 1000, DstPort: 53, Mark: 65535},
		{Src: a4, Dst: b4, Proto: 1, ICMPType: 8, Mark: 1},
		{Src: a6, Dst: b6, Proto: 58, ICMPType: 128, ICMPCode: 3, Mark: 1},
		{Src: a4, Dst: b4, Proto: 132, SrcPort: 1, DstPort: 2, Mark: 9},
	} {
		got, ok := Parse(p.Frame(MAC{}, MAC{}))
		if !ok || got != p {
			t.Errorf("Parse(Frame(%+v)) = %+v, %v", p, got, ok)
		}
	}
}

func TestChecksumsAreThoseOfTheRFCs(t *testing.T) {
	p := Packet{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 17, SrcPort: 1, DstPort: 2}
	ip := p.Frame(MAC{}, MAC{})[14:]
	if s := fold(sum(0, ip[:20])); s != 0 {
		t.Errorf("IPv4 header sums to %#x with its checksum, want 0", s)
	}
	if s := fold(sum(p.pseudo(8), ip[20:])); s != 0 {
		t.Errorf("UDP sums to %#x with its checksum, want 0", s)
	}
}

func TestParseTakesNoShortFrame(t *testing.T) {
	whole := Packet{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"), Proto: 6}.Frame(MAC{}, MAC{})
	for n := range whole {
		if _, ok := Parse(whole[:n]); ok && n < 14+40 {
			t.Errorf("a frame of %d bytes was taken", n)
		}
	}
}

func TestAnICMPErrorQuotesWhatItIsAbout(t *testing.T) {
	a4, b4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	for _, tt := range []struct{ about, in Packet }{
		{Packet{Src: a4, Dst: b4, Proto: 17, SrcPort: 1000, DstPort: 53, Mark: 7}, Packet{Src: b4, Dst: a4, Proto: 1, ICMPType: 3, ICMPCode: 13}},
		{Packet{Src: a6, Dst: b6, Proto: 6, SrcPort: 1000, DstPort: 80, Mark: 9}, Packet{Src: b6, Dst: a6, Proto: 58, ICMPType: 1, ICMPCode: 1}},
	} {
		ip := append(tt.in.Frame(MAC{}, MAC{})[14:], tt.about.Frame(MAC{}, MAC{})[14:]...)
		if got, ok := Quoted(ip); !ok || got != tt.about {
			t.Errorf("got %+v, %v; want %+v", got, ok, tt.about)
		}
		if got, ok := Quoted(tt.about.Frame(MAC{}, MAC{})[14:]); ok {
			t.Errorf("%+v quotes %+v", tt.about, got)
		}
		if got, ok := Quoted(ip[:30]); ok {
			t.Errorf("a short one quotes %+v", got)
		}
	}
}
