package checksum

import "testing"

func TestTheChecksumOfTheRFC(t *testing.T) {
	for _, tt := range []struct {
		sum  uint32
		b    []byte
		want uint16
	}{
		{0, nil, 0xffff},
		{0, []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0x220d}, // RFC 1071, section 3
		{0, []byte{0x00, 0x01, 0xf2}, 0x0dfe},                               // the last byte is the high one
		{0x1fffe, []byte{0x00, 0x01}, 0xfffe},                               // carries are added until there is none
	} {
		if got := Internet(tt.sum, tt.b); got != tt.want {
			t.Errorf("%#x and %x: %#04x, want %#04x", tt.sum, tt.b, got, tt.want)
		}
	}
}
