package calc

import (
	"crypto/sha1" //nolint:gosec // it makes the hardware addresses that upstream's agents have; nothing secret
	"encoding/base64"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/calc/route"
	"github.com/twillnet/twill/internal/intent"
)

// reachedBy is what routes need of a Node: its own addresses, and its ends of tunnels. What cannot be read is absent.
func reachedBy(name string, r *api.Node) route.Node {
	var n route.Node
	if b := r.Spec.BGP; b != nil {
		if a, err := netip.ParseAddr(b.IPv4IPIPTunnelAddr); err == nil && a.Is4() {
			n.Ends[intent.IPIP] = route.End{Addr: a}
		}
	}
	s := r.Spec
	w := s.Wireguard
	if w == nil {
		w = &api.NodeWireguardSpec{}
	}
	for f, texts := range [2][2]string{{w.InterfaceIPv4Address, r.Status.WireguardPublicKey}, {w.InterfaceIPv6Address, r.Status.WireguardPublicKeyV6}} {
		a, err := netip.ParseAddr(texts[0])
		if err != nil || a.Is4() != (f == 0) {
			a = netip.Addr{}
		}
		n.Ends[[2]intent.TunnelKind{intent.WireGuard, intent.WireGuard6}[f]] = route.End{Addr: a, Key: publicKey(texts[1])}
	}
	for f, texts := range [2][2]string{{s.IPv4VXLANTunnelAddr, s.VXLANTunnelMACAddr}, {s.IPv6VXLANTunnelAddr, s.VXLANTunnelMACAddrV6}} {
		n.Net[f] = r.AddressOf(f == 1)
		if a, err := netip.ParseAddr(texts[0]); err == nil && a.Is4() == (f == 0) {
			n.Ends[[2]intent.TunnelKind{intent.VXLAN, intent.VXLAN6}[f]] = route.End{Addr: a, MAC: tunnelMAC(name, f, texts[1])}
		}
	}
	return n
}

// publicKey is a key in the one form that it has; empty: it is none.
func publicKey(stored string) string {
	b, err := base64.StdEncoding.DecodeString(stored)
	if err != nil || len(b) != 32 || slices.Max(b) == 0 {
		return ""
	}
	return base64.StdEncoding.EncodeToString(b)
}

// tunnelMAC is the hardware address of a node's end of a tunnel: what its Node says, else what all nodes work out of its name, as
// upstream's do.
func tunnelMAC(name string, f int, stored string) string {
	if stored = strings.ToLower(stored); hardware.MatchString(stored) {
		return stored
	}
	sum := sha1.Sum([]byte(name + [2]string{"", "-v6"}[f])) //nolint:gosec // see above
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", 'f', sum[0], sum[1], sum[2], sum[3], sum[4])
}

var hardware = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
