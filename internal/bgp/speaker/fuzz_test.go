package speaker

import (
	"net/netip"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// FuzzWhatPeersSay reads what the library makes of bytes of a peer as the speaker reads it.
func FuzzWhatPeersSay(f *testing.F) {
	for _, body := range [][]byte{
		{0, 0, 0, 25, 0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 3, 0x40, 5, 4, 0, 0, 0, 100, 0xc0, 8, 0, 26, 10, 210, 0, 0},
		{0, 0, 0, 18, 0x40, 2, 6, 2, 1, 0, 0, 253, 232, 0xc0, 8, 4, 0xfd, 0xe8, 0, 1, 0, 0},
		{0, 0, 0, 15, 0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3},
		{0, 0, 0, 29, 0x80, 14, 26, 0, 2, 1, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 32, 0x20, 1, 0xd, 0xb8},
		{0, 0, 0, 3, 0x80, 14, 0},
		{0, 0, 0, 0},
	} {
		f.Add(body)
	}
	own := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := bgp.ParseBGPBody(&bgp.BGPHeader{Len: uint16(bgp.BGP_HEADER_LENGTH + len(body)), Type: bgp.BGP_MSG_UPDATE}, body)
		if err != nil || m == nil {
			return
		}
		u := m.Body.(*bgp.BGPUpdate)
		nlris := u.NLRI
		for _, a := range u.PathAttributes {
			if reach, ok := a.(*bgp.PathAttributeMpReachNLRI); ok {
				nlris = append(nlris, reach.Value...)
			}
		}
		for _, n := range nlris {
			p := &apiutil.Path{Nlri: n.NLRI, Attrs: u.PathAttributes, Best: true, PeerAddress: netip.MustParseAddr("192.0.2.3")}
			for _, hop := range bestWay([]*apiutil.Path{p, p}).hops {
				if !hop.IsValid() {
					t.Errorf("a next hop that is none of %v", p)
				}
			}
			asPathOf(p)
			communitiesOf(p)
			if dst, ok := prefixOf(p.Nlri); ok {
				if !dst.IsValid() {
					t.Errorf("a prefix that is none of %v", p.Nlri)
				}
				martian(dst, own)
			}
		}
	})
}
