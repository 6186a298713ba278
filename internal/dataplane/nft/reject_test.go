package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func rejects(proto uint8, port uint16) intent.Rule {
	r := tcp(intent.Deny, port)
	r.Protocol, r.Reject = proto, true
	return r
}

// answers tries ways such as "a>b tcp/80" in both families: the sender must get an answer at once; with a ! before it, none.
func (h *hosted) answers(t *testing.T, ways ...string) {
	t.Helper()
	for _, way := range ways {
		spec, silent := strings.CutPrefix(way, "!")
		ends, l4, _ := strings.Cut(spec, " ")
		from, to, _ := strings.Cut(ends, ">")
		proto, number, _ := strings.Cut(l4, "/")
		var port uint16
		if _, err := fmt.Sscan(number, &port); err != nil {
			t.Fatal(err)
		}
		for i, a := range addrs[to] {
			within := netnstest.Patience
			if silent {
				within = netnstest.Silence
			}
			dst := netip.AddrPortFrom(netip.MustParseAddr(a), port)
			err := send(netnstest.Probe{From: h.party(from), To: h.party(to), Proto: proto, Dst: dst}, within)
			// A port that is closed would answer otherwise: with a reset, too, but there is a listener; and with ECONNREFUSED to UDP.
			want := map[string][2]error{"tcp": {syscall.ECONNREFUSED, syscall.ECONNREFUSED}, "udp": {syscall.EHOSTUNREACH, syscall.EACCES}}[proto][i]
			if err == nil || errors.Is(err, want) == silent {
				t.Fatalf("%s to %s: %v, want %v: %v", way, dst, err, want, !silent)
			}
		}
	}
}

// send opens a flow to a port on which somebody listens, and returns what answer the sender gets.
func send(p netnstest.Probe, within time.Duration) error {
	if p.Proto == "tcp" {
		return try(p, within)
	}
	var c net.Conn
	var err error
	p.From.Do(func() { c, err = net.Dial("udp", p.Dst.String()) }) // a connected socket receives errors
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("twill")); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err = c.Read(make([]byte, 8))
	return err
}

func rejecting(name string) intent.Policy {
	rs := []intent.Rule{rejects(6, 81), rejects(17, 81), {Action: intent.Deny, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 82, Max: 82}}}}, {Action: intent.Deny, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 82, Max: 82}}}}, anything}
	return pol(name, rs, rs)
}

func newRejecting(t *testing.T) *hosted {
	h := newHosted(t)
	h.ns.Sysctl("ipv4/icmp_ratelimit", "0") // the kernel sends so many errors in a second and no more
	h.ns.Sysctl("ipv6/icmp/ratelimit", "0")
	return h
}

func TestTheSenderOfARejectedPacketGetsAnAnswer(t *testing.T) {
	const way, silently = "tcp/81", "tcp/82"
	ways := func(ends ...string) (out []string) {
		for _, e := range ends {
			out = append(out, e+" tcp/81", e+" udp/81", "!"+e+" tcp/82", "!"+e+" udp/82")
		}
		return out
	}
	p, nothing := rejecting("p"), pol("nothing", nil, nil)
	toHost := &intent.HostSettings{EndpointToHost: intent.ToHostReturn}
	for _, tt := range []struct {
		name     string
		tiers    []intent.Tier          // of a
		other    []intent.Tier          // of b
		hep      func(*intent.Endpoint) // on up0; nil: none
		answered []string
		pass     []string
	}{
		{name: "by ingress policy of a workload", tiers: ask(p, in), answered: ways("out>a", "b>a"), pass: []string{"out>a tcp/80", "b>a udp/80", "a>out tcp/81"}},
		{name: "by egress policy of a workload, also on its way to its host", tiers: ask(p, out), answered: ways("a>out", "a>b", "a>host"), pass: []string{"a>out tcp/80", "a>host tcp/80", "out>a tcp/81"}},
		{name: "though nothing else may be sent to the sender", tiers: ask(p, in), other: ask(nothing, in), answered: ways("b>a"), pass: []string{"b>a tcp/80"}},
		{name: "though the host may send nothing", tiers: ask(p, in), hep: func(e *intent.Endpoint) { e.Link = "*"; intenttest.Normal(e, ask(nothing, in, out)...) }, answered: ways("out>a", "b>a"), pass: []string{"out>a tcp/80"}},
		{name: "by what a host endpoint receives", hep: func(e *intent.Endpoint) { intenttest.Normal(e, ask(p, in)...) }, answered: ways("out>host"), pass: []string{"out>host tcp/80", "out>a tcp/81"}},
		{name: "by the host endpoint for all interfaces", hep: func(e *intent.Endpoint) { e.Link = "*"; intenttest.Normal(e, ask(p, in)...) }, answered: ways("out>host"), pass: []string{"out>host tcp/80", "a>host tcp/81"}},
		{name: "by that one, of what comes in from a workload", hep: func(e *intent.Endpoint) { e.Link = "*"; intenttest.Forward(e, ask(p, in)...) }, answered: ways("a>out", "out>a", "a>b"), pass: []string{"a>out tcp/80", "a>host tcp/81"}},
		{name: "by that one, of what goes out to a workload", hep: func(e *intent.Endpoint) { e.Link = "*"; intenttest.Forward(e, ask(p, out)...) }, answered: ways("out>a", "a>out", "b>a"), pass: []string{"out>a tcp/80"}},
		{name: "by that one before DNAT", hep: func(e *intent.Endpoint) { e.Link = "*"; intenttest.PreDNAT(e, ask(p, in)...) }, answered: ways("out>host", "a>out", "a>host"), pass: []string{"a>out tcp/80"}},
		{name: "by what is forwarded in", hep: func(e *intent.Endpoint) { intenttest.Forward(e, ask(p, in)...) }, answered: ways("out>a"), pass: []string{"out>a tcp/80", "out>host tcp/81"}},
		{name: "by what is forwarded out", hep: func(e *intent.Endpoint) { intenttest.Forward(e, ask(p, out)...) }, answered: ways("a>out"), pass: []string{"a>out tcp/80"}},
		{name: "before DNAT", hep: func(e *intent.Endpoint) { intenttest.PreDNAT(e, ask(p, in)...) }, answered: ways("out>host", "out>a"), pass: []string{"out>host tcp/80"}},
		{name: "not before conntrack", hep: func(e *intent.Endpoint) { intenttest.Untracked(e, ask(p, in, out)...) }, answered: []string{"!out>host " + way, "!out>a " + way, "!host>out " + way}},
		{name: "not of what the host itself sends", hep: func(e *intent.Endpoint) { intenttest.Normal(e, ask(p, in, out)...) }, answered: append(ways("out>host"), "!host>out "+way, "!host>out udp/81", "!host>out "+silently), pass: []string{"host>out tcp/80"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newRejecting(t)
			b := pair(tt.tiers, p, nothing)
			b.Host = toHost
			intenttest.Normal(&b.Endpoints[1], tt.other...)
			if tt.hep != nil {
				e := hep("up0")
				intenttest.Profiles(&e, b.Endpoints[0].Policies().Profiles...)
				tt.hep(&e)
				b.Endpoints = append(b.Endpoints, e)
			}
			h.d.Merge(b)
			if bad := slices.DeleteFunc(apply(t, h.d), func(o intent.Outcome) bool { return o.Err == nil }); len(bad) > 0 {
				t.Fatalf("not in force: %+v", bad)
			}
			h.answers(t, tt.answered...)
			h.check(t, tt.pass...)
			if t.Failed() {
				t.Log(h.ns.Run("nft", "list", "ruleset"))
			}
		})
	}
}

// TestAPolicyRejectsWhereItCan is one policy for a workload and for what the host sends, which the kernel would refuse to
// reject; and its way there and back.
func TestAPolicyRejectsWhereItCan(t *testing.T) {
	t.Parallel()
	h := newRejecting(t)
	loud, plain := rejecting("p"), rejecting("p")
	plain.Egress = slices.Clone(plain.Egress)
	for i := range plain.Egress {
		plain.Egress[i].Reject = false
	}
	e := hep("up0")
	intenttest.Profiles(&e, intent.PolicyID{Kind: "Profile", Name: "open"})
	intenttest.Normal(&e, ask(loud, in, out)...)
	b := pair(ask(loud, out), plain)
	b.Endpoints = append(b.Endpoints, e)
	silentChains := func() int { return strings.Count(h.ns.Run("nft", "list", "table", "inet", "twill"), "chain mute-") }
	step := func(what string, b intent.Batch, silent int, answered ...string) {
		t.Helper()
		h.d.Merge(b)
		for _, o := range apply(t, h.d) {
			if o.Err != nil {
				t.Fatalf("%s: %s: %v", what, o.Key, o.Err)
			}
		}
		if n := silentChains(); n != silent {
			t.Errorf("%s: %d silent chains, want %d", what, n, silent)
		}
		h.answers(t, answered...)
		h.check(t, "host>out tcp/80", "a>out tcp/80", "!host>out tcp/81", "!a>out tcp/82")
	}
	step("nothing rejects", b, 0, "!a>out tcp/81", "!host>out tcp/81")
	step("it rejects", intent.Batch{Policies: []intent.Policy{loud}}, 1, "a>out tcp/81", "a>out udp/81", "!host>out tcp/81")
	step("it does not", intent.Batch{Policies: []intent.Policy{plain}}, 0, "!a>out tcp/81", "!host>out tcp/81")
	step("it rejects again", intent.Batch{Policies: []intent.Policy{loud}}, 1, "a>out tcp/81", "!host>out tcp/81")
	step("the host endpoint asks it about what comes in alone", func() intent.Batch {
		e := e
		intenttest.Normal(&e, append(ask(loud, in), ask(plain)...)...)
		p := pol("q", nil, []intent.Rule{tcp(intent.Deny, 81), anything})
		intenttest.Normal(&e, append(slices.Clone(e.Policies().Normal), ask(p, out)...)...)
		return intent.Batch{Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{e}}
	}(), 0, "a>out tcp/81", "out>host tcp/81", "!host>out tcp/81")
	step("and again about both", intent.Batch{Endpoints: []intent.Endpoint{e}}, 1, "a>out tcp/81", "out>host tcp/81", "!host>out tcp/81")

	fresh := New(h.kernelConn, Config{})
	all := pair(ask(loud, out), loud, pol("q", nil, []intent.Rule{tcp(intent.Deny, 81), anything}))
	all.Endpoints = append(all.Endpoints, e)
	before := h.genID(t)
	fresh.Merge(all)
	apply(t, fresh)
	if h.genID(t) != before {
		t.Error("an agent that restarts changed a table that was as desired")
	}
}
