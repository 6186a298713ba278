package proxy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// subnet has the host answer for workloads' own addresses of both families.
func subnet(except ...string) *intent.HostSettings {
	l := intent.LocalSubnet{Pools: []netip.Prefix{netip.MustParsePrefix("192.0.2.64/26"), netip.MustParsePrefix("2001:db8::/64")}, Again: time.Minute}
	for _, a := range except {
		l.Except = append(l.Except, netip.PrefixFrom(netip.MustParseAddr(a), netip.MustParseAddr(a).BitLen()))
	}
	return &intent.HostSettings{LocalSubnet: l}
}

// at is a batch of a workload that has these addresses as its own.
func at(host *intent.HostSettings, addrs ...string) intent.Batch {
	e := intent.Endpoint{ID: id, Link: "cali1"}
	for _, a := range addrs {
		e.Addrs = append(e.Addrs, netip.MustParseAddr(a))
	}
	return intent.Batch{Endpoints: []intent.Endpoint{e}, InSync: true, Host: host}
}

// TestHostsOfTheNetworkFindAWorkload whose own addresses are of their network, while settings say so, live.
func TestHostsOfTheNetworkFindAWorkload(t *testing.T) {
	r := newRig(t)
	r.apply(at(&intent.HostSettings{}, floating...))
	if got := r.entries(); got != "" {
		t.Errorf("nobody asked for entries: %s", got)
	}
	for _, a := range floating[:2] {
		if r.reached(a, netnstest.Silence) {
			t.Errorf("%s is found without them", a)
		}
	}
	r.other.Run("ip", "neigh", "flush", "all")
	r.apply(intent.Batch{Host: subnet()})
	for _, a := range floating[:2] {
		if !r.reached(a, netnstest.Patience) {
			t.Errorf("%s is not found", a)
		}
	}
	if got := r.entries(); strings.Count(got, "\n") != 2 || strings.Contains(got, "cali1") {
		t.Errorf("want an entry of each family on eth0, and none elsewhere:\n%s", got)
	}
	r.apply(intent.Batch{Host: &intent.HostSettings{}})
	if got := r.entries(); got != "" {
		t.Errorf("settings do not want it any more: %s", got)
	}
	r.other.Run("ip", "neigh", "flush", "all")
	for _, a := range floating[:2] {
		if r.reached(a, netnstest.Silence) {
			t.Errorf("%s is found when settings do not want it any more", a)
		}
	}
	if found, err := r.d.Differences(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("differ: %v, %v", found, err)
	}
}

// TestWhichAddressesAreAnsweredFor: those in a pool, of a workload that is here and open; no node's, and none that the host itself has.
func TestWhichAddressesAreAnsweredFor(t *testing.T) {
	r := newRig(t)
	route := func(m intent.Move) intent.Batch {
		return intent.Batch{Routes: []intent.Route{{Dst: netip.MustParsePrefix("192.0.2.77/32"), Kind: intent.RouteLink, Link: "cali1", Move: m}}}
	}
	closed := at(nil, "192.0.2.77")
	closed.Endpoints[0].Closed = "cannot be read"
	for _, tt := range []struct {
		name string
		b    intent.Batch
		want []string
	}{
		{"one in a pool, one in none of them", at(subnet(), "192.0.2.77", "192.0.2.9"), []string{"192.0.2.77"}},
		{"one of a node", at(subnet("192.0.2.77"), "192.0.2.77", "192.0.2.78"), []string{"192.0.2.78"}},
		{"one of the host itself", at(subnet(), "2001:db8::1", "192.0.2.77"), []string{"192.0.2.77"}},
		{"one that is about to come", route(intent.Comes), nil},
		{"that has come", route(intent.Stays), []string{"192.0.2.77"}},
		{"that is about to go", route(intent.Goes), []string{"192.0.2.77"}},
		{"one that came, and has no route any more", intent.Batch{Removed: []intent.Key{intent.RouteID{Prefix: netip.MustParsePrefix("192.0.2.77/32")}}}, []string{"192.0.2.77"}},
		{"one that must carry nothing", closed, nil},
		{"that is open again", at(nil, "192.0.2.77"), []string{"192.0.2.77"}},
		{"one that is gone", intent.Batch{Removed: []intent.Key{id}}, nil},
	} {
		r.apply(tt.b)
		var got []string
		for line := range strings.Lines(r.entries()) {
			got = append(got, strings.Fields(line)[0])
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestOfSeveralEndpointsWithOneAddressOneThatIsHereIsAnsweredFor, wherever it is among them: fib gives it the route, and not to a machine that is about to come.
func TestOfSeveralEndpointsWithOneAddressOneThatIsHereIsAnsweredFor(t *testing.T) {
	other := intent.EndpointID{Namespace: "default", Name: "b"}
	here, comes := intent.Claim{Endpoint: id, Link: "cali1"}, intent.Claim{Endpoint: id, Link: "cali1", Move: intent.Comes}
	absent, awaited := intent.Claim{Endpoint: other, Link: "cali2"}, intent.Claim{Endpoint: other, Link: "cali2", Move: intent.Comes}
	for _, tt := range []struct {
		name   string
		claims []intent.Claim
		want   bool
	}{
		{"the first is about to come, and the second here", []intent.Claim{awaited, here}, true},
		{"the second is about to come, and the first here", []intent.Claim{here, awaited}, true},
		{"the first is absent, and the second about to come", []intent.Claim{absent, comes}, false},
		{"the second is absent, and the first about to come", []intent.Claim{comes, absent}, false},
	} {
		r := newRig(t)
		b := at(subnet(), "192.0.2.77")
		e := b.Endpoints[0]
		e.ID, e.Link = other, "cali2"
		first := tt.claims[0]
		b.Endpoints = append(b.Endpoints, e)
		b.Routes = []intent.Route{{Dst: netip.MustParsePrefix("192.0.2.77/32"), Kind: intent.RouteLink, Link: first.Link, Move: first.Move, Claims: tt.claims}}
		r.apply(b)
		if got := r.entries(); strings.Contains(got, "192.0.2.77") != tt.want {
			t.Errorf("%s: entries are %q", tt.name, got)
		}
	}
}

// TestAddressesAreAnnouncedAgain with each reading, as often as settings say at least: who took another's for true takes this host's.
func TestAddressesAreAnnouncedAgain(t *testing.T) {
	r := newRig(t)
	r.apply(at(subnet(), floating[:2]...))
	if every, known := r.d.Refresh(); !known || every != time.Minute {
		t.Errorf("read back every %s (%v), want a minute", every, known)
	}
	mac := r.host.Link("eth0").MAC
	for _, a := range floating[:2] {
		r.other.Run("ip", "neigh", "replace", a, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
	}
	if err := r.d.Resync(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.apply(intent.Batch{})
	for _, a := range floating[:2] {
		for deadline := time.Now().Add(netnstest.Patience); !strings.Contains(r.other.Run("ip", "neigh", "show", a), mac); {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not announced again", a)
			}
		}
	}
	for _, tt := range []struct{ routes, again, want time.Duration }{{0, time.Minute, time.Minute}, {30 * time.Second, time.Minute, 30 * time.Second}, {time.Hour, time.Minute, time.Minute}, {time.Hour, 0, time.Hour}} {
		h := subnet()
		h.Refresh.Routes, h.LocalSubnet.Again = tt.routes, tt.again
		r.d.Merge(intent.Batch{Host: h})
		if every, _ := r.d.Refresh(); every != tt.want {
			t.Errorf("routes every %s, announcements every %s: read back every %s, want %s", tt.routes, tt.again, every, tt.want)
		}
	}
}
