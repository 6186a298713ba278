package intent

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// TunnelKind is a kind of tunnel between hosts, and the family of the packets that it carries, in packets of that family. A host has one
// end of each at most.
type TunnelKind uint8

// Kinds of tunnels. The number is an index in [Tunnels].
const (
	VXLAN TunnelKind = iota
	VXLAN6
	IPIP
	WireGuard
	WireGuard6
	// TunnelKinds is how many there are.
	TunnelKinds
)

// tunnelKinds are what differs between them. Devices are named as upstream names them.
var tunnelKinds = [TunnelKinds]struct {
	name, link string
	family     Family
	peers      SetID
	overhead   int
}{
	VXLAN:      {"VXLAN", LinkVXLAN, IPv4, SetVXLANPeers, 50},
	VXLAN6:     {"VXLAN IPv6", LinkVXLAN6, IPv6, SetVXLANPeers, 70},
	IPIP:       {"IPIP", LinkIPIP, IPv4, SetIPIPPeers, 20},
	WireGuard:  {"WireGuard", LinkWireGuard, IPv4, SetWireGuardPeers, 60},
	WireGuard6: {"WireGuard IPv6", LinkWireGuard6, IPv6, SetWireGuardPeers, 80},
}

// String is the name, and the family if it is IPv6.
func (k TunnelKind) String() string { return tunnelKinds[k].name }

// Encapsulation is the name without the family.
func (k TunnelKind) Encapsulation() string { return strings.TrimSuffix(k.String(), " IPv6") }

// Link returns the name of the device; of WireGuard, if no setting says otherwise.
func (k TunnelKind) Link() string { return tunnelKinds[k].link }

// Family returns that of the packets that are carried.
func (k TunnelKind) Family() Family { return tunnelKinds[k].family }

// Peers returns the set of the addresses of hosts that may send encapsulated packets.
func (k TunnelKind) Peers() SetID { return tunnelKinds[k].peers }

// Overhead returns how many bytes encapsulation adds to a packet: the outer IP header, and of VXLAN UDP, VXLAN's header and the Ethernet header inside
// (RFC 7348), of WireGuard UDP, its header and the tag (WireGuard's paper, section 5.4.6).
func (k TunnelKind) Overhead() int { return tunnelKinds[k].overhead }

// Devices of VXLAN tunnels, of IPv4 and of IPv6, and of IPIP: the one that the kernel makes by itself; and those of WireGuard.
const (
	LinkVXLAN      = "vxlan.calico"
	LinkVXLAN6     = "vxlan-v6.calico"
	LinkIPIP       = "tunl0"
	LinkWireGuard  = "wireguard.cali"
	LinkWireGuard6 = "wg-v6.cali"
)

// What VXLAN tunnels have if no setting says otherwise: the UDP port to which encapsulated packets are sent, on all hosts (RFC 7348), and
// the network identifier, which is upstream's.
const (
	PortVXLAN = 4789
	VNI       = 4096
)

// SetVXLANPeers is the set of the addresses of hosts that may send VXLAN packets; there is one while this host has a VXLAN tunnel.
const SetVXLANPeers SetID = "vxlan-peers"

// SetIPIPPeers is that of IPIP.
const SetIPIPPeers SetID = "ipip-peers"

// SetWireGuardPeers is that of WireGuard, of which policy of host endpoints is not asked. Who may send is a matter of keys.
const SetWireGuardPeers SetID = "wireguard-peers"

// TunnelPeer is another host at the other end of a tunnel.
type TunnelPeer struct {
	Node string
	Kind TunnelKind
	Host netip.Addr // the host's own address, to which encapsulated packets go
	Addr netip.Addr // its end of the tunnel; of WireGuard, perhaps none
	MAC  string     // of that end, of VXLAN
	Key  string     // of that end, of WireGuard: 32 bytes in base64
}

// Hop returns the next hop of routes through the tunnel: of IPIP, which sends packets to their next hop, the host; else the other end.
func (p TunnelPeer) Hop() netip.Addr {
	if p.Kind == IPIP {
		return p.Host
	}
	return p.Addr
}

// Tunnel is this host's end of a tunnel. The zero value: it has none.
type Tunnel struct {
	Host netip.Addr // the host's own address, from which encapsulated packets come
	Addr netip.Addr // of the device; of WireGuard, it may have none yet
	MAC  string     // of the device, of VXLAN
}

// Tunnels are this host's ends, by kind.
type Tunnels [TunnelKinds]Tunnel

// VXLANSettings are those of all VXLAN tunnels of this host. The zero value: as no setting says otherwise.
type VXLANSettings struct {
	VNI  int    // zero: [VNI]
	Port uint16 // zero: [PortVXLAN]
}

// Checksums says who fills in those of packets that go through a device of a tunnel.
type Checksums uint8

// Values; the zero value: the device if the kernel does that right (since Linux 5.7), and else the kernel before it.
const (
	ChecksumsByKernel Checksums = iota + 1
	ChecksumsByDevice
)

// WireGuardSettings are those of all WireGuard tunnels of this host; what is of a family is of IPv4 and of IPv6.
type WireGuardSettings struct {
	// On: what RouteEncrypted routes lead to goes through the tunnel or nowhere, also while this host has none.
	On        [2]bool
	Link      [2]string // names of the devices
	Port      [2]uint16 // of UDP, on all hosts
	Priority  int       // of the rule that leads packets to the tunnel
	KeepAlive time.Duration
	Userspace bool // where the kernel has no WireGuard, a process has the tunnel
	Threads   bool // threads take what the kernel's devices receive

	// Hosts: what is for the own addresses of hosts with a peer goes through the tunnel, too, but for InClear. Only while this host's key is published.
	Hosts   [2]bool
	InClear []Failsafe   // what this host sends to such ports, or from such ports, to other hosts' own addresses, is not encrypted; Net is of the other end
	Tables  []TableRange // of numbers that tables of routes may have
}

// TableRange is a range of numbers of tables of routes.
type TableRange struct{ Min, Max int }

// Equal reports whether two settings are the same.
func (w WireGuardSettings) Equal(o WireGuardSettings) bool {
	return w.On == o.On && w.Link == o.Link && w.Port == o.Port && w.Priority == o.Priority && w.KeepAlive == o.KeepAlive && w.Userspace == o.Userspace && w.Threads == o.Threads &&
		w.Hosts == o.Hosts && slices.Equal(w.InClear, o.InClear) && slices.Equal(w.Tables, o.Tables)
}
