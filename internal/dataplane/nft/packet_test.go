package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// hosted is a host with two workloads, a and b, and an outside with addresses of its own.
type hosted struct {
	*kernelConn
	a, b, out *netnstest.NS
	d         *Driver
}

// addresses of each party, IPv4 and IPv6.
var addrs = map[string][2]string{
	"a": {"10.65.0.1", "fd65::a"}, "b": {"10.65.0.2", "fd65::b"}, "out": {"192.0.2.2", "fd00::2"}, "host": {"192.0.2.1", "fd00::1"},
}

func newHosted(t testing.TB, links ...string) *hosted {
	t.Helper()
	k := newKernel(t)
	h := &hosted{kernelConn: k, a: netnstest.New(t), b: netnstest.New(t), out: netnstest.New(t), d: New(k, Config{})}
	k.ns.Forward()
	if links == nil {
		links = []string{"calia", "calib"}
	}
	for i, w := range []*netnstest.NS{h.a, h.b} {
		name := string(rune('a' + i))
		k.ns.VethTo(w, links[i], "eth0")
		k.ns.Addr(links[i], fmt.Sprintf("169.254.%d.1/32", i+1), fmt.Sprintf("fe80::%d:1/64", i+1))
		w.Addr("eth0", addrs[name][0]+"/32", addrs[name][1]+"/128")
		k.ns.Route(addrs[name][0] + " dev " + links[i])
		k.ns.Route(addrs[name][1] + "/128 dev " + links[i])
		w.Route(fmt.Sprintf("169.254.%d.1 dev eth0 scope link", i+1))
		w.Route(fmt.Sprintf("default via 169.254.%d.1 dev eth0 src %s", i+1, addrs[name][0]))
		w.Route(fmt.Sprintf("::/0 via fe80::%d:1 dev eth0", i+1))
	}
	k.ns.VethTo(h.out, "up0", "eth0")
	k.ns.Addr("up0", addrs["host"][0]+"/24", addrs["host"][1]+"/64")
	h.out.Addr("eth0", addrs["out"][0]+"/24", addrs["out"][1]+"/64")
	h.out.Route("default via " + addrs["host"][0])
	h.out.Route("::/0 via " + addrs["host"][1])
	return h
}

func (h *hosted) party(name string) *netnstest.NS {
	return map[string]*netnstest.NS{"a": h.a, "b": h.b, "out": h.out, "host": h.ns}[name]
}

// check probes in both families. A way is "a>b tcp/80", with a ! before it if nothing may come through.
func (h *hosted) check(t *testing.T, ways ...string) {
	t.Helper()
	for _, way := range ways {
		var from, to, proto string
		var port uint16
		spec, blocked := strings.CutPrefix(way, "!")
		ends, l4, _ := strings.Cut(spec, " ")
		from, to, _ = strings.Cut(ends, ">")
		proto, number, _ := strings.Cut(l4, "/")
		if number != "" {
			if _, err := fmt.Sscan(number, &port); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			p := netnstest.Probe{From: h.party(from), To: h.party(to), Proto: proto, Dst: netip.AddrPortFrom(netip.MustParseAddr(addrs[to][i]), port)}
			within := netnstest.Patience
			if blocked {
				within = netnstest.Silence
			}
			if err := try(p, within); (err != nil) != blocked {
				t.Errorf("%s: %v", p, err)
			}
			if t.Failed() {
				t.Fatalf("that was %q, %s", way, []string{"IPv4", "IPv6"}[i])
			}
		}
	}
}

// try probes, and tries again while the port is still an earlier probe's: its listener lives until its goroutine has
// seen that it is closed. That must count neither as blocked nor as a failure.
func try(p netnstest.Probe, within time.Duration) error {
	for deadline := time.Now().Add(netnstest.Patience); ; runtime.Gosched() {
		if err := p.Try(within); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

func tcp(action intent.Action, port uint16) intent.Rule {
	return intent.Rule{Action: action, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}}}
}

var anything = intent.Rule{Action: intent.Allow}

// pair is both workloads with these tiers on a, and profile "open" on both.
func pair(tiers []intent.Tier, ps ...intent.Policy) intent.Batch {
	open := intent.PolicyID{Kind: "Profile", Name: "open"}
	a, b := wl("a", "calia"), wl("b", "calib")
	intenttest.Normal(&a, tiers...)
	intenttest.Profiles(&a, open)
	intenttest.Profiles(&b, open)
	ps = append(ps, intent.Policy{ID: open, Ingress: []intent.Rule{anything}, Egress: []intent.Rule{anything}})
	return intent.Batch{Policies: ps, Endpoints: []intent.Endpoint{a, b}, InSync: true}
}

func pol(name string, in, out []intent.Rule) intent.Policy {
	return intent.Policy{ID: np(name), Tier: "t", Ingress: in, Egress: out}
}

func ids(names ...string) []intent.PolicyID {
	var out []intent.PolicyID
	for _, n := range names {
		out = append(out, np(n))
	}
	return out
}

func TestPacketsGoWherePolicyLetsThem(t *testing.T) {
	set := func(id string, ms ...string) intent.IPSet {
		s := intent.IPSet{ID: intent.SetID(id)}
		for _, m := range ms {
			s.Members = append(s.Members, member(m))
		}
		return s
	}
	from := func(action intent.Action, p intent.Peer) intent.Rule { return intent.Rule{Action: action, Src: p} }
	accept := &intent.HostSettings{EndpointToHost: intent.ToHostAccept}
	for _, tt := range []struct {
		name  string
		batch intent.Batch
		sets  []intent.IPSet
		host  *intent.HostSettings
		ways  []string
	}{
		{name: "profiles decide where no tier applies", batch: pair(nil), ways: []string{"out>a tcp/80", "a>b udp/53", "b>a icmp", "host>a tcp/80", "!a>host tcp/80", "!a>host icmp"}},
		{name: "the setting lets a workload reach its host", batch: pair(nil), host: accept, ways: []string{"a>host tcp/80"}},
		{
			name: "egress policy comes before the setting", batch: pair([]intent.Tier{tier("t", intent.Deny, nil, ids("p"))}, pol("p", nil, []intent.Rule{tcp(intent.Allow, 80)})),
			host: accept, ways: []string{"a>host tcp/80", "!a>host tcp/81", "a>out tcp/80", "!a>out tcp/81", "out>a tcp/81"},
		},
		{
			name: "a tier ends in its default", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)}, pol("p", []intent.Rule{tcp(intent.Allow, 80)}, nil)),
			ways: []string{"out>a tcp/80", "!out>a tcp/81", "!b>a icmp", "host>a tcp/81", "a>out tcp/81"},
		},
		{
			name: "a tier may end in pass", batch: pair([]intent.Tier{tier("t", intent.Pass, ids("p"), nil)}, pol("p", []intent.Rule{tcp(intent.Deny, 80)}, nil)),
			ways: []string{"!out>a tcp/80", "out>a tcp/81"},
		},
		{
			name: "pass skips the rest of the tier, not the next one", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p", "q"), nil), tier("u", intent.Deny, ids("r"), nil)},
				pol("p", []intent.Rule{tcp(intent.Pass, 80), tcp(intent.Pass, 82)}, nil), pol("q", []intent.Rule{tcp(intent.Deny, 80), tcp(intent.Allow, 81), tcp(intent.Deny, 82)}, nil),
				pol("r", []intent.Rule{tcp(intent.Allow, 80)}, nil)),
			ways: []string{"out>a tcp/80", "out>a tcp/81", "!out>a tcp/82", "!out>a tcp/83"},
		},
		{name: "log goes on, and a policy that only logs ends its tier", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)},
			pol("p", []intent.Rule{{Action: intent.Log}, tcp(intent.Allow, 80), {Action: intent.Allow, Void: true}}, nil)), ways: []string{"out>a tcp/80", "!out>a tcp/81"}},
		{
			name: "a set matches its hosts and its prefixes", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)},
				pol("p", []intent.Rule{from(intent.Allow, intent.Peer{Sets: []intent.SetID{"s"}})}, nil)),
			sets: []intent.IPSet{set("s", "10.65.0.2/32", "fd65::b/128", "192.0.2.0/28", "192.0.2.0/24", "fd00::/64")}, ways: []string{"b>a tcp/80", "out>a tcp/80"},
		},
		{
			name: "not in a set means in neither kind", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)},
				pol("p", []intent.Rule{from(intent.Allow, intent.Peer{NotSets: []intent.SetID{"s"}})}, nil)),
			sets: []intent.IPSet{set("s", "10.65.0.2/32", "fd65::b/128", "192.0.3.0/24", "fd01::/64")}, ways: []string{"!b>a tcp/80", "out>a tcp/80"},
		},
		{
			name: "an empty set matches nobody, and its negation all", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), ids("q"))},
				pol("p", []intent.Rule{from(intent.Allow, intent.Peer{Sets: []intent.SetID{"s"}})}, nil), pol("q", nil, []intent.Rule{from(intent.Allow, intent.Peer{NotSets: []intent.SetID{"s"}})})),
			sets: []intent.IPSet{set("s")}, ways: []string{"!b>a tcp/80", "a>out tcp/80"},
		},
		{
			name: "nets of one family match no other, also those that must not be", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)},
				pol("p", []intent.Rule{from(intent.Allow, intent.Peer{Nets: []netip.Prefix{prefix("10.65.0.2/32")}}), from(intent.Allow, intent.Peer{Nets: []netip.Prefix{prefix("fd65::b/128")}, NotNets: []netip.Prefix{prefix("fd65::a/128")}})}, nil)),
			ways: []string{"b>a tcp/80", "!out>a tcp/80"},
		},
		{
			name: "named ports are matched with their address", batch: pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)},
				pol("p", []intent.Rule{{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{PortSets: []intent.SetID{"n"}, Ports: []intent.PortRange{{Min: 90, Max: 91}}}}}, nil)),
			sets: []intent.IPSet{{ID: "n", Kind: intent.SetPorts, Members: []intent.Member{
				{Prefix: prefix("10.65.0.1/32"), Proto: 6, Port: 80},
				{Prefix: prefix("fd65::a/128"), Proto: 6, Port: 80},
				{Prefix: prefix("10.65.0.1/32"), Proto: 17, Port: 81},
				{Prefix: prefix("fd65::b/128"), Proto: 6, Port: 81},
			}}},
			ways: []string{"out>a tcp/80", "out>a tcp/91", "!out>a tcp/81", "!out>a udp/80"},
		},
		{name: "a closed endpoint carries nothing", batch: func() intent.Batch {
			b := pair(nil)
			b.Endpoints[0].Closed = "is wrong"
			return b
		}(), host: accept, ways: []string{"!out>a tcp/80", "!a>out tcp/80", "!a>host tcp/80", "!b>a icmp", "b>out tcp/80"}},
		{name: "an endpoint without policy and profile carries nothing", batch: func() intent.Batch {
			b := pair(nil)
			intenttest.Profiles(&b.Endpoints[0])
			return b
		}(), host: accept, ways: []string{"!out>a tcp/80", "!a>out tcp/80", "!a>host tcp/80"}},
		{name: "an interface that nobody programmed carries nothing", batch: func() intent.Batch {
			b := pair(nil)
			b.Endpoints = b.Endpoints[1:]
			return b
		}(), host: accept, ways: []string{"!out>a tcp/80", "!a>out tcp/80", "!a>host tcp/80", "out>b tcp/80"}},
		{name: "an endpoint whose policy was not sent carries nothing", batch: pair([]intent.Tier{tier("t", intent.Pass, ids("gone"), nil)}), host: accept, ways: []string{"!out>a tcp/80", "!a>out tcp/80", "out>b tcp/80"}},
		{
			name: "a closed policy denies", batch: pair([]intent.Tier{tier("t", intent.Pass, ids("p"), nil)}, intent.Policy{ID: np("p"), Tier: "t", Closed: "cannot be read", Ingress: []intent.Rule{anything}}),
			ways: []string{"!out>a tcp/80", "a>out tcp/80"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHosted(t)
			h.check(t, "out>a tcp/80") // without a table, all is open
			tt.batch.IPSets, tt.batch.Host = tt.sets, tt.host
			h.d.Merge(tt.batch)
			apply(t, h.d)
			h.check(t, tt.ways...)
			if t.Failed() {
				t.Log(h.ns.Run("nft", "list", "ruleset"))
			}
		})
	}
}

// dropped is how many packets the rules with a comment have counted.
func (h *hosted) dropped(t *testing.T, comment string) uint64 {
	t.Helper()
	rs, err := h.List(kernel.TableName)
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, r := range rs.Rules {
		for _, x := range r.Exprs {
			if c, ok := x.(nftables.Counter); ok && r.Comment == comment {
				n += c.Packets
			}
		}
	}
	return n
}

// droppedNow is dropped once it is so many at least: a packet that was sent may be on its way for long on a busy machine.
func (h *hosted) droppedNow(t *testing.T, comment string, least uint64) (n uint64) {
	t.Helper()
	for end := time.Now().Add(netnstest.Patience); ; runtime.Gosched() {
		if n = h.dropped(t, comment); n >= least || time.Now().After(end) {
			return n
		}
	}
}

func TestAFlowOutlivesItsPolicyUntilItIsRevoked(t *testing.T) {
	h := newHosted(t)
	h.d.Merge(pair(nil))
	apply(t, h.d)
	l, err := h.a.ListenTCP(netip.MustParseAddrPort("10.65.0.1:80"))
	if err != nil {
		t.Fatal(err)
	}
	netnstest.Echo(l)
	c, err := h.out.DialTCP(netip.AddrPort{}, netip.MustParseAddrPort("10.65.0.1:80"), time.Now().Add(netnstest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	alive := func(within time.Duration) error { return netnstest.Exchange(c, time.Now().Add(within)) }
	if err := alive(netnstest.Patience); err != nil {
		t.Fatal(err)
	}
	closed := pair([]intent.Tier{tier("t", intent.Deny, ids("p"), nil)}, pol("p", nil, nil))
	h.d.Merge(closed)
	apply(t, h.d)
	if err := alive(netnstest.Patience); err != nil {
		t.Errorf("an established flow was cut: %v", err)
	}
	h.check(t, "!out>a tcp/80")
	h.ns.Run("nft", fmt.Sprintf("add table inet revoke; add chain inet revoke f { type filter hook prerouting priority -140; }; "+
		"add rule inet revoke f ct state established ct mark set ct mark or %#x", kernel.ConntrackRevoked))
	if alive(netnstest.Silence) == nil {
		t.Error("a revoked flow lives")
	}
	if h.droppedNow(t, "revoked", 1) == 0 {
		t.Error("nothing was dropped as revoked")
	}
}

func TestTunnelsAndInvalidPacketsFromWorkloadsAreDropped(t *testing.T) {
	h := newHosted(t)
	b := pair(nil)
	b.Host = &intent.HostSettings{EndpointToHost: intent.ToHostAccept}
	h.d.Merge(b)
	apply(t, h.d)
	h.check(t, "!a>out udp/4789", "out>a udp/4789", "!a>host udp/4789", "a>host udp/4790")
	for _, way := range [][2]string{{"a", "out"}, {"out", "a"}} {
		before := h.dropped(t, "invalid")
		h.party(way[0]).Do(func() {
			c, err := net.Dial("ip4:tcp", addrs[way[1]][0])
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			reset := make([]byte, 20) // of no connection, and with a wrong checksum
			reset[12], reset[13] = 5<<4, 4
			if _, err := c.Write(reset); err != nil {
				t.Error(err)
			}
		})
		if h.droppedNow(t, "invalid", before+1) == before {
			t.Errorf("an invalid packet from %s to %s was not dropped", way[0], way[1])
		}
	}
	loose := New(h.kernelConn, Config{})
	loose.Merge(intent.Batch{Host: &intent.HostSettings{AllowVXLAN: true}})
	loose.Merge(pair(nil))
	apply(t, loose)
	h.check(t, "a>out udp/4789")
	if h.dropped(t, "VXLAN from a workload") != 0 {
		t.Error("VXLAN is still dropped")
	}
}

func TestInterfacesWithOtherNamesAreGuardedOnceTheyAreKnown(t *testing.T) {
	h := newHosted(t, "tapa", "tapb")
	b := pair(nil)
	b.Endpoints[0].Link, b.Endpoints[1].Link = "tapa", "tapb"
	b.Endpoints[1].Closed = "is wrong"
	h.d.Merge(b)
	apply(t, h.d)
	h.check(t, "out>a tcp/80", "!out>b tcp/80", "!b>out tcp/80", "!a>b tcp/80")
}
