package verdict

import (
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

var (
	in    = intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "in"}
	out   = intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "out"}
	pass  = intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "pass"}
	allow = intent.PolicyID{Kind: "Profile", Name: "allow"}
	raw   = intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "raw"}
)

func wl(name, link string, tiers ...intent.Tier) intent.Endpoint {
	return intent.Endpoint{
		ID:   intent.EndpointID{Kind: intent.Workload, Namespace: "ns", Name: name},
		Link: link, Group: intent.GroupOf(intent.Stages{Normal: tiers}, allow),
	}
}

// node has workloads on cali1 (open), cali2 (one policy each way), cali3
// (closed), and a host endpoint on eth1.
func node(more ...intent.Endpoint) *State {
	closed := wl("closed", "cali3")
	closed.Closed = "it has no address"
	tier := intent.Tier{Name: "default", Ingress: []intent.PolicyID{in}, Egress: []intent.PolicyID{out}}
	s := &State{}
	s.Merge(intent.Batch{
		IPSets: []intent.IPSet{
			{ID: "web", Members: []intent.Member{{Prefix: netip.MustParsePrefix("10.0.0.1/32")}, {Prefix: netip.MustParsePrefix("10.9.0.0/16")}}},
			{ID: "http", Kind: intent.SetPorts, Members: []intent.Member{{Prefix: netip.MustParsePrefix("10.0.0.2/32"), Proto: 6, Port: 8080}}},
		},
		Policies: []intent.Policy{
			{ID: allow, Ingress: []intent.Rule{{Action: intent.Allow}}, Egress: []intent.Rule{{Action: intent.Allow}}},
			{ID: in, Tier: "default", Ingress: []intent.Rule{
				{Action: intent.Log},
				{Action: intent.Allow, Void: true},
				{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{"web"}}, Dst: intent.Peer{PortSets: []intent.SetID{"http"}, Ports: []intent.PortRange{{Min: 80, Max: 90}}}},
			}},
			{ID: out, Tier: "default", Egress: []intent.Rule{{Action: intent.Deny, Protocol: 17}, {Action: intent.Pass}}},
			{ID: pass, Tier: "first", Ingress: []intent.Rule{{Action: intent.Pass, Family: intent.IPv6}}},
			{ID: raw, Ingress: []intent.Rule{{Action: intent.Allow, Protocol: 6}, {Action: intent.Deny, Protocol: 17}}, Egress: []intent.Rule{{Action: intent.Deny, Protocol: 17}}},
		},
		Endpoints: append([]intent.Endpoint{wl("open", "cali1"), wl("strict", "cali2", tier), closed}, more...),
	})
	return s
}

func packet(in, out string, proto uint8, port uint16) Packet {
	return Packet{
		InLink: in, OutLink: out, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"),
		Proto: proto, SrcPort: 1024, DstPort: port,
	}
}

func with(p Packet, change func(*Packet)) Packet {
	change(&p)
	return p
}

func TestWorkloadStage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		p      Packet
		want   bool
		reason string
	}{
		{"a profile allows", packet("eth0", "cali1", 6, 80), true, intent.ReasonRule},
		{"a port in a range is allowed", packet("eth0", "cali2", 6, 90), true, intent.ReasonRule},
		{"a named port is allowed", packet("eth0", "cali2", 6, 8080), true, intent.ReasonRule},
		{"the end of the tier denies", packet("eth0", "cali2", 6, 91), false, intent.ReasonEndOfTier},
		{"both ends local: egress denies", packet("cali2", "cali1", 17, 80), false, intent.ReasonRule},
		{"both ends local: ingress denies", packet("cali1", "cali2", 17, 80), false, intent.ReasonEndOfTier},
		{"pass out of the last tier reaches the profile", packet("cali2", "eth0", 6, 80), true, intent.ReasonRule},
		{"an unknown workload interface drops what it sends", packet("cali9", "eth0", 6, 80), false, intent.ReasonUnknownLink},
		{"an unknown workload interface drops what it is sent", packet("eth0", "cali9", 6, 80), false, intent.ReasonUnknownLink},
		{"a closed endpoint drops", packet("eth0", "cali3", 6, 80), false, intent.ReasonClosed},
		{"a closed endpoint drops what it sends to its host", packet("cali3", "", 6, 80), false, intent.ReasonClosed},
		{"nothing closes a host's way to a closed endpoint", packet("", "cali3", 6, 80), true, intent.ReasonHostToLocal},
		{"nor that to an interface without an endpoint", packet("", "cali9", 6, 80), true, intent.ReasonHostToLocal},
		{"nor that of what is of no connection", with(packet("", "cali2", 6, 80), func(p *Packet) { p.State = Invalid }), true, intent.ReasonHostToLocal},
		{"a host reaches its own workload", packet("", "cali2", 17, 9), true, intent.ReasonHostToLocal},
		{"a workload does not reach its host by default", packet("cali1", "", 6, 80), false, intent.ReasonToHost},
		{"established is accepted", with(packet("cali1", "cali2", 17, 80), func(p *Packet) { p.State = Established }), true, intent.ReasonEstablished},
		{"invalid is dropped", with(packet("cali1", "eth0", 6, 80), func(p *Packet) { p.State = Invalid }), false, intent.ReasonInvalid},
		{"traffic that is no workload's passes", packet("eth0", "eth1", 6, 80), true, intent.ReasonNoPolicy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := node().Judge(tt.p); v.Allowed != tt.want || v.Reason != tt.reason {
				t.Errorf("got %v by %s, want %v by %s; trace %+v", v.Allowed, v.Reason, tt.want, tt.reason, v.Trace)
			}
		})
	}
}

func TestHostStages(t *testing.T) {
	id := intent.EndpointID{Kind: intent.Host, Name: "eth1"}
	list := func(p intent.PolicyID) []intent.Tier {
		return []intent.Tier{{Name: "default", Ingress: []intent.PolicyID{p}, Egress: []intent.PolicyID{p}}}
	}
	for _, tt := range []struct {
		name string
		hep  intent.Endpoint
		p    Packet
		want bool
	}{
		{"host-normal without a policy and profile drops", intent.Endpoint{ID: id, Link: "eth1"}, packet("eth1", "", 6, 80), false},
		{"forward without a policy allows", intent.Endpoint{ID: id, Link: "eth1"}, packet("eth1", "eth0", 6, 80), true},
		{"forward ends its tier", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Forward: list(in)})}, packet("eth1", "eth0", 6, 91), false},
		{"untracked has no end of tier", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Untracked: list(raw)})}, packet("eth1", "eth0", 1, 0), true},
		{"an untracked allow skips host-normal", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Untracked: list(raw)})}, packet("eth1", "", 6, 80), true},
		{"an untracked allow does not skip workload policy", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Untracked: list(raw)})}, packet("eth1", "cali2", 6, 91), false},
		{"untracked does not accept established", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Untracked: list(raw)})}, with(packet("eth1", "eth0", 17, 80), func(p *Packet) { p.State = Established }), false},
		{"a wildcard ignores untracked", intent.Endpoint{ID: id, Link: "*", Group: intent.GroupOf(intent.Stages{Untracked: list(raw)})}, packet("eth1", "eth0", 17, 80), true},
		{"pre-DNAT sees the original destination", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{PreDNAT: list(in)})}, with(packet("eth1", "", 6, 9), func(p *Packet) {
			p.OrigDst, p.OrigDstPort = netip.MustParseAddr("10.0.0.9"), 80
		}), true},
		{"a wildcard's egress is not applied to a local workload", intent.Endpoint{ID: id, Link: "*", Group: intent.GroupOf(intent.Stages{Normal: list(raw)})}, packet("", "cali1", 17, 80), true},
		{"what a local process sends is judged", intent.Endpoint{ID: id, Link: "eth1", Group: intent.GroupOf(intent.Stages{Normal: list(raw)})}, packet("", "eth1", 17, 80), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v := node(tt.hep).Judge(tt.p); v.Allowed != tt.want {
				t.Errorf("got %v by %s, want %v; trace %+v", v.Allowed, v.Reason, tt.want, v.Trace)
			}
		})
	}
}

func TestMergeRemovesWhatItAdded(t *testing.T) {
	s := node()
	s.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: "web", Removed: []intent.Member{{Prefix: netip.MustParsePrefix("10.0.0.1/32")}}}}})
	if v := s.Judge(packet("eth0", "cali2", 6, 80)); v.Allowed {
		t.Errorf("a removed member still matches: %+v", v)
	}
	s.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: "web", Added: []intent.Member{{Prefix: netip.MustParsePrefix("10.0.0.0/30")}}}}})
	if v := s.Judge(packet("eth0", "cali2", 6, 80)); !v.Allowed {
		t.Errorf("an added prefix does not match: %+v", v)
	}
	s.Merge(intent.Batch{Host: &intent.HostSettings{EndpointToHost: intent.ToHostAccept}})
	if v := s.Judge(packet("cali1", "", 6, 80)); !v.Allowed {
		t.Errorf("the host setting is not taken over: %+v", v)
	}
	s.Merge(intent.Batch{Removed: []intent.Key{allow}})
	if v := s.Judge(packet("eth0", "cali1", 6, 80)); v.Allowed || v.Reason != intent.ReasonPolicyMissing {
		t.Errorf("a missing profile gives %+v", v)
	}
	s.Merge(intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Workload, Namespace: "ns", Name: "open"}}})
	if v := s.Judge(packet("eth0", "cali1", 6, 80)); v.Reason != intent.ReasonUnknownLink {
		t.Errorf("a removed endpoint gives %+v", v)
	}
}
