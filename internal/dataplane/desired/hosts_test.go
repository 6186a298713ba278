package desired_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

func hep(name, link string) intent.Endpoint {
	return intent.Endpoint{ID: intent.EndpointID{Kind: intent.Host, Name: name}, Link: link}
}

func ask(name string) []intent.Tier {
	return []intent.Tier{{Name: "t", Ingress: []intent.PolicyID{np(name)}, Egress: []intent.PolicyID{np(name)}}}
}

// TestHostEndpointsAreAskedAtTheirStages: the same policy at each stage, and what packets become there.
func TestHostEndpointsAreAskedAtTheirStages(t *testing.T) {
	allow := intent.Rule{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: 80, Max: 80}}}}
	ps := []intent.Policy{pol("web", allow), pol("none"), pol("rejects", intent.Rule{Reject: true, Protocol: 6}), pol("deny", intent.Rule{})}
	failsafe := &intent.HostSettings{FailsafeIn: []intent.Failsafe{{Protocol: 6, Port: 22}}, FailsafeOut: []intent.Failsafe{{Protocol: 17, Port: 53}}}
	addr := netip.MustParseAddr
	tcp := func(in, out string, port uint16) sim.Packet {
		return sim.Packet{In: in, Out: out, Src: addr("192.0.2.9"), Dst: addr("192.0.2.1"), Proto: 6, SrcPort: 999, DstPort: port}
	}
	for _, tt := range []struct {
		name string
		hep  intent.Endpoint
		p    sim.Packet
		want string // how it ends
	}{
		{"in, allowed", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("web")...) }), tcp("eth0", "", 80), "passes"},
		{"in, no rule of the tier", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("web")...) }), tcp("eth0", "", 81), intent.ReasonEndOfTier},
		{"in, no policy at all", hep("h", "eth0"), tcp("eth0", "", 80), intent.ReasonNoProfileMatch},
		{"in, by another interface", hep("h", "eth0"), tcp("eth1", "", 80), "passes"},
		{"in, for all interfaces", hep("h", "*"), tcp("eth1", "", 80), intent.ReasonNoProfileMatch},
		{"in, by the address of the interface", with(hep("h", ""), func(e *intent.Endpoint) { e.Addrs = []netip.Addr{addr("198.51.100.7")} }), tcp("up0", "", 80), intent.ReasonNoProfileMatch},
		{"in, marked", hep("h", "eth0"), marked(tcp("eth0", "", 80)), intent.ReasonNoProfileMatch},
		{"out, marked", hep("h", "eth0"), marked(tcp("", "eth0", 80)), intent.ReasonNoProfileMatch},
		{"forwarded, marked", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Forward(e, ask("web")...) }), marked(tcp("eth0", "eth1", 81)), intent.ReasonEndOfTier},
		{"in, failsafe", hep("h", "eth0"), tcp("eth0", "", 22), "passes"},
		{"out, failsafe is another", hep("h", "eth0"), tcp("", "eth0", 22), intent.ReasonNoProfileMatch},
		{"out, rejected in silence", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("rejects")...) }), tcp("", "eth0", 80), intent.ReasonRule},
		{"in, rejected", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("rejects")...) }), tcp("eth0", "", 80), intent.ReasonRule + ", answered"},
		{"forwarded, nobody says anything", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("none")...) }), tcp("eth0", "eth1", 80), "passes"},
		{"forwarded, the end of a tier", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Forward(e, ask("web")...) }), tcp("eth0", "eth1", 81), intent.ReasonEndOfTier},
		{"forwarded out, the end of a tier", with(hep("h", "eth1"), func(e *intent.Endpoint) { intenttest.Forward(e, ask("web")...) }), tcp("eth0", "eth1", 81), intent.ReasonEndOfTier},
		{"before DNAT no end of a tier", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.PreDNAT(e, ask("none")...) }), tcp("eth0", "eth1", 81), "passes"},
		{"before DNAT a deny, of what is forwarded, too", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.PreDNAT(e, ask("deny")...) }), tcp("eth0", "eth1", 81), intent.ReasonRule},
		{"what was allowed early is not asked about again", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.PreDNAT(e, ask("web")...) }), tcp("eth0", "", 80), "passes"},
		{"untracked, rejected in silence", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Untracked(e, ask("rejects")...) }), tcp("eth0", "", 80), intent.ReasonRule},
		{"untracked out, and allowed", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Untracked(e, ask("web")...) }), tcp("", "eth0", 80), "passes"},
		{"the one for all interfaces has no untracked stage", with(hep("h", "*"), func(e *intent.Endpoint) { intenttest.Untracked(e, ask("deny")...); intenttest.Normal(e, ask("web")...) }), tcp("eth0", "", 80), "passes"},
		{"closed", with(hep("h", "eth0"), func(e *intent.Endpoint) { e.Closed = "cannot be read" }), tcp("eth0", "eth1", 80), intent.ReasonClosed},
		{"a policy is missing", with(hep("h", "eth0"), func(e *intent.Endpoint) { intenttest.Normal(e, ask("no")...) }), tcp("eth0", "", 80), intent.ReasonClosed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, desired.Config{})
			n.Links([]desired.Addrs{{Link: "up0", Addrs: []netip.Addr{addr("198.51.100.7")}}})
			n.apply(intent.Batch{Policies: ps, Endpoints: []intent.Endpoint{tt.hep}, Host: failsafe, InSync: true})
			f := n.Judge(tt.p)
			got := f.By.Reason
			switch {
			case f.Allowed:
				got = "passes"
			case f.Rejected:
				got += ", answered"
			}
			if got != tt.want {
				t.Errorf("it %s, want %s", got, tt.want)
			}
			n.apply(removed(tt.hep.ID))
			for _, stage := range []string{"host-in", "host-out", "host-forward-in", "host-forward-out", "host-pre-dnat", "host-untracked-in", "host-untracked-out", "prerouting-marks", "output-marks"} {
				if n.text(stage) != "" {
					t.Errorf("nobody needs stage %s any more", stage)
				}
			}
			if n.text(rules.SilentChain(np("rejects"), intent.Egress)) != "" {
				t.Error("nobody calls the silent chain any more")
			}
		})
	}
}

// marked is a packet with the marks of what an early stage allowed.
func marked(p sim.Packet) sim.Packet {
	p.Marked = true
	return p
}

func with(e intent.Endpoint, edit func(*intent.Endpoint)) intent.Endpoint {
	edit(&e)
	return e
}

// TestTheFirstOwnerOfANameKeepsIt, and the other is closed until it is free.
func TestTheFirstOwnerOfANameKeepsIt(t *testing.T) {
	hash := rules.Hash
	t.Cleanup(func() { rules.Hash = hash })
	rules.Hash = func(string) []byte { return []byte{1} }
	const tail = "-the-same-end-of-a-long-enough-name"
	set := func(id string, k intent.SetKind) intent.IPSet {
		return intent.IPSet{ID: intent.SetID(id + tail), Kind: k}
	}
	policy := func(name string) intent.Policy { return pol(name+tail, intent.Rule{Action: intent.Allow}) }
	batch := func(name, link string) intent.Batch {
		return intent.Batch{
			IPSets: []intent.IPSet{set(name, intent.SetAddrs)}, Policies: []intent.Policy{policy(name), pol("u"+name, inSet(intent.Allow, set(name, 0).ID))},
			Endpoints: []intent.Endpoint{wl(name, link, name+tail, "u"+name)}, InSync: true,
		}
	}
	for _, gone := range [][]intent.Key{
		{policy("a").ID, set("a", 0).ID, wl("a", "").ID},
		{wl("a", "").ID, policy("a").ID, set("a", 0).ID},
	} {
		n := newNode(t, desired.Config{}).apply(batch("a", "cali1")).apply(batch("b", "cali2"))
		if n.is("cali1") != "open to a" || n.is("cali2") != "closed" {
			t.Errorf("the interfaces are %s and %s", n.is("cali1"), n.is("cali2"))
		}
		for _, k := range []intent.Key{policy("b").ID, set("b", 0).ID} {
			if o := n.outcomes[k]; o.Err == nil || !strings.Contains(o.Err.Error(), "collides with that of") {
				t.Errorf("outcome of %s: %v", k, o.Err)
			}
		}
		// One of another kind does not collide.
		if n.apply(intent.Batch{IPSets: []intent.IPSet{set("c", intent.SetPorts)}}); n.outcomes[set("c", 0).ID].Err != nil {
			t.Error(n.outcomes[set("c", 0).ID].Err)
		}
		for _, k := range gone {
			n.apply(removed(k))
		}
		if n.is("cali1") != "nobody's" || n.is("cali2") != "open to b" {
			t.Errorf("after the first has gone the interfaces are %s and %s", n.is("cali1"), n.is("cali2"))
		}
	}
}
