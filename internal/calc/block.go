package calc

import (
	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// block takes over whose a block of addresses is. What of an own block no
// endpoint has, leads nowhere: else a packet to it would leave by the default
// route, and perhaps come back by the same way.
func (g *Graph) block(u api.Update) {
	if u.Value == nil {
		g.found(u.Key, nil)
		g.routes.Set(u.Key, nil)
		return
	}
	p, owner, owned, err := api.BlockOwner(u)
	if err != nil {
		g.found(u.Key, []api.Problem{{Key: u.Key, Reason: err.Error() + "; what was known of it stays in force"}})
		return
	}
	g.found(u.Key, nil)
	if owned && owner == (api.Owner{Type: api.OwnerHost, Name: g.node}) {
		g.routes.Set(u.Key, []intent.Route{{Dst: p, Kind: intent.RouteBlackhole}})
		return
	}
	g.routes.Set(u.Key, nil)
}
