package rules

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

var web = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "np-web"}

func nets(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range list {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

func sets(ids ...intent.SetID) []intent.SetID { return ids }

func port(min, max uint16) []intent.PortRange { return []intent.PortRange{{Min: min, Max: max}} }

func TestEachRuleFieldBecomesTerms(t *testing.T) {
	for _, tt := range []struct {
		name string
		rule intent.Rule
		want []string // without the comment, which is the same for all
	}{
		{"nothing matches all", intent.Rule{Action: intent.Allow}, []string{"allow"}},
		{"the zero rule denies", intent.Rule{}, []string{"deny"}},
		{"void keeps its place and matches nothing", intent.Rule{Action: intent.Allow, Void: true}, nil},
		{"pass", intent.Rule{Action: intent.Pass}, []string{"pass"}},
		{"log", intent.Rule{Action: intent.Log}, []string{"log"}},
		{"reject resets TCP and tells the rest", intent.Rule{Reject: true}, []string{"proto=6 reset", "reject"}},
		{"reject of TCP", intent.Rule{Reject: true, Protocol: 6, Dst: intent.Peer{Ports: port(80, 80)}}, []string{"proto=6 dstport in {80} reset"}},
		{"reject of another protocol", intent.Rule{Reject: true, Protocol: 17}, []string{"proto=17 reject"}},
		{"reject of all but TCP", intent.Rule{Reject: true, NotProtocol: 6}, []string{"proto!=6 reject"}},
		{"reject of all but UDP", intent.Rule{Reject: true, NotProtocol: 17}, []string{"proto=6 reset", "proto!=17 reject"}},
		{"reject of an ICMP type without a protocol", intent.Rule{Reject: true, ICMP: &intent.ICMP{Type: 8, AnyCode: true}}, []string{"proto=1 icmptype=8 reject", "proto=58 icmptype=8 reject"}},
		{
			"reject of what is not an ICMP type",
			intent.Rule{Reject: true, NotICMP: &intent.ICMP{Type: 8, AnyCode: true}},
			[]string{"proto=6 reset", "proto=1 icmptype!=8 reject", "proto=58 icmptype!=8 reject", "proto!=1 proto!=58 reject"},
		},
		{
			"reject of ports without a protocol",
			intent.Rule{Reject: true, Dst: intent.Peer{Ports: port(80, 80)}},
			[]string{
				"proto=6 dstport in {80} reset", "proto=6 dstport in {80} reject", "proto=17 dstport in {80} reject",
				"proto=132 dstport in {80} reject", "proto=136 dstport in {80} reject",
			},
		},
		{"void rejects nothing", intent.Rule{Reject: true, Void: true}, nil},
		{"only a Deny rejects", intent.Rule{Action: intent.Allow, Reject: true}, []string{"allow"}},
		{"family", intent.Rule{Family: intent.IPv6}, []string{"ipv=6 deny"}},
		{"protocol", intent.Rule{Protocol: 6}, []string{"proto=6 deny"}},
		{"not protocol", intent.Rule{NotProtocol: 17}, []string{"proto!=17 deny"}},
		{"ICMP type", intent.Rule{Protocol: 1, ICMP: &intent.ICMP{Type: 8, AnyCode: true}}, []string{"proto=1 icmptype=8 deny"}},
		{"ICMP type and code", intent.Rule{Protocol: 58, ICMP: &intent.ICMP{Type: 1, Code: 4}}, []string{"proto=58 icmptype=1 icmpcode=4 deny"}},
		{"not an ICMP type", intent.Rule{Protocol: 1, NotICMP: &intent.ICMP{Type: 8, AnyCode: true}}, []string{"proto=1 icmptype!=8 deny"}},
		{
			"not an ICMP type and code is another type, or that one with another code",
			intent.Rule{Protocol: 1, NotICMP: &intent.ICMP{Type: 3, Code: 1}},
			[]string{"proto=1 icmptype!=3 deny", "proto=1 icmptype=3 icmpcode!=1 deny"},
		},
		{"ICMP without a protocol is that of either family", intent.Rule{ICMP: &intent.ICMP{Type: 8, AnyCode: true}}, []string{"proto=1 icmptype=8 deny", "proto=58 icmptype=8 deny"}},
		{"ICMP of another protocol matches nothing", intent.Rule{Protocol: 6, ICMP: &intent.ICMP{Type: 8}}, nil},
		{
			"not ICMP without a protocol holds for other protocols",
			intent.Rule{NotICMP: &intent.ICMP{Type: 8, AnyCode: true}},
			[]string{"proto=1 icmptype!=8 deny", "proto=58 icmptype!=8 deny", "proto!=1 proto!=58 deny"},
		},
		{"not ICMP of another protocol holds", intent.Rule{Protocol: 6, NotICMP: &intent.ICMP{Type: 8}}, []string{"proto=6 deny"}},
		{"nets of both families stay one term", intent.Rule{Src: intent.Peer{Nets: nets("10.0.0.0/8", "fd00::/8")}}, []string{"src in {10.0.0.0/8,fd00::/8} deny"}},
		{"not nets", intent.Rule{Dst: intent.Peer{NotNets: nets("10.0.0.0/8")}}, []string{"dst not in {10.0.0.0/8} deny"}},
		{"in all sets, in none of the others", intent.Rule{Src: intent.Peer{Sets: sets("a", "b"), NotSets: sets("c", "d")}}, []string{"src in @a src in @b src not in @c src not in @d deny"}},
		{"ports", intent.Rule{Protocol: 6, Src: intent.Peer{Ports: port(1, 9)}, Dst: intent.Peer{Ports: append(port(80, 80), port(90, 91)...)}}, []string{"proto=6 srcport in {1-9} dstport in {80,90-91} deny"}},
		{
			"a port in the list or in a set",
			intent.Rule{Protocol: 6, Dst: intent.Peer{Ports: port(80, 80), PortSets: sets("p", "q")}},
			[]string{"proto=6 dstport in {80} deny", "proto=6 dstport in @p deny", "proto=6 dstport in @q deny"},
		},
		{
			"one packet is logged once",
			intent.Rule{Action: intent.Log, Protocol: 6, Dst: intent.Peer{Ports: port(80, 80), PortSets: sets("p")}},
			[]string{"proto=6 dstport in {80} log", "proto=6 dstport not in {80} dstport in @p log"},
		},
		{
			"both sides in a list or a set",
			intent.Rule{Protocol: 17, Src: intent.Peer{Ports: port(1, 1), PortSets: sets("p")}, Dst: intent.Peer{PortSets: sets("q")}},
			[]string{"proto=17 srcport in {1} dstport in @q deny", "proto=17 srcport in @p dstport in @q deny"},
		},
		{
			"not ports are in none",
			intent.Rule{Protocol: 6, Dst: intent.Peer{NotPorts: port(80, 81), NotPortSets: sets("p", "q")}},
			[]string{"proto=6 dstport not in {80-81} dstport not in @p dstport not in @q deny"},
		},
		{
			"ports without a protocol are those of protocols with ports",
			intent.Rule{Dst: intent.Peer{Ports: port(80, 80)}},
			[]string{"proto=6 dstport in {80} deny", "proto=17 dstport in {80} deny", "proto=132 dstport in {80} deny", "proto=136 dstport in {80} deny"},
		},
		{"ports of a protocol without ports match nothing", intent.Rule{Protocol: 47, Dst: intent.Peer{Ports: port(80, 80)}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Policy(intent.Policy{ID: web, Ingress: []intent.Rule{{Void: true}, tt.rule}}, intent.Ingress)
			var got []string
			for _, r := range c.Rules {
				if r.Comment != "prod/np-web ingress[1]" {
					t.Errorf("comment %q", r.Comment)
				}
				r.Comment = ""
				got = append(got, r.String())
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
		})
	}
}

func TestARuleInOneFamily(t *testing.T) {
	both := Rule{Terms: []Term{{Kind: Nets, Nets: nets("10.0.0.0/8", "fd00::/8")}, {Kind: Nets, Not: true, Side: Dst, Nets: nets("10.1.0.0/16")}}}
	for _, tt := range []struct {
		name   string
		rule   Rule
		v4, v6 string // empty: matches nothing
	}{
		{"nets are those of the family, and notNets of one family make a rule of it", both, "src in {10.0.0.0/8} dst not in {10.1.0.0/16} deny", ""},
		{"notNets of both families are each for one", Rule{Terms: []Term{{Kind: Nets, Not: true, Nets: nets("10.0.0.0/8", "fd00::/8")}}}, "src not in {10.0.0.0/8} deny", "src not in {fd00::/8} deny"},
		{"nets of one family match nothing of the other", Rule{Terms: []Term{{Kind: Nets, Nets: nets("10.0.0.0/8")}}}, "src in {10.0.0.0/8} deny", ""},
		{"a family", Rule{Terms: []Term{{Kind: Family, Number: 6}}}, "", "deny"},
		{"not a family", Rule{Terms: []Term{{Kind: Family, Not: true, Number: 6}}}, "deny", ""},
		{"ICMP is IPv4", Rule{Terms: []Term{{Kind: Protocol, Number: 1}}}, "proto=1 deny", ""},
		{"ICMPv6 is IPv6", Rule{Terms: []Term{{Kind: Protocol, Number: 58}}}, "", "proto=58 deny"},
		{"a set is of both", Rule{Terms: []Term{{Kind: Addrs, Set: "s"}}}, "src in @s deny", "src in @s deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.rule.ByFamily() {
				t.Error("says that families do not matter")
			}
			for f, want := range map[intent.Family]string{intent.IPv4: tt.v4, intent.IPv6: tt.v6} {
				r, ok := tt.rule.ForFamily(f)
				if ok != (want != "") || ok && r.String() != want {
					t.Errorf("IPv%d: got %q, %v; want %q", f, r, ok, want)
				}
			}
		})
	}
	if (Rule{Terms: []Term{{Kind: Protocol, Number: 6}, {Kind: Ports, Ports: port(1, 2)}, {Kind: Passed}, {Kind: Protocol, Not: true, Number: 1}}}).ByFamily() {
		t.Error("says that families matter to ports")
	}
}

func TestAnEndpointWalksTiersThenProfiles(t *testing.T) {
	b := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "b"}
	e := intent.Endpoint{
		ID: intent.EndpointID{Namespace: "prod", Name: "web-0"}, Label: "prod/web-0",
		Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{
			{Name: "security", Default: intent.Deny, Ingress: []intent.PolicyID{b, web}},
			{Name: "skipped", Default: intent.Deny, Egress: []intent.PolicyID{b}},
			{Name: "platform", Default: intent.Pass, Ingress: []intent.PolicyID{web}},
		}}, intent.PolicyID{Kind: "Profile", Name: "kns.prod"}),
	}
	pb, pw, pk := PolicyChain(b, intent.Ingress), PolicyChain(web, intent.Ingress), PolicyChain(e.Policies().Profiles[0], intent.Ingress)
	want := EndpointChain(e.ID, intent.Ingress) + `: prod/web-0 receives
  begin
  jump ` + pb + ` # tier security, b
  allowed=1 return
  passed!=1 jump ` + pw + ` # tier security, prod/np-web
  allowed=1 return
  passed!=1 deny # end of tier security
  next
  jump ` + pw + ` # tier platform, prod/np-web
  allowed=1 return
  jump ` + pk + ` # profile kns.prod
  allowed=1 return
  deny # prod/web-0: no profile matched
`
	if got := Endpoint(e, intent.Ingress).String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Endpoint(intent.Endpoint{ID: e.ID, Label: "prod/web-0"}, intent.Egress).Rules; len(got) != 2 || got[1].Action != Deny {
		t.Errorf("an endpoint without policy and profile: %v", got)
	}
	if got := Spoofable(e); len(got.Rules) != 0 {
		t.Errorf("spoofable: %v", got)
	}
	e.Spoofable = nets("10.0.0.0/24")
	if got := Spoofable(e); len(got.Rules) != 2 || got.Rules[0].String() != "src in {10.0.0.0/24} accept" || got.Rules[1].Action != Deny {
		t.Errorf("spoofable: %v", got)
	}
}

func TestAClosedPolicyDeniesWhateverItsRulesSay(t *testing.T) {
	p := intent.Policy{ID: web, Closed: "cannot be read", Ingress: []intent.Rule{{Action: intent.Allow}}}
	for _, dir := range []intent.Direction{intent.Ingress, intent.Egress} {
		c := Policy(p, dir)
		if len(c.Rules) != 1 || c.Rules[0].String() != "deny # prod/np-web: cannot be read" {
			t.Errorf("%s: %s", dir, c)
		}
	}
}

func TestAProfilePassesToNobody(t *testing.T) {
	p := intent.Policy{ID: intent.PolicyID{Kind: "Profile", Name: "p"}, Ingress: []intent.Rule{{Action: intent.Pass}, {Action: intent.Allow}}}
	if c := Policy(p, intent.Ingress); len(c.Rules) != 1 || c.Rules[0].String() != "allow # profile p ingress[1]" {
		t.Errorf("verdict goes on to the next rule; here is %s", c)
	}
}

func TestNamesAndCommentsFitTheKernel(t *testing.T) {
	long := strings.Repeat("n", 253)
	for _, tt := range []struct {
		name string
		id   intent.RuleID
		want string
	}{
		{"namespaced", intent.RuleID{Policy: web, Index: 2}, "prod/np-web ingress[2]"},
		{"global", intent.RuleID{Policy: intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "default.foo"}, Direction: intent.Egress}, "default.foo egress[0]"},
		{"a profile says so", intent.RuleID{Policy: intent.PolicyID{Kind: "Profile", Name: "kns.x"}}, "profile kns.x ingress[0]"},
		{"what would command a terminal is replaced", intent.RuleID{Policy: intent.PolicyID{Name: "a\x1b\x7f\u0080b\u009f\u00a0\x9b"}}, "a'''b'\u00a0' ingress[0]"},
		{"what would end the comment is replaced", intent.RuleID{Policy: intent.PolicyID{Name: "a\"b\n\\"}}, "a'b'' ingress[0]"},
	} {
		if got := RuleComment(tt.id); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	a := intent.PolicyID{Kind: "NetworkPolicy", Namespace: long, Name: long + "a"}
	if got := RuleComment(intent.RuleID{Policy: a, Index: 1023}); len(got) != MaxComment || !strings.HasSuffix(got, "a ingress[1023]") {
		t.Errorf("a long name: %q, %d bytes", got, len(got))
	}
	b := a
	b.Name = long + "b"
	if x, y := PolicyChain(a, intent.Ingress), PolicyChain(b, intent.Ingress); x == y || len(x) > 100 {
		t.Errorf("chains %q and %q", x, y)
	}
	if x, y := PolicyChain(intent.PolicyID{Kind: "Profile", Name: "x"}, 0), PolicyChain(intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "profile x"}, 0); x == y {
		t.Errorf("a profile and a policy have the same chain %q", x)
	}
	if got := Shorten(strings.Repeat("é", 200)); len(got) > MaxComment || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("cut within a rune: %q", got)
	}
	if got := Fit("prod/"+long+" ingress[2]", 63); len(got) != 63 || !strings.HasPrefix(got, "prod/n") || !strings.HasSuffix(got, "n ingress[2]") {
		t.Errorf("cut elsewhere than in the middle: %q", got)
	}
}

func TestSetsAreEachNamedOnce(t *testing.T) {
	p := intent.Policy{Ingress: []intent.Rule{{Src: intent.Peer{Sets: sets("a"), NotSets: sets("b")}, Dst: intent.Peer{PortSets: sets("c"), NotPortSets: sets("d")}}}, Egress: []intent.Rule{{Dst: intent.Peer{Sets: sets("a", "e")}}}}
	if got := Sets(p); len(got) != 5 {
		t.Errorf("got %v", got)
	}
}
