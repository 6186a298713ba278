package nft

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// TestNoDeniedPacketPassesWhileRulesChange writes rules again and again that deny in different ways what is sent all the time. The
// kernel finds nothing in a new set of intervals until the end of the transaction that makes it (docs/decisions/068).
func TestNoDeniedPacketPassesWhileRulesChange(t *testing.T) {
	wide, other := prefix("10.65.0.0/16"), prefix("198.51.100.0/24")
	one := member("192.0.2.77/32")
	deny := func(src, dst intent.Peer) []intent.Rule {
		return []intent.Rule{{Action: intent.Deny, Src: src, Dst: dst}, {Action: intent.Allow}}
	}
	allow := func(src, dst intent.Peer) []intent.Rule {
		return []intent.Rule{{Action: intent.Allow, Src: src, Dst: dst}}
	}
	udp := func(rs []intent.Rule) []intent.Rule {
		for i := range rs {
			rs[i].Protocol = 17
		}
		return rs
	}
	for _, tt := range []struct {
		name    string
		ingress func(set intent.SetID) []intent.Rule
		often   string // a set is made anew in each round
	}{
		{name: "prefixes", ingress: func(intent.SetID) []intent.Rule {
			return deny(intent.Peer{Nets: []netip.Prefix{wide, other, one.Prefix}}, intent.Peer{})
		}},
		{name: "not prefixes", ingress: func(intent.SetID) []intent.Rule {
			return allow(intent.Peer{NotNets: []netip.Prefix{wide, other, one.Prefix}}, intent.Peer{})
		}},
		{name: "ports", ingress: func(intent.SetID) []intent.Rule {
			return udp(deny(intent.Peer{}, intent.Peer{Ports: []intent.PortRange{{Min: 1, Max: 300}, {Min: 400, Max: 900}, {Min: 7000, Max: 7000}}}))
		}},
		{name: "not ports", ingress: func(intent.SetID) []intent.Rule {
			return udp(allow(intent.Peer{}, intent.Peer{NotPorts: []intent.PortRange{{Min: 1, Max: 300}, {Min: 400, Max: 410}, {Min: 7000, Max: 7000}}}))
		}},
		{name: "new set", ingress: func(set intent.SetID) []intent.Rule {
			return deny(intent.Peer{Sets: []intent.SetID{set}}, intent.Peer{})
		}},
		{name: "not in a new set", ingress: func(set intent.SetID) []intent.Rule {
			return allow(intent.Peer{NotSets: []intent.SetID{set}}, intent.Peer{})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHosted(t)
			p, any := np("judged"), np("any")
			a, b := wl("a", "calia"), wl("b", "calib")
			intenttest.Normal(&a, tier("default", intent.Deny, []intent.PolicyID{any}, []intent.PolicyID{any}))
			intenttest.Normal(&b, tier("default", intent.Deny, []intent.PolicyID{p}, []intent.PolicyID{any}))
			var last intent.SetID
			round := func(i int) {
				set := intent.SetID("s:" + strconv.Itoa(i))
				changes := intent.Batch{
					IPSets:   []intent.IPSet{{ID: set, Members: []intent.Member{{Prefix: wide}, {Prefix: other}, one}}},
					Policies: []intent.Policy{{ID: p, Tier: "default", Ingress: append(tt.ingress(set), intent.Rule{Action: intent.Deny, Src: intent.Peer{Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 32)}}})}},
				}
				if i == 0 {
					changes.Policies = append(changes.Policies, intent.Policy{ID: any, Tier: "default", Ingress: allow(intent.Peer{}, intent.Peer{}), Egress: allow(intent.Peer{}, intent.Peer{})})
					changes.Endpoints, changes.Host, changes.InSync = []intent.Endpoint{a, b}, &intent.HostSettings{}, true
				} else {
					changes.Removed = []intent.Key{last}
				}
				last = set
				h.d.Merge(changes)
				apply(t, h.d)
			}
			round(0)
			denied := h.send(t, "a", "b", false)
			for denied.sent.Load() < 2 {
			}
			for i := 1; i <= 200 && denied.received.Load() == 0; i++ {
				round(i)
			}
			if n := denied.received.Load(); n > 0 {
				t.Errorf("%d of %d denied packets passed", n, denied.sent.Load())
			}
		})
	}
}
