package revoke

import (
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// claims are the addresses that several endpoints have, and what decides which of them has the route (decision 110): flows are that one's.
type claims struct {
	of map[netip.Addr][]intent.Claim
	up map[string]bool // interfaces
}

func newClaims() claims {
	return claims{of: map[netip.Addr][]intent.Claim{}, up: map[string]bool{}}
}

// claimsOf are the claims that routes of a batch change; nil: there are none any more.
func claimsOf(into map[netip.Addr][]intent.Claim, routes []intent.Route, removed []intent.Key) {
	for _, r := range routes {
		if r.Dst.IsSingleIP() {
			into[r.Dst.Addr()] = r.Claims
		}
	}
	for _, k := range removed {
		if id, ok := k.(intent.RouteID); ok && id.IsSingleIP() {
			into[id.Addr()] = nil
		}
	}
}

// take takes what changed, and returns the addresses that may have another owner.
func (c claims) take(news map[netip.Addr][]intent.Claim, links []ifmon.Change) (addrs []netip.Addr) {
	for a, now := range news {
		if len(c.of[a])+len(now) > 0 {
			addrs = append(addrs, a)
		}
		if c.of[a] = now; len(now) == 0 {
			delete(c.of, a)
		}
	}
	for _, l := range links {
		was := c.up[l.Name]
		if delete(c.up, l.Name); !l.Gone && l.Up {
			c.up[l.Name] = true
		}
		if c.up[l.Name] == was {
			continue
		}
		for a, cs := range c.of {
			for _, x := range cs {
				if x.Link == l.Name {
					addrs = append(addrs, a)
				}
			}
		}
	}
	return addrs
}

// settle gives each address that several endpoints have to the first whose interface is up, of those that are known; but to one whose machine comes from
// another host only if there is no other. That it has come is known here when its migration is over.
func (c claims) settle(owners map[netip.Addr]string, known map[intent.EndpointID]intent.Endpoint) map[netip.Addr]string {
	for a, cs := range c.of {
		up := func(x intent.Claim) bool { return c.up[x.Link] && known[x.Endpoint].Link == x.Link }
		at := slices.IndexFunc(cs, func(x intent.Claim) bool { return up(x) && x.Move != intent.Comes })
		if at < 0 {
			at = slices.IndexFunc(cs, up)
		}
		if at >= 0 {
			owners[a] = cs[at].Link
		}
	}
	return owners
}
