package iptables

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// world is chains of one table, which the golden texts are made of.
type world struct {
	name   string
	table  Table
	log    intent.LogSettings
	chains []rules.Chain
}

var worlds = []world{
	{name: "terms", chains: termChains()},
	{name: "actions", log: intent.LogSettings{Rate: 100, Per: time.Second, Burst: 100}, chains: actionChains()},
	{name: "workload", log: intent.LogSettings{Rate: 30, Per: time.Minute, Burst: 5}, chains: workload()},
	{name: "host-raw", table: Raw, chains: hostChains(rules.Untracked)},
	{name: "host-mangle", table: Mangle, chains: hostChains(rules.PreDNAT)},
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range list {
		out = append(out, netip.MustParsePrefix(n))
	}
	return out
}

// ports from words such as 80 or 90-91.
func ports(words ...string) []intent.PortRange {
	var out []intent.PortRange
	for _, w := range words {
		var p intent.PortRange
		if n, _ := fmt.Sscanf(w, "%d-%d", &p.Min, &p.Max); n == 1 {
			p.Max = p.Min
		}
		out = append(out, p)
	}
	return out
}

// evens are n single ports.
func evens(n int) []intent.PortRange {
	var out []intent.PortRange
	for i := range n {
		out = append(out, intent.PortRange{Min: uint16(1000 + 2*i), Max: uint16(1000 + 2*i)})
	}
	return out
}

func proto(n uint8) rules.Term { return rules.Term{Kind: rules.Protocol, Number: n} }

func inNets(s rules.Side, list ...string) rules.Term {
	return rules.Term{Kind: rules.Nets, Side: s, Nets: prefixes(list...)}
}

func onPorts(s rules.Side, list []intent.PortRange) rules.Term {
	return rules.Term{Kind: rules.Ports, Side: s, Ports: list}
}

func in(k rules.Kind, s rules.Side, set string) rules.Term {
	return rules.Term{Kind: k, Side: s, Set: intent.SetID(set)}
}

func number(k rules.Kind, n uint8) rules.Term { return rules.Term{Kind: k, Number: n} }

func isNot(t rules.Term) rules.Term {
	t.Not = true
	return t
}

// termCases are conjunctions, each under a sentence.
var termCases = []struct {
	name  string
	terms []rules.Term
}{
	{"nothing matches all", nil},
	{"a family", []rules.Term{number(rules.Family, 6)}},
	{"not a family", []rules.Term{isNot(number(rules.Family, 6))}},
	{"a protocol", []rules.Term{proto(6)}},
	{"not a protocol", []rules.Term{isNot(proto(17))}},
	{"two protocols it is not take the mark", []rules.Term{isNot(proto(1)), isNot(proto(58))}},
	{"a protocol, so not another", []rules.Term{proto(6), isNot(proto(17))}},
	{"a protocol and not that one matches nothing", []rules.Term{proto(6), isNot(proto(6))}},
	{"two protocols match nothing", []rules.Term{proto(6), proto(17)}},
	{"an ICMP type", []rules.Term{number(rules.ICMPType, 8)}},
	{"an ICMP type and code", []rules.Term{proto(1), number(rules.ICMPType, 3), number(rules.ICMPCode, 1)}},
	{"an ICMPv6 type and not a code", []rules.Term{proto(58), number(rules.ICMPType, 1), isNot(number(rules.ICMPCode, 4))}},
	{"not an ICMP type", []rules.Term{isNot(number(rules.ICMPType, 8))}},
	{"a net", []rules.Term{inNets(rules.Src, "10.0.0.0/8", "fd00::/8")}},
	{"not a net", []rules.Term{isNot(inNets(rules.Dst, "10.0.0.0/8", "fd00::/8"))}},
	{"a net of IPv4 matches nothing in IPv6, its negation all", []rules.Term{inNets(rules.Src, "10.0.0.0/8"), isNot(inNets(rules.Dst, "10.0.0.0/8"))}},
	{"several nets are several rules", []rules.Term{proto(6), inNets(rules.Src, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "2001:db8::1/128")}},
	{"none of several nets", []rules.Term{isNot(inNets(rules.Src, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "2001:db8::/32"))}},
	{"a net but not one within it", []rules.Term{inNets(rules.Src, "10.0.0.0/8", "fd00::/8"), isNot(inNets(rules.Src, "10.1.0.0/16", "fd01::/16"))}},
	{"all addresses need no match", []rules.Term{inNets(rules.Src, "0.0.0.0/0", "10.0.0.0/8", "::/0")}},
	{"not all addresses matches nothing", []rules.Term{isNot(inNets(rules.Src, "0.0.0.0/0", "::/0"))}},
	{"a set, and not another", []rules.Term{in(rules.Addrs, rules.Src, "s:a"), isNot(in(rules.Addrs, rules.Dst, "s:b"))}},
	{"named ports, and not others", []rules.Term{proto(6), in(rules.PortSet, rules.Dst, "p:6:http:x"), isNot(in(rules.PortSet, rules.Src, "p:17:dns:x"))}},
	{"ports", []rules.Term{proto(6), onPorts(rules.Src, ports("1-9")), onPorts(rules.Dst, ports("80", "90-91"))}},
	{"not ports", []rules.Term{proto(17), isNot(onPorts(rules.Dst, ports("80", "90-91")))}},
	{"15 ports are one list, a range being two", []rules.Term{proto(6), onPorts(rules.Dst, append(evens(13), ports("1-9")...))}},
	{"16 ports are two lists", []rules.Term{proto(6), onPorts(rules.Dst, append(evens(14), ports("1-9")...))}},
	{"none of 16 ports", []rules.Term{proto(6), isNot(onPorts(rules.Dst, evens(16)))}},
	{"none of 130 ports is too long for one line", []rules.Term{proto(6), isNot(onPorts(rules.Dst, evens(130)))}},
	{"ports that are none match nothing", []rules.Term{proto(6), onPorts(rules.Dst, ports("9-1"))}},
	{"not on ports of no protocol in particular", []rules.Term{isNot(onPorts(rules.Dst, ports("80")))}},
	{"a protocol without ports is on none", []rules.Term{proto(47), isNot(onPorts(rules.Dst, ports("80")))}},
	{"a protocol without ports is not on one", []rules.Term{proto(47), onPorts(rules.Dst, ports("80"))}},
	{"several nets on both sides, many ports on both sides, and nets it must not be in", []rules.Term{
		proto(6),
		inNets(rules.Src, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "2001:db8::/32"), inNets(rules.Dst, "10.2.0.0/16", "10.3.0.0/16", "fd02::/16", "fd03::/16"),
		onPorts(rules.Src, evens(16)), onPorts(rules.Dst, evens(17)), isNot(inNets(rules.Dst, "10.2.1.0/24", "10.2.2.0/24", "fd02:1::/32", "fd02:2::/32")),
		in(rules.Addrs, rules.Src, "s:a"),
	}},
	{"allowed", []rules.Term{{Kind: rules.Allowed}}},
	{"not passed", []rules.Term{{Kind: rules.Passed, Not: true}}},
}

func termChains() []rules.Chain {
	var out []rules.Chain
	for i, c := range termCases {
		out = append(out, rules.Chain{Name: fmt.Sprintf("terms-%02d", i), Comment: c.name, Rules: []rules.Rule{{Terms: c.terms}}})
	}
	return out
}

func actionChains() []rules.Chain {
	twoNets := []rules.Term{inNets(rules.Src, "10.0.0.0/8", "192.0.2.0/24", "fd00::/8", "2001:db8::/32")}
	long := strings.Repeat("long-", 23) + "np ingress[7]"
	return []rules.Chain{
		{Name: "all-actions", Comment: "each action, with a comment", Rules: []rules.Rule{
			{Action: rules.Begin},
			{Action: rules.Next},
			{Action: rules.Log, Comment: "prod/np-web ingress[2]"},
			{Action: rules.Log, Comment: long},
			{Action: rules.Log},
			{Action: rules.Jump, Target: "several-rules"},
			{Action: rules.Return, Terms: []rules.Term{{Kind: rules.Allowed}}},
			{Action: rules.Pass, Terms: []rules.Term{proto(6)}, Comment: `what would "end" a \ comment`},
			{Action: rules.AllowEarly, Terms: []rules.Term{proto(17)}},
			{Action: rules.Allow, Terms: []rules.Term{proto(132)}, Comment: long},
			{Action: rules.Accept, Terms: []rules.Term{proto(136)}},
			{Action: rules.Reset, Terms: []rules.Term{proto(6)}, Comment: "prod/np-web ingress[3]"},
			{Action: rules.Reject, Comment: "prod/np-web ingress[3]"},
			{Action: rules.Deny, Comment: "end of tier t"},
		}},
		{Name: "several-rules", Comment: "an action that ends the chain may be several rules, others take the mark", Rules: []rules.Rule{
			{Action: rules.Log, Terms: twoNets, Comment: "n egress[0]"},
			{Action: rules.Jump, Target: "empty", Terms: twoNets},
			{Action: rules.Allow, Terms: twoNets, Comment: "n egress[1]"},
			{Action: rules.Reset, Terms: append([]rules.Term{proto(6), inNets(rules.Dst, "10.2.0.0/16", "10.3.0.0/16", "fd02::/16", "fd03::/16")}, twoNets...), Comment: "n egress[2]"},
		}},
		{Name: "empty"},
	}
}

var (
	np   = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "np-web"}
	gnp  = intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "default.baseline"}
	kns  = intent.PolicyID{Kind: "Profile", Name: "kns.prod"}
	pod  = intent.EndpointID{Namespace: "prod", Name: "web-0"}
	host = intent.EndpointID{Kind: intent.Host, Name: "h1-eth0"}
)

// workload is a pod with two tiers and a profile.
func workload() []rules.Chain {
	e := intent.Endpoint{
		ID: pod, Label: "prod/web-0", Link: "cali1", Spoofable: prefixes("10.9.0.0/24", "fd09::/64"),
		Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{
			{Name: "security", Default: intent.Pass, Ingress: []intent.PolicyID{gnp}, Egress: []intent.PolicyID{gnp}},
			{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{np}},
		}}, kns),
	}
	ps := []intent.Policy{
		{ID: gnp, Ingress: []intent.Rule{
			{Action: intent.Log, Protocol: 6, Dst: intent.Peer{Ports: ports("22"), PortSets: []intent.SetID{"p:6:ssh:x"}}},
			{Action: intent.Deny, Src: intent.Peer{Nets: prefixes("198.51.100.0/24", "203.0.113.0/24", "2001:db8:bad::/48")}},
			{Action: intent.Deny, Protocol: 17, Reject: true},
			{Action: intent.Pass},
		}, Egress: []intent.Rule{{Action: intent.Allow, NotICMP: &intent.ICMP{Type: 3, Code: 4}}}},
		{ID: np, Ingress: []intent.Rule{
			{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{"s:frontend"}}, Dst: intent.Peer{Ports: ports("80", "443", "8000-8999")}},
			{Action: intent.Allow, ICMP: &intent.ICMP{Type: 8, AnyCode: true}},
			{Action: intent.Deny, Void: true},
			{Action: intent.Allow, Protocol: 17, Src: intent.Peer{Nets: prefixes("10.0.0.0/8"), NotNets: prefixes("10.1.0.0/16", "10.2.0.0/16"), NotPorts: ports("53")}},
		}},
		{ID: kns, Ingress: []intent.Rule{{Action: intent.Allow}}, Egress: []intent.Rule{{Action: intent.Allow}}},
	}
	names := []string{rules.SpoofChain(e.ID)}
	for _, dir := range []intent.Direction{intent.Ingress, intent.Egress} {
		for _, p := range ps {
			names = append(names, rules.PolicyChain(p.ID, dir))
		}
		names = append(names, rules.EndpointChain(e.ID, dir))
	}
	sets := []intent.IPSet{{ID: "s:frontend"}, {ID: "p:6:ssh:x", Kind: intent.SetPorts}}
	return chainsOf(intent.Batch{IPSets: sets, Policies: ps, Endpoints: []intent.Endpoint{e}}, names...)
}

// chainsOf are chains that are desired of a node of which nothing else is known.
func chainsOf(b intent.Batch, names ...string) []rules.Chain {
	s := desired.New(desired.Config{})
	b.InSync = true
	s.Merge(b)
	all := map[string]rules.Chain{}
	for _, c := range s.Changes().Chains {
		all[c.Name] = rules.Chain{Name: c.Name, Comment: c.Comment, Rules: c.Rules, Generation: c.Generation}
	}
	var out []rules.Chain
	for _, name := range names {
		out = append(out, all[name])
	}
	return out
}

// hostChains are of a host endpoint at an early stage, where Allow has a form of its own.
func hostChains(s rules.Stage) []rules.Chain {
	tiers := []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{gnp}}}
	e := intent.Endpoint{ID: host, Link: "eth0", Group: intent.GroupOf(intent.Stages{PreDNAT: tiers})}
	if s == rules.Untracked {
		intenttest.Untracked(&e, tiers...)
		intenttest.PreDNAT(&e)
	}
	p := intent.Policy{ID: gnp, Ingress: []intent.Rule{
		{Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{"s:peers"}}, Dst: intent.Peer{Ports: ports("179")}},
		{Action: intent.Deny, Protocol: 6, Reject: true},
	}}
	return chainsOf(intent.Batch{IPSets: []intent.IPSet{{ID: "s:peers"}}, Policies: []intent.Policy{p}, Endpoints: []intent.Endpoint{e}},
		rules.PolicyChain(gnp, intent.Ingress), rules.HostChain(host, s, intent.Ingress))
}
