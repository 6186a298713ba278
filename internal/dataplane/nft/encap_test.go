package nft

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestWhatTheHostEncapsulatesIsItsOwn: the packets that a tunnel device of the host makes of what is forwarded are judged as what
// the host sends, and what is in them as forwarded.
func TestWhatTheHostEncapsulatesIsItsOwn(t *testing.T) {
	vxlan := intent.Rule{Action: intent.Deny, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 4789, Max: 4789}}}}
	for _, tt := range []struct{ name, from string }{
		{"of a workload's", "a"},
		{"of what was allowed before conntrack", "out"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHosted(t)
			h.ns.Run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "local", addrs["host"][0], "remote", addrs["out"][0], "dstport", "4789", "dev", "up0")
			h.ns.Sysctl("ipv6/conf/vx0/disable_ipv6", "1") // else the host itself sends into it, and the outer packets are counted with the probe's
			h.ns.Up("vx0")
			h.ns.Route("10.99.0.0/24 dev vx0")
			h.ns.Run("ip", "neigh", "add", "10.99.0.5", "lladdr", "02:00:00:00:00:05", "dev", "vx0", "nud", "permanent")
			up, tunnel := hep("up0"), hep("vx0")
			tunnel.ID.Name, tunnel.Label = "tunnel", "tunnel"
			outer, inner, early := pol("outer", nil, []intent.Rule{vxlan, anything}), pol("inner", nil, nil), pol("early", []intent.Rule{anything}, nil)
			intenttest.Normal(&up, ask(outer, out)...)
			intenttest.Untracked(&up, ask(early, in)...)
			intenttest.Normal(&tunnel, ask(inner, out)...) // denies all that the host itself sends into the tunnel
			b := pair(nil, outer, inner, early)
			b.Endpoints = append(b.Endpoints, up, tunnel)
			h.d.Merge(b)
			apply(t, h.d)
			h.party(tt.from).Do(func() {
				c, err := net.Dial("udp4", "10.99.0.5:1234")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			})
			for began := time.Now(); h.dropped(t, "prod/outer egress[0]") == 0; runtime.Gosched() {
				if time.Since(began) > netnstest.Patience {
					t.Fatal("what the host sent into the world was not asked of its policy")
				}
			}
		})
	}
}
