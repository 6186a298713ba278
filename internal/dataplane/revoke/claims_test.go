package revoke

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// Flows of an address are judged by the policy of the endpoint to which its route leads, and not by that of one that only claims it.
func TestFlowsAreThoseOfTheEndpointThatHasTheRoute(t *testing.T) {
	a := netip.MustParseAddr("10.65.0.5")
	first, second := intent.EndpointID{Namespace: "prod", Name: "aaa"}, intent.EndpointID{Namespace: "prod", Name: "web"}
	cs := []intent.Claim{{Endpoint: first, Link: "cali1"}, {Endpoint: second, Link: "cali2"}}
	d := New(Config{})
	d.InForce(intent.Batch{Endpoints: []intent.Endpoint{{ID: first, Link: "cali1", Addrs: []netip.Addr{a}}, {ID: second, Link: "cali2", Addrs: []netip.Addr{a}}}}, false)
	link := func(name string, up bool) []ifmon.Change {
		return []ifmon.Change{{Link: ifmon.Link{Name: name, Up: up}}}
	}
	for _, tt := range []struct {
		says string
		step func()
		want string
	}{
		{"nothing is known of interfaces", func() { d.Routes([]intent.Route{{Dst: netip.PrefixFrom(a, 32), Link: "cali1", Claims: cs}}, nil) }, "cali1"},
		{"the second is up", func() { d.Links(link("cali2", true)) }, "cali2"},
		{"both are up", func() { d.Links(link("cali1", true)) }, "cali1"},
		{"the machine of the first is about to come", func() {
			coming := slices.Clone(cs)
			coming[0].Move = intent.Comes
			d.Routes([]intent.Route{{Dst: netip.PrefixFrom(a, 32), Link: "cali1", Move: intent.Comes, Claims: coming}}, nil)
		}, "cali2"},
		{"and the second is down", func() { d.Links(link("cali2", false)) }, "cali1"},
		{"the second is up again", func() { d.Links(link("cali2", true)) }, "cali2"},
		{"the machine has come", func() { d.Routes([]intent.Route{{Dst: netip.PrefixFrom(a, 32), Link: "cali1", Claims: cs}}, nil) }, "cali1"},
		{"the first goes", func() { d.Links([]ifmon.Change{{Link: ifmon.Link{Name: "cali1"}, Gone: true}}) }, "cali2"},
	} {
		tt.step()
		d.take()
		if got := d.claims.settle(d.index.links(), d.index.endpoints)[a]; got != tt.want {
			t.Errorf("%s: %s has it, want %s", tt.says, got, tt.want)
		}
		if !d.stale || !d.touched.addrs[a] {
			t.Errorf("%s: its flows are not evaluated", tt.says)
		}
		d.stale = false
		d.touched.clear()
	}
	d.Routes(nil, []intent.Key{intent.RouteID{Prefix: netip.PrefixFrom(a, 32)}})
	d.take()
	if len(d.claims.of) != 0 {
		t.Errorf("claims %v are left", d.claims.of)
	}
}
