package nft

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// hep is a host endpoint.
func hep(link string) intent.Endpoint {
	return intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: "h"}, Label: "h", Link: link}
}

// ask is a tier that ends in deny and asks one policy, in the directions for which that has rules or is to isolate.
func ask(p intent.Policy, dirs ...intent.Direction) []intent.Tier {
	t := intent.Tier{Name: "default"}
	if slices.Contains(dirs, intent.Ingress) {
		t.Ingress = []intent.PolicyID{p.ID}
	}
	if slices.Contains(dirs, intent.Egress) {
		t.Egress = []intent.PolicyID{p.ID}
	}
	return []intent.Tier{t}
}

func tcpFrom(action intent.Action, port uint16) intent.Rule {
	return intent.Rule{Action: action, Protocol: 6, Src: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

const (
	in  = intent.Ingress
	out = intent.Egress
)

// asTables are settings by which policy is look-ups.
func asTables(h *intent.HostSettings) *intent.HostSettings {
	out := *h
	out.Compiled = true
	return &out
}

// TestHostEndpointsAtEachStage in both forms, one after the other.
func TestHostEndpointsAtEachStage(t *testing.T) {
	within := func(port uint16) (fs []intent.Failsafe) { // for those outside alone
		for _, net := range []string{addrs["out"][0] + "/32", addrs["out"][1] + "/128"} {
			fs = append(fs, intent.Failsafe{Protocol: 6, Port: port, Net: netip.MustParsePrefix(net)})
		}
		return fs
	}
	safe := &intent.HostSettings{
		FailsafeIn: append(within(24), []intent.Failsafe{{Protocol: 6, Port: 22}, {Protocol: 6, Port: 23, Net: netip.MustParsePrefix("198.51.100.0/24")}}...),
		FailsafeOut: append(within(25), []intent.Failsafe{
			{Protocol: 6, Port: 2379}, {Protocol: 17, Port: 53}, {Protocol: 6, Port: 26, Net: netip.MustParsePrefix("198.51.100.0/24")},
		}...),
	}
	returns := &intent.HostSettings{EndpointToHost: intent.ToHostReturn, FailsafeIn: safe.FailsafeIn, FailsafeOut: safe.FailsafeOut}
	nothing, deny := pol("nothing", nil, nil), pol("deny", []intent.Rule{{Action: intent.Deny}}, []intent.Rule{{Action: intent.Deny}})
	web := pol("web", []intent.Rule{tcp(intent.Allow, 80)}, nil)
	replies := pol("raw", []intent.Rule{tcp(intent.Allow, 80)}, []intent.Rule{tcpFrom(intent.Allow, 80)})
	denied := []string{"!out>host tcp/80", "!out>host udp/53", "!out>host icmp", "!host>out tcp/80", "!out>host tcp/23", "!host>out tcp/26"}
	failsafes := []string{"out>host tcp/22", "out>host tcp/24", "host>out tcp/25", "host>out tcp/2379", "host>out udp/53"}
	around := []string{"host>a tcp/80", "out>a tcp/80", "a>out tcp/80", "a>b tcp/80"}
	for _, tt := range []struct {
		says string
		hep  func(*intent.Endpoint)
		set  *intent.HostSettings
		want []string
	}{
		{"deny-all for all interfaces leaves failsafes, and what goes through", func(e *intent.Endpoint) {
			e.Link = "*"
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, safe, slices.Concat(denied, failsafes, around, []string{"!a>host tcp/80"})},
		{"the same for the interface by its name", func(e *intent.Endpoint) { intenttest.Normal(e, ask(nothing, in, out)...) }, safe, slices.Concat(denied, failsafes, around)},
		{"without policy or profile nothing but failsafes", func(*intent.Endpoint) {}, safe, slices.Concat(denied, failsafes, around)},
		{
			"a closed one carries nothing through either", func(e *intent.Endpoint) { e.Closed = "unreadable" }, safe,
			slices.Concat(denied, failsafes, []string{"!out>a tcp/80", "!a>out tcp/80", "host>a tcp/80", "a>b tcp/80"}),
		},
		{"what policy allows in, and replies", func(e *intent.Endpoint) { intenttest.Normal(e, ask(web, in)...) }, safe, []string{"out>host tcp/80", "!out>host tcp/81", "out>host tcp/22"}},
		{"another interface is under no endpoint", func(e *intent.Endpoint) { e.Link = "up9"; intenttest.Normal(e, ask(nothing, in, out)...) }, safe, []string{"out>host tcp/80", "host>out tcp/80"}},
		{
			"forwarded: the end of a tier, and only in the direction of its policies", func(e *intent.Endpoint) { intenttest.Forward(e, ask(web, in)...) }, safe,
			[]string{"out>a tcp/80", "!out>a tcp/81", "!out>a tcp/22", "a>out tcp/90", "a>b tcp/81"},
		},
		{"forwarded out", func(e *intent.Endpoint) { intenttest.Forward(e, ask(nothing, out)...) }, safe, []string{"!a>out tcp/80", "out>a tcp/80", "a>b tcp/81"}},
		{
			"forwarded in by any interface, a workload's too", func(e *intent.Endpoint) { e.Link = "*"; intenttest.Forward(e, ask(web, in)...) }, safe,
			[]string{"out>a tcp/80", "!out>a tcp/81", "a>out tcp/80", "!a>out tcp/81", "a>b tcp/80", "!a>b tcp/81", "host>a tcp/81"},
		},
		{
			"forwarded out by any interface, a workload's too", func(e *intent.Endpoint) { e.Link = "*"; intenttest.Forward(e, ask(nothing, out)...) }, safe,
			[]string{"!a>out tcp/80", "!out>a tcp/80", "!a>b tcp/81", "host>a tcp/81"},
		},
		{"before DNAT a deny holds for the host and beyond, failsafes apart", func(e *intent.Endpoint) {
			e.Link = "*"
			intenttest.Normal(e, ask(web, in)...)
			intenttest.PreDNAT(e, ask(deny, in)...)
		}, safe, []string{"!out>host tcp/80", "!out>a tcp/80", "out>host tcp/22", "!a>out tcp/80", "!a>b tcp/80", "a>out tcp/22", "host>a tcp/80"}},
		{"before DNAT the one of an interface is not asked about workloads", func(e *intent.Endpoint) {
			intenttest.PreDNAT(e, ask(deny, in)...)
		}, safe, []string{"!out>a tcp/80", "a>out tcp/80", "a>b tcp/80"}},
		{"before DNAT no end of a tier drops", func(e *intent.Endpoint) { e.Link = "*"; intenttest.PreDNAT(e, ask(nothing, in)...) }, safe, []string{"out>a tcp/80"}},
		{"what is allowed before DNAT is not asked about again", func(e *intent.Endpoint) {
			e.Link = "*"
			intenttest.PreDNAT(e, ask(web, in)...)
			intenttest.Normal(e, ask(nothing, in)...)
			intenttest.Forward(e, ask(nothing, in)...)
		}, safe, []string{"out>host tcp/80", "!out>host tcp/81", "out>a tcp/80", "!out>a tcp/81", "a>out tcp/80", "!a>out tcp/81", "!a>host tcp/80"}},
		{"untracked: both directions by rules of their own", func(e *intent.Endpoint) {
			intenttest.Untracked(e, ask(replies, in, out)...)
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, safe, []string{"out>host tcp/80", "!out>host tcp/81", "out>host tcp/22", "host>out tcp/2379"}},
		{"untracked: what is allowed in has no answer without a rule for that", func(e *intent.Endpoint) {
			intenttest.Untracked(e, ask(web, in)...)
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, safe, []string{"!out>host tcp/80"}},
		{"untracked: a deny, failsafes apart", func(e *intent.Endpoint) {
			intenttest.Untracked(e, ask(deny, in, out)...)
		}, safe, []string{"!out>host tcp/80", "!out>a tcp/80", "out>host tcp/22", "host>out tcp/2379", "host>out udp/53"}},
		{"the one for all interfaces has no untracked stage", func(e *intent.Endpoint) { e.Link = "*"; intenttest.Untracked(e, ask(deny, in, out)...) }, safe, []string{"out>a tcp/80"}},
		{
			"no host endpoint is asked about what workloads may say to their host", func(e *intent.Endpoint) { e.Link = "*"; intenttest.Normal(e, ask(web, in)...) }, returns,
			[]string{"a>host tcp/80", "a>host tcp/81", "!out>host tcp/81"},
		},
		{
			"a workload whose interface has none of the prefixes is one nevertheless", func(e *intent.Endpoint) {
				e.Link = "*"
				intenttest.Normal(e, ask(nothing, in, out)...)
			}, &intent.HostSettings{EndpointToHost: intent.ToHostReturn, Prefixes: []string{"tap"}, FailsafeIn: safe.FailsafeIn, FailsafeOut: safe.FailsafeOut},
			append(slices.Clone(denied), "host>a tcp/80", "a>b tcp/80", "a>host tcp/80", "out>a tcp/80", "a>out tcp/80"),
		},
		{"by an address of the interface", func(e *intent.Endpoint) {
			e.Link, e.Addrs = "", []netip.Addr{netip.MustParseAddr("192.0.2.1")}
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, safe, slices.Concat(denied, failsafes)},
		{"by an address of an interface that is excluded", func(e *intent.Endpoint) {
			e.Link, e.Addrs = "", []netip.Addr{netip.MustParseAddr("192.0.2.1")}
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, &intent.HostSettings{Exclude: []string{"kube-ipvs0", "/^up[0-9]$/"}}, []string{"out>host tcp/80", "host>out tcp/80"}},
		{"by its name, though it is excluded", func(e *intent.Endpoint) {
			e.Link = "up0"
			intenttest.Normal(e, ask(nothing, in, out)...)
		}, &intent.HostSettings{FailsafeIn: safe.FailsafeIn, FailsafeOut: safe.FailsafeOut, Exclude: []string{"up0"}}, slices.Concat(denied, failsafes)},
	} {
		t.Run(tt.says, func(t *testing.T) {
			h := newHosted(t)
			h.d.Links([]ifmon.Change{{Link: ifmon.Link{Name: "up0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}})
			e := hep("up0")
			tt.hep(&e)
			b := pair(nil, nothing, deny, web, replies)
			b.Endpoints, b.Host = append(b.Endpoints, e), tt.set
			h.d.Merge(b)
			apply(t, h.d)
			h.check(t, tt.want...)
			h.d.Merge(intent.Batch{Host: asTables(tt.set)})
			apply(t, h.d)
			if text := h.canonical(t); strings.Contains(text, "chain pol-") || len(h.d.state.Plain()) > 0 {
				t.Errorf("by chains still: %v\n%s", h.d.state.Plain(), text)
			}
			h.check(t, tt.want...)
			h.d.Merge(intent.Batch{Removed: []intent.Key{e.ID}})
			apply(t, h.d)
			rested(t, h.d)
			if rs := h.ns.Run("nft", "list", "table", "inet", "twill"); strings.Contains(rs, "host-in") || strings.Contains(rs, "hep-") {
				t.Errorf("the endpoint is gone, and its chains are not:\n%s", rs)
			}
			h.check(t, "out>host tcp/80", "host>out tcp/80")
		})
	}
}

// TestAHostEndpointOfOneInterfaceIsThatOfNoOther: the endpoint for all interfaces is of each of them but those that another names,
// or expects an address of, and follows the addresses as they change.
func TestAHostEndpointOfOneInterfaceIsThatOfNoOther(t *testing.T) {
	h := newHosted(t)
	other := netnstest.New(t)
	h.ns.VethTo(other, "up1", "eth0")
	h.ns.Addr("up1", "198.51.100.1/24", "fd01::1/64")
	other.Addr("eth0", "198.51.100.2/24", "fd01::2/64")
	fromOther := func(want bool) {
		t.Helper()
		for _, a := range []string{"198.51.100.1", "fd01::1"} {
			within := netnstest.Silence
			if want {
				within = netnstest.Patience
			}
			p := netnstest.Probe{From: other, To: h.ns, Proto: "tcp", Dst: netip.AddrPortFrom(netip.MustParseAddr(a), 80)}
			if err := try(p, within); (err == nil) != want {
				t.Errorf("%s: %v, want that it passes: %v", p, err, want)
			}
		}
	}
	all, one := hep("*"), hep("up0")
	all.ID.Name, all.Label = "all", "all"
	intenttest.Profiles(&one, intent.PolicyID{Kind: "Profile", Name: "open"})
	links := func(up0, up1 string) {
		h.d.Links([]ifmon.Change{
			{Link: ifmon.Link{Name: "up0", Addrs: []netip.Prefix{prefix(up0)}}}, {Link: ifmon.Link{Name: "up1", Addrs: []netip.Prefix{prefix(up1)}}},
		})
	}
	step := func(endpoints ...intent.Endpoint) {
		b := pair(nil)
		b.Endpoints = append(b.Endpoints, endpoints...)
		h.d.Merge(b)
		apply(t, h.d)
	}
	links("192.0.2.1/24", "198.51.100.1/24")
	step(all)
	h.check(t, "!out>host tcp/80")
	fromOther(false)
	step(one)
	h.check(t, "out>host tcp/80")
	fromOther(false)
	one.Link, one.Addrs = "", []netip.Addr{netip.MustParseAddr("198.51.100.1")}
	step(one)
	h.check(t, "!out>host tcp/80")
	fromOther(true)
	links("198.51.100.1/24", "192.0.2.1/24") // the addresses change places
	apply(t, h.d)
	h.check(t, "out>host tcp/80")
	fromOther(false)
}
