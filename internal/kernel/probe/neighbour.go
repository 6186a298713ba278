package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/checksum"
)

const (
	tries = 3 // as RFC 5227 has it

	arpRequest         = 1
	solicit, advertise = 135, 136
	ethernet           = 14
)

// Link is the link to probe on.
type Link struct {
	Index int
	MAC   string // ours
}

// Holder probes on a link whether another host has an address: with an ARP probe (RFC 5227), or a neighbour solicitation as of
// duplicate address detection (RFC 4862). Neither claims the address, so no neighbour table changes. It returns the MAC of
// the host that replies, or nil.
func Holder(l Link, addr netip.Addr, within time.Duration) (string, error) {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil || len(mac) != 6 {
		return "", fmt.Errorf("ask for %s: the link has no Ethernet address", addr)
	}
	proto, frame, read := unix.ETH_P_IPV6, solicitation(mac, addr), advertiser
	if addr.Is4() {
		proto, frame, read = unix.ETH_P_ARP, arpProbe(mac, addr), arpSender
	}
	fd, err := openLink(l.Index, proto)
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", addr, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 2048)
	for range tries {
		deadline := time.Now().Add(within / tries)
		if err := unix.Send(fd, frame, 0); err != nil {
			return "", fmt.Errorf("ask for %s: %w", addr, os.NewSyscallError("send", err))
		}
		for {
			n, err := receive(fd, buf, deadline)
			if errors.Is(err, ErrNoReply) {
				break
			}
			if err != nil {
				return "", fmt.Errorf("ask for %s: %w", addr, err)
			}
			if at, from := read(buf[:n]); at == addr && !bytes.Equal(from, mac) {
				return from.String(), nil
			}
		}
	}
	return "", nil
}

// Announce says to all on a link that an address is at that link: by an ARP announcement (RFC 5227), or an unsolicited neighbour advertisement (RFC 4861),
// which comes from an address of the link. Nobody answers; those who know another link-layer address for it take this one.
func Announce(l Link, addr, from netip.Addr) error {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("announce %s: the link has no Ethernet address", addr)
	}
	proto, frame := unix.ETH_P_IPV6, advertisement(mac, addr, from)
	if addr.Is4() {
		proto, frame = unix.ETH_P_ARP, arpProbe(mac, addr)
		copy(frame[ethernet+14:], addr.AsSlice()) // the sender has it
	}
	fd, err := openLink(l.Index, proto)
	if err != nil {
		return fmt.Errorf("announce %s: %w", addr, err)
	}
	defer unix.Close(fd)
	if err := unix.Send(fd, frame, 0); err != nil {
		return fmt.Errorf("announce %s: %w", addr, os.NewSyscallError("send", err))
	}
	return nil
}

// advertisement is a neighbour advertisement to all nodes that overrides what they know.
func advertisement(mac net.HardwareAddr, addr, from netip.Addr) []byte {
	const override = 0x20
	all := [16]byte{0: 0xff, 1: 0x02, 15: 1}
	a, src := addr.As16(), from.As16()
	icmp := append([]byte{advertise, 0, 0, 0, override, 0, 0, 0}, a[:]...)
	icmp = append(append(icmp, 2, 1), mac...) // option: target link-layer address, in units of 8 bytes
	pseudo := append(append(make([]byte, 0, 72), src[:]...), all[:]...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(icmp)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(icmp[2:], checksum.Internet(0, append(pseudo, icmp...)))
	b := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	b = append(append(b, src[:]...), all[:]...)
	return append(b, icmp...)
}

func openLink(index, proto int) (int, error) {
	net16 := int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(proto)))) // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, net16)
	if err != nil {
		return 0, os.NewSyscallError("packet socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: uint16(net16)}); err != nil {
		unix.Close(fd)
		return 0, os.NewSyscallError("bind", err)
	}
	return fd, nil
}

// arpProbe is a request with an unspecified sender address.
func arpProbe(mac net.HardwareAddr, addr netip.Addr) []byte {
	b := append(bytes.Repeat([]byte{0xff}, 6), mac...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_ARP)
	b = append(b, 0, 1, 0x08, 0, 6, 4, 0, arpRequest)
	b = append(append(b, mac...), 0, 0, 0, 0)
	return append(append(b, make([]byte, 6)...), addr.AsSlice()...)
}

// arpSender returns the MAC that an ARP message announces for an address.
func arpSender(b []byte) (netip.Addr, net.HardwareAddr) {
	if len(b) < ethernet+28 {
		return netip.Addr{}, nil
	}
	b = b[ethernet:]
	at, _ := netip.AddrFromSlice(b[14:18])
	return at, net.HardwareAddr(b[8:14])
}

// solicitation is a neighbour solicitation from the unspecified address.
func solicitation(mac net.HardwareAddr, addr netip.Addr) []byte {
	a := addr.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}
	icmp := append([]byte{solicit, 0, 0, 0, 0, 0, 0, 0}, a[:]...)
	pseudo := append(make([]byte, 16), group[:]...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(icmp)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(icmp[2:], checksum.Internet(0, append(pseudo, icmp...)))
	b := append([]byte{0x33, 0x33, 0xff, a[13], a[14], a[15]}, mac...)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IPV6)
	b = append(b, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	b = append(append(b, make([]byte, 16)...), group[:]...)
	return append(b, icmp...)
}

// advertiser returns the MAC that a neighbour advertisement announces for an address.
func advertiser(b []byte) (netip.Addr, net.HardwareAddr) {
	const icmp = ethernet + ip6Header
	if len(b) < icmp+24 || b[ethernet+6] != unix.IPPROTO_ICMPV6 || b[icmp] != advertise {
		return netip.Addr{}, nil
	}
	at, _ := netip.AddrFromSlice(b[icmp+8 : icmp+24])
	return at, net.HardwareAddr(b[6:12])
}
