package speaker

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func TestARouteIsReplacedUnderTheOtherMetric(t *testing.T) {
	ns := netnstest.New(t)
	ns.Veth("eth0", "peer")
	ns.Addr("eth0", "192.0.2.1/24")
	h := ns.Rtnl()
	dst, old, now := netip.MustParsePrefix("10.65.0.0/26"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	route := func(via netip.Addr, protocol, metric int) rtnl.Route {
		return rtnl.Route{Dst: dst, Link: ns.Link("eth0").Index, Gateway: via, Protocol: protocol, Metric: metric}
	}
	const ours, others, prior = kernel.RouteProtocolSpeaker, 4, kernel.RouteProtocolPriority
	both := metrics(rtnl.Route{Protocol: ours})
	for _, tt := range []struct {
		name      string
		is        []rtnl.Route
		priority  uint32
		withdrawn bool
		want      []rtnl.Route
		err       error
	}{
		{name: "there is none", want: []rtnl.Route{route(now, ours, both[0])}},
		{name: "it is there", is: []rtnl.Route{route(now, ours, both[1])}, want: []rtnl.Route{route(now, ours, both[1])}},
		{name: "another of ours is there", is: []rtnl.Route{route(old, ours, both[0])}, want: []rtnl.Route{route(now, ours, both[1])}},
		{name: "it is there, and an older one still", is: []rtnl.Route{route(old, ours, both[0]), route(now, ours, both[1])}, want: []rtnl.Route{route(now, ours, both[1])}},
		{name: "both are ours, and neither is wanted", is: []rtnl.Route{route(old, ours, both[0]), route(old, ours, both[1])}, want: []rtnl.Route{route(now, ours, both[0])}},
		{name: "another's has one metric", is: []rtnl.Route{route(old, others, both[0])}, want: []rtnl.Route{route(old, others, both[0]), route(now, ours, both[1])}},
		{
			name: "another's has one metric and ours the other", is: []rtnl.Route{route(old, others, both[0]), route(old, ours, both[1])},
			want: []rtnl.Route{route(old, others, both[0]), route(now, ours, both[1])},
		},
		{
			name: "others have both", is: []rtnl.Route{route(old, others, both[0]), route(old, others, both[1])},
			want: []rtnl.Route{route(old, others, both[0]), route(old, others, both[1])}, err: errForeign,
		},
		{name: "one without a priority is there", priority: 512, is: []rtnl.Route{route(old, ours, both[0])}, want: []rtnl.Route{route(now, prior, 512)}},
		{name: "and one with another, and with this", priority: 512, is: []rtnl.Route{route(old, prior, 7), route(old, prior, 512)}, want: []rtnl.Route{route(now, prior, 513)}},
		{name: "a priority that is our metric", priority: 2048, is: []rtnl.Route{route(old, ours, both[0])}, want: []rtnl.Route{route(now, prior, 2049)}},
		{name: "another's has the priority's metric", priority: 512, is: []rtnl.Route{route(old, others, 512)}, want: []rtnl.Route{route(old, others, 512), route(now, prior, 513)}},
		{name: "it is withdrawn", is: []rtnl.Route{route(old, ours, both[0]), route(now, ours, both[1])}, withdrawn: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFIB(h)
			f.keepStale = false
			for _, r := range tt.is {
				if err := h.AddRoute(r); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = h.DeleteRoute(r) }()
			}
			if err := f.read(); err != nil {
				t.Fatal(err)
			}
			if f.update(map[netip.Prefix]way{dst: {[]netip.Addr{now}, tt.priority}}); tt.withdrawn {
				f.update(map[netip.Prefix]way{dst: {}})
			}
			if err := f.apply(); !errors.Is(err, tt.err) {
				t.Errorf("apply = %v, want %v", err, tt.err)
			}
			got := map[rtnl.Route]bool{}
			for _, protocol := range []int{ours, others, prior} {
				rs, err := h.Routes(rtnl.RouteFilter{Protocol: protocol})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					got[r] = true
				}
			}
			for _, r := range tt.want {
				if !got[r] {
					t.Errorf("route via %s with metric %d is missing", r.Gateway, r.Metric)
				}
				defer func() { _ = h.DeleteRoute(r) }()
			}
			if len(got) != len(tt.want) {
				t.Errorf("got %v", got)
			}
			if len(f.actual) > 0 != (!tt.withdrawn && tt.err == nil) {
				t.Errorf("it believes that the kernel has %v", f.actual)
			}
		})
	}
}
