// Package checksum computes the checksum of IP, UDP and ICMP (RFC 1071).
package checksum

import "encoding/binary"

// Internet is the checksum of bytes, in host order. Sum is what is added to them: that of a pseudo-header, or 0.
func Internet(sum uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
