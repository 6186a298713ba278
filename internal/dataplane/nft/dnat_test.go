package nft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestPolicyBeforeDNATSeesWhereAPacketWasSent: somebody's rule sends port 8080 of the host on to port 80 of a workload. What is asked
// before it sees the first, and what is asked of forwarded packets the second.
func TestPolicyBeforeDNATSeesWhereAPacketWasSent(t *testing.T) {
	h := newHosted(t)
	h.ns.Run("nft", `table inet theirs { chain prerouting { type nat hook prerouting priority dstnat;
		ip daddr 192.0.2.1 tcp dport 8080 dnat ip to 10.65.0.1:80; ip6 daddr fd00::1 tcp dport 8080 dnat ip6 to [fd65::a]:80; }; }`)
	for _, a := range addrs["a"] {
		l, err := h.a.ListenTCP(netip.AddrPortFrom(netip.MustParseAddr(a), 80))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for _, tt := range []struct {
		name string
		at   func(*intent.Endpoint, ...intent.Tier)
		deny uint16
		want bool
	}{
		{"before DNAT, the port that it was sent to", intenttest.PreDNAT, 8080, false},
		{"before DNAT, the port that it is sent on to", intenttest.PreDNAT, 80, true},
		{"forwarded, the port that it was sent to", intenttest.Forward, 8080, true},
		{"forwarded, the port that it is sent on to", intenttest.Forward, 80, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, e := pol("p", []intent.Rule{tcp(intent.Deny, tt.deny), anything}, nil), hep("up0")
			tt.at(&e, ask(p, in)...)
			b := pair(nil, p)
			b.Endpoints = append(b.Endpoints, e)
			h.d.Merge(b)
			apply(t, h.d)
			within := netnstest.Silence
			if tt.want {
				within = netnstest.Patience
			}
			for _, a := range addrs["host"] {
				c, err := h.out.DialTCP(netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(a), 8080), time.Now().Add(within))
				if (err == nil) != tt.want {
					t.Errorf("%s: %v", a, err)
				}
				if err == nil {
					c.Close()
				}
			}
		})
	}
}
