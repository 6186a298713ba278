package fib_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// claimed are routes to one address of each family that several endpoints have, in the order of the names of their interfaces.
func claimed(links ...string) intent.Batch {
	b := both(links[0])
	for i := range b.Routes {
		for _, link := range links {
			b.Routes[i].Claims = append(b.Routes[i].Claims, intent.Claim{Endpoint: claimant(link), Link: link, MAC: "02:00:00:00:00:0" + link[2:]})
		}
		b.Routes[i].MAC = b.Routes[i].Claims[0].MAC
	}
	return b
}

func claimant(link string) intent.EndpointID {
	return intent.EndpointID{Namespace: "prod", Name: "of-" + link}
}

// lost wants what is said of an endpoint: with nothing, that all is well.
func (r *rig) lost(out map[string]intent.Outcome, link, says string) {
	r.t.Helper()
	o, reported := out[claimant(link).String()]
	got := o.Note
	if o.Err != nil {
		got = o.Err.Error()
	}
	if !reported || !strings.Contains(got, says) || says == "" && got != "" || o.Err != nil && !o.Final {
		r.t.Errorf("outcome of the endpoint at %s is %+v (reported: %v); want %q", link, o, reported, says)
	}
}

// Who has an address is for its interface to show: the first may be absent, or never come, as that of a pod which only says in an annotation that it has it.
func TestOfSeveralEndpointsOneWithAnInterfaceHasTheAddress(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl2", "p2")
	r.tbl.Merge(claimed("wl1", "wl2", "wl3"))
	r.untilUp("wl2")
	out := r.apply()
	r.want("10.65.0.5/32", nil, "", out)
	r.ns.WantRoute(t, "10.65.0.5 dev wl2 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl2 proto 80")
	r.lost(out, "wl1", "its address 10.65.0.5 is routed to WorkloadEndpoint prod/of-wl2 at interface wl2, since interface wl1 is absent; its address 2001:db8::5")
	r.lost(out, "wl3", "its address 10.65.0.5 is routed to WorkloadEndpoint prod/of-wl2 at interface wl2, which was there before")
	if got := r.ns.Run("ip", "neigh", "show", "dev", "wl2", "nud", "permanent"); !strings.Contains(got, "10.65.0.5 lladdr 02:00:00:00:00:02 PERMANENT") {
		t.Errorf("neighbours are %q", got)
	}

	// One that comes before it gets the address with its interface, one that comes after it does not.
	r.ns.Veth("wl3", "p3")
	r.untilUp("wl3")
	r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl2 proto 80 scope link")
	r.ns.Veth("wl1", "p1")
	r.untilUp("wl1")
	out = r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl1 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl1 proto 80")
	r.lost(out, "wl1", "")
	r.lost(out, "wl2", "routed to WorkloadEndpoint prod/of-wl1 at interface wl1, which was there before")

	// The interface goes: the next has the address.
	r.ns.Delete("wl1")
	r.until("wl1", func(_ ifmon.Link, there bool) bool { return !there })
	out = r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl2 proto 80 scope link")
	r.ns.WantRoute(t, "2001:db8::5 dev wl2 proto 80")
	r.lost(out, "wl2", "")
	r.lost(out, "wl1", "since interface wl1 is absent")

	// The others claim it no more, and nothing is said of one that is gone.
	b := claimed("wl3")
	b.Routes[0].Claims, b.Routes[1].Claims = nil, nil
	b.Removed = []intent.Key{claimant("wl2")}
	r.tbl.Merge(b)
	out = r.apply()
	r.ns.WantRoute(t, "10.65.0.5 dev wl3 proto 80 scope link")
	r.lost(out, "wl3", "")
	if o, reported := out[claimant("wl2").String()]; reported {
		t.Errorf("of an endpoint that is gone: %+v", o)
	}
	if got := r.ns.Run("ip", "neigh", "show", "dev", "wl2", "nud", "permanent"); got != "" {
		t.Errorf("neighbours of the old interface are %q", got)
	}
}

// An allowed address pair is shared by agreement, as those of VRRP are.
func TestWhoSharesAnAddressIsNotAtFault(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl2")
	b := claimed("wl1", "wl2")
	b.Routes[0].Claims[1].Shared, b.Routes[1].Claims[1].Shared = true, true
	r.tbl.Merge(b)
	r.untilUp("wl1")
	r.untilUp("wl2")
	o := r.apply()[claimant("wl2").String()]
	if o.Err != nil || !strings.Contains(o.Note, "10.65.0.5 is routed to WorkloadEndpoint prod/of-wl1") {
		t.Errorf("outcome %+v, want a note alone", o)
	}
}

// The target of a live migration waits for its machine: until that is here, one that is here has the address.
func TestAnAwaitedMachineTakesNoAddressFromOneThatIsHere(t *testing.T) {
	r := newRig(t, netnstest.New(t))
	r.ns.Veth("wl1", "wl2")
	b := claimed("wl1", "wl2")
	for i := range b.Routes {
		b.Routes[i].Move, b.Routes[i].Claims[0].Move = intent.Comes, intent.Comes
	}
	r.tbl.Merge(b)
	r.untilUp("wl1")
	r.untilUp("wl2")
	r.lost(r.apply(), "wl1", "since its own machine is still on another host")
	r.ns.WantRoute(t, "10.65.0.5 dev wl2 proto 80 scope link")
}
