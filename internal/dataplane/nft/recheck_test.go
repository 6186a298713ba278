package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

var _ dataplane.Rechecking = (*Driver)(nil)

// datagrams is an established flow of UDP: the client began it, and the server answered.
type datagrams struct {
	client, server *net.UDPConn
	to             net.Addr // of the server
	back           net.Addr // of the client, as the server sees it
}

// establish begins a flow, and waits until it is established. A way is "a>out".
func (h *hosted) establish(t testing.TB, way string, family int, port uint16) *datagrams {
	t.Helper()
	h.ns.KeepFlows()
	from, to, _ := strings.Cut(way, ">")
	addr := func(party string) netip.Addr { return netip.MustParseAddr(addrs[party][family]) }
	server, err := h.party(to).ListenUDP(netip.AddrPortFrom(addr(to), port))
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.party(from).ListenUDP(netip.AddrPortFrom(addr(from), 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(); _ = client.Close() })
	f := &datagrams{client: client, server: server, to: server.LocalAddr()}
	buf := make([]byte, 16)
	for deadline := time.Now().Add(netnstest.Patience); f.back == nil; {
		if time.Now().After(deadline) {
			t.Fatalf("%s, port %d: the flow was not established", way, port)
		}
		_, _ = client.WriteTo([]byte("first"), f.to)
		_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, back, err := server.ReadFrom(buf); err == nil {
			_, _ = server.WriteTo([]byte("answer"), back)
			_ = client.SetReadDeadline(time.Now().Add(netnstest.Patience))
			if _, _, err := client.ReadFrom(buf); err == nil {
				f.back = back
			}
		}
	}
	return f
}

const volley = 50 // packets, less than what waits for a reader at a socket

// volleys is how many were sent: what arrives late is not counted as of a later one.
var volleys int

// forth sends packets as the flow began, and counts what arrives; against does it the other way.
func (f *datagrams) forth(t testing.TB, want int) int {
	return cross(t, f.client, f.server, f.to, want)
}

func (f *datagrams) against(t testing.TB, want int) int {
	return cross(t, f.server, f.client, f.back, want)
}

func cross(t testing.TB, from, to *net.UDPConn, at net.Addr, want int) (arrived int) {
	t.Helper()
	volleys++
	packet := fmt.Sprint("volley ", volleys)
	for range volley {
		if _, err := from.WriteTo([]byte(packet), at); err != nil && want > 0 {
			t.Error(err)
		}
	}
	within := netnstest.Patience
	if want == 0 {
		within = netnstest.Silence
	}
	_ = to.SetReadDeadline(time.Now().Add(within))
	for buf := make([]byte, 64); arrived < max(want, 1); {
		n, _, err := to.ReadFrom(buf)
		if err != nil {
			break
		}
		if string(buf[:n]) == packet {
			arrived++
		}
	}
	return arrived
}

// denial denies UDP to deniedPort and the next ones, of which each flow has one.
func denial() intent.Rule {
	return intent.Rule{Action: intent.Deny, Protocol: 17, Dst: intent.Peer{Ports: []intent.PortRange{{Min: deniedPort, Max: allowedPort - 1}}}}
}

const deniedPort, allowedPort = 7000, 7100

// asked is both workloads, of which one is asked by a policy.
func asked(in, out []intent.Rule) intent.Batch {
	p := pol("p", in, out)
	b := pair([]intent.Tier{tier("t", intent.Deny, ids("p"), ids("p"))}, p)
	b.Host = &intent.HostSettings{EndpointToHost: intent.ToHostAccept}
	return b
}

// TestWhatAChangeDeniesStopsWithItsTransaction: not one packet of an established flow that goes as the flow began passes after a
// change that denies it is in force, though nobody has looked at the kernel's table of connections. What goes against it passes until
// somebody has, and what is allowed loses nothing.
func TestWhatAChangeDeniesStopsWithItsTransaction(t *testing.T) {
	open := []intent.Rule{anything}
	closed := []intent.Rule{denial(), anything}
	for _, tt := range []struct {
		name    string
		in, out []intent.Rule
		ways    []string // of what is denied
		others  []string // of what goes on, though to the same port
	}{
		{"ingress denies", closed, open, []string{"out>a", "b>a"}, []string{"a>out", "a>b", "a>host"}},
		{"egress denies", open, closed, []string{"a>out", "a>b", "a>host"}, []string{"out>a", "b>a"}},
		{"all ingress is denied", nil, open, []string{"out>a", "b>a"}, []string{"a>out", "a>b", "a>host"}},
	} {
		for family := range 2 {
			t.Run(fmt.Sprintf("%s, IPv%d", tt.name, 4+2*family), func(t *testing.T) {
				h := newHosted(t)
				h.d = New(h.kernelConn, Config{Recheck: true})
				h.d.Merge(asked(open, open))
				apply(t, h.d)
				atRest := h.canonical(t)
				var denied, going []*datagrams
				for i, way := range tt.ways {
					denied = append(denied, h.establish(t, way, family, deniedPort+uint16(i)))
				}
				for i, way := range tt.others {
					going = append(going, h.establish(t, way, family, deniedPort+50+uint16(i)))
				}
				if tt.in != nil {
					for i, way := range slices.Concat(tt.ways, tt.others) {
						going = append(going, h.establish(t, way, family, allowedPort+uint16(i)))
					}
				}
				b := intent.Batch{Policies: []intent.Policy{pol("p", tt.in, tt.out)}}
				h.d.Merge(b)
				apply(t, h.d)
				h.Settle() // what was on its way before
				for i, f := range denied {
					if n := f.forth(t, 0); n > 0 {
						t.Errorf("%s: packets of a denied flow arrived", tt.ways[i])
					}
					if n := f.against(t, volley); n != volley {
						t.Errorf("%s: %d of %d replies arrived, which nobody has marked", tt.ways[i], n, volley)
					}
				}
				for i, f := range going {
					if n := f.forth(t, volley); n != volley {
						t.Errorf("flow %d, which is allowed: %d of %d packets arrived", i, n, volley)
					}
					if n := f.against(t, volley); n != volley {
						t.Errorf("flow %d, which is allowed: %d of %d replies arrived", i, n, volley)
					}
				}

				h.d.Merge(intent.Batch{Policies: []intent.Policy{pol("p", open, open)}})
				apply(t, h.d)
				h.d.Judged(h.d.Standing())
				apply(t, h.d)
				if now := h.canonical(t); now != atRest {
					t.Errorf("something is left of it:\n%s", lineDiff(atRest, now))
				}
			})
		}
	}
}

// rechecked says whose established flows the kernel decides about again.
func (k *kernelConn) rechecked(t testing.TB) string {
	t.Helper()
	rs, err := k.List("twill")
	if err != nil {
		t.Fatal(err)
	}
	var names, chains []string
	for _, s := range rs.Sets {
		if s.Name == setRecheck {
			for _, el := range s.Elements {
				names = append(names, strings.TrimRight(string(el.Key), "\x00"))
			}
		}
	}
	for _, c := range rs.Chains {
		if strings.HasPrefix(c.Name, "recheck-") {
			chains = append(chains, c.Name)
		}
	}
	if (len(chains) == 3) != (len(names) > 0) {
		t.Errorf("interfaces %v, and chains %v", names, chains)
	}
	return strings.Join(slices.Sorted(slices.Values(names)), " ")
}

// TestOnlyWhatMayDenyIsRechecked: who is concerned by a change that may deny, and nobody else, until it is said that this change
// was judged.
func TestOnlyWhatMayDenyIsRechecked(t *testing.T) {
	k := newKernel(t)
	d := New(k, Config{Recheck: true})
	rule := intent.Rule{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"s:good"}, NotSets: []intent.SetID{"s:bad"}}}
	a, b := wl("a", "calia"), wl("b", "calib")
	a.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{tier("t", intent.Deny, ids("p"), ids("p"))}})
	b.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{tier("t", intent.Deny, ids("q"), ids("q"))}})
	set := func(id string) intent.IPSet {
		return intent.IPSet{ID: intent.SetID(id), Members: []intent.Member{member("10.0.0.1/32")}}
	}
	d.Merge(intent.Batch{
		IPSets: []intent.IPSet{set("s:good"), set("s:bad")}, Policies: []intent.Policy{pol("p", []intent.Rule{rule}, nil), pol("q", []intent.Rule{anything}, nil)},
		Endpoints: []intent.Endpoint{a, b}, InSync: true,
	})
	apply(t, d)
	delta := func(id string, added bool) intent.Batch {
		m := intent.MemberDelta{Set: intent.SetID(id)}
		if x := member("10.0.0.2/32"); added {
			m.Added = []intent.Member{x}
		} else {
			m.Removed = []intent.Member{x}
		}
		return intent.Batch{Members: []intent.MemberDelta{m}}
	}
	for _, tt := range []struct {
		name string
		b    intent.Batch
		want string
	}{
		{"a new workload", intent.Batch{Endpoints: []intent.Endpoint{wl("c", "calic")}}, ""},
		{"more of whom is allowed", delta("s:good", true), ""},
		{"less of whom is allowed", delta("s:good", false), "calia"},
		{"more of whom is not", delta("s:bad", true), "calia"},
		{"less of whom is not", delta("s:bad", false), ""},
		{"another policy", intent.Batch{Policies: []intent.Policy{pol("q", nil, nil)}}, "calib"},
		{"a staged policy", intent.Batch{Policies: []intent.Policy{{ID: intent.PolicyID{Kind: "StagedNetworkPolicy", Namespace: "prod", Name: "q"}}}}, ""},
		{"another endpoint", intent.Batch{Endpoints: []intent.Endpoint{a}}, "calia"},
		{"an endpoint that goes", intent.Batch{Removed: []intent.Key{wl("c", "").ID}}, ""},
		{"flows are not to be cut", intent.Batch{Host: &intent.HostSettings{KeepDenied: true}, Policies: []intent.Policy{pol("q", nil, nil)}}, ""},
		{"nor later", intent.Batch{Policies: []intent.Policy{pol("q", nil, nil)}}, ""},
		{"but then they are", intent.Batch{Host: &intent.HostSettings{}}, ""},
		{"what is both", intent.Batch{Policies: []intent.Policy{pol("q", nil, nil), pol("p", []intent.Rule{rule}, nil)}}, "calia calib"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.Merge(tt.b)
			apply(t, d)
			if got := k.rechecked(t); got != tt.want {
				t.Errorf("rechecked: %q, want %q", got, tt.want)
			}
			d.Judged(d.Standing())
			apply(t, d)
			if got := k.rechecked(t); got != "" {
				t.Errorf("rechecked, although it was judged: %q", got)
			}
		})
	}

	d.Merge(intent.Batch{Policies: []intent.Policy{pol("p", nil, nil)}})
	apply(t, d)
	first := d.Standing()
	d.Merge(intent.Batch{Policies: []intent.Policy{pol("q", nil, nil)}})
	apply(t, d)
	d.Judged(first)
	apply(t, d)
	if got := k.rechecked(t); got != "calib" {
		t.Errorf("rechecked: %q, want what the second change concerns, which nobody judged", got)
	}
	second := d.Standing()
	d.Merge(intent.Batch{Policies: []intent.Policy{pol("q", nil, nil)}})
	apply(t, d)
	d.Judged(second)
	apply(t, d)
	if got := k.rechecked(t); got != "calib" {
		t.Errorf("rechecked: %q, want what a later change concerns again", got)
	}
}

// TestAnAgentThatDiedLeavesItsRecheckToTheNext: what it had not judged stays in the kernel, whatever the next one knows, until that has.
func TestAnAgentThatDiedLeavesItsRecheckToTheNext(t *testing.T) {
	h := newHosted(t)
	h.d = New(h.kernelConn, Config{Recheck: true})
	open := asked([]intent.Rule{anything}, []intent.Rule{anything})
	h.d.Merge(open)
	apply(t, h.d)
	atRest := h.canonical(t)
	f := h.establish(t, "out>a", 0, deniedPort)
	h.d.Merge(asked([]intent.Rule{denial(), anything}, []intent.Rule{anything}))
	apply(t, h.d)
	for _, judges := range []bool{true, false} {
		next := New(h.kernelConn, Config{Recheck: judges})
		b := asked([]intent.Rule{denial(), anything}, []intent.Rule{anything})
		b.InSync = false
		for _, step := range []string{"before it is in sync", "when it is"} {
			next.Merge(b)
			apply(t, next)
			if got := h.rechecked(t); judges && got != "calia calib" {
				t.Fatalf("%s, it rechecks %q", step, got)
			}
			if n := f.forth(t, 0); judges && n > 0 {
				t.Errorf("%s, a denied flow lives again", step)
			}
			b = intent.Batch{InSync: true}
		}
		if !judges {
			if got := h.rechecked(t); got != "" {
				t.Errorf("nobody judges, and it rechecks %q", got)
			}
			continue
		}
		differences, err := next.Differences(t.Context())
		if err != nil || len(differences) > 0 {
			t.Errorf("the table is as it should be: %v, %v", differences, err)
		}
		next.Merge(open)
		apply(t, next)
		next.Judged(next.Standing())
		apply(t, next)
		if now := h.canonical(t); now != atRest {
			t.Errorf("something is left of it:\n%s", lineDiff(atRest, now))
		}
		next.Merge(asked([]intent.Rule{denial(), anything}, []intent.Rule{anything})) // for the one that does not judge
		apply(t, next)
	}
}

// stepsOf is a kernel that says in which of its transactions something was rechecked.
type stepsOf struct {
	*kernelConn
	t    *testing.T
	seen []string
}

func (s *stepsOf) Commit(b *nftables.Batch) error {
	err := s.kernelConn.Commit(b)
	s.seen = append(s.seen, s.rechecked(s.t))
	return err
}

// TestWhatMovesIsRecheckedWithTheLastStep: in between, what is allowed before and after may be denied to first packets; an established flow
// must not see it.
func TestWhatMovesIsRecheckedWithTheLastStep(t *testing.T) {
	k := &stepsOf{kernelConn: newKernel(t), t: t}
	d := New(k, Config{Recheck: true})
	a := wl("a", "calia")
	a.Group = intent.GroupOf(intent.Stages{Normal: []intent.Tier{tier("t", intent.Deny, ids("p"), nil)}})
	from := func(action intent.Action, set intent.SetID) intent.Rule {
		return intent.Rule{Action: action, Src: intent.Peer{Sets: []intent.SetID{set}}}
	}
	x := member("10.0.0.1/32")
	d.Merge(intent.Batch{
		IPSets:    []intent.IPSet{{ID: "s:one", Members: []intent.Member{x}}, {ID: "s:two", Members: []intent.Member{member("10.0.0.2/32")}}},
		Policies:  []intent.Policy{pol("p", []intent.Rule{from(intent.Allow, "s:one"), from(intent.Allow, "s:two")}, nil)},
		Endpoints: []intent.Endpoint{a}, InSync: true,
	})
	apply(t, d)
	k.seen = nil
	d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: "s:one", Removed: []intent.Member{x}}, {Set: "s:two", Added: []intent.Member{x}}}})
	apply(t, d)
	if want := []string{"", "calia"}; fmt.Sprint(k.seen) != fmt.Sprint(want) {
		t.Errorf("after each transaction, rechecked: %q, want %q", k.seen, want)
	}
}
