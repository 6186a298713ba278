package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/attach"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// TestWhoHasAnAddress: all endpoints that claim it, and which of them have an interface; each is as good as its route, until it has none.
func TestWhoHasAnAddress(t *testing.T) {
	addr := netip.MustParseAddr("10.65.0.2")
	other := intent.EndpointID{Namespace: "prod", Name: "h1-k8s-other-eth0"}
	b := intent.Batch{Endpoints: []intent.Endpoint{webBatch.Endpoints[0], {ID: other, Label: "prod/other", Link: "cali2"}}}
	b.Routes = []intent.Route{{Dst: routeKey.Prefix, Link: "cali1", Claims: []intent.Claim{{Endpoint: web, Link: "cali1"}, {Endpoint: other, Link: "cali2"}}}}
	r := &reporter{tracker: newTracker(), links: func() ([]rtnl.Link, error) { return []rtnl.Link{{Name: "cali2"}}, nil }}
	r.tracker.onBatch(b)
	want := []attach.Claimant{{Endpoint: web, Link: "cali1"}, {Endpoint: other, Link: "cali2", There: true}}
	if got := r.claimants(addr); !slices.Equal(got, want) {
		t.Errorf("claimants are %+v, want %+v", got, want)
	}
	r.tracker.onBatch(webBatch)
	if got := r.claimants(addr); !slices.Equal(got, want[:1]) {
		t.Errorf("once one has the address alone: %+v", got)
	}
	r.tracker.onBatch(intent.Batch{Removed: []intent.Key{other, routeKey, web}})
	if got := r.claimants(addr); len(got) != 0 || len(r.tracker.reach) != 0 {
		t.Errorf("once all are gone: %+v, and %v", got, r.tracker.reach)
	}
}
