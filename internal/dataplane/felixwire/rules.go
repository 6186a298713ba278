package felixwire

import (
	"fmt"
	"net/netip"
	"slices"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// Numbers of protocols (IANA).
const (
	icmp, tcp, udp, icmpv6, sctp, udplite = 1, 6, 17, 58, 132, 136
)

// withPorts are the protocols that have ports.
var withPorts = []uint8{tcp, udp, sctp, udplite}

// actions are the protocol's, by intent's.
var actions = [...]string{intent.Deny: "deny", intent.Allow: "allow", intent.Pass: "pass", intent.Log: "log"}

// Rules returns rules that decide as those of a policy do. What a driver's own reading of a rule could leave open is said in several rules, each
// of one family or one protocol. An error names a rule that the protocol cannot say: what stands for it allows less, or denies more.
func Rules(id intent.PolicyID, dir intent.Direction, list []intent.Rule) (out []*pb.Rule, err error) {
	for n, r := range list {
		same, ok := byProtocol(r)
		if !ok && err == nil {
			err = fmt.Errorf("%s rule %d: a negated port or ICMP type without a protocol cannot be said to this driver: the rule is closed", dir, n)
		}
		for _, one := range same {
			for _, single := range byFamily(one) {
				x := encodeRule(single)
				x.RuleId = fmt.Sprintf("%s/%s/%d", id, dir, n)
				out = append(out, x)
			}
		}
	}
	return out, err
}

// byProtocol returns rules that each say of what protocol they are if they ask for ports or a type of ICMP. It is false if that cannot be said: then a
// rule that allows is left out, and one that denies asks less.
func byProtocol(r intent.Rule) (out []intent.Rule, ok bool) {
	ports := asksPorts(r.Src) || asksPorts(r.Dst)
	for _, p := range []*intent.Peer{&r.Src, &r.Dst} {
		asked := asksPorts(*p)
		p.Ports, p.NotPorts = inhabited(p.Ports), inhabited(p.NotPorts)
		if asked && !asksPorts(*p) {
			return nil, true // no port is in its list
		}
	}
	notPorts := len(r.Src.NotPortSets)+len(r.Dst.NotPortSets)+len(r.Src.NotPorts)+len(r.Dst.NotPorts) > 0
	of := func(numbers ...uint8) (out []intent.Rule) {
		for _, n := range numbers {
			if n != r.NotProtocol {
				one := r
				one.Protocol = n
				out = append(out, withoutVain(one))
			}
		}
		return out
	}
	switch {
	case r.Void, r.Protocol != 0 && r.Protocol == r.NotProtocol:
		return nil, true
	case ports && r.Protocol != 0 && !slices.Contains(withPorts, r.Protocol):
		return nil, true // a packet without ports matches no port
	case r.ICMP != nil && (ports || r.Protocol != 0 && r.Protocol != icmp && r.Protocol != icmpv6):
		return nil, true // nor one of another protocol a type
	case r.Protocol != 0:
		return []intent.Rule{withoutVain(r)}, true
	case ports:
		return of(withPorts...), true
	case r.ICMP != nil:
		return of(icmp, icmpv6), true
	case !notPorts && r.NotICMP == nil:
		return []intent.Rule{r}, true
	case r.Action == intent.Deny:
		r.NotICMP = nil
		for _, p := range []*intent.Peer{&r.Src, &r.Dst} {
			p.NotPorts, p.NotPortSets = nil, nil
		}
		return []intent.Rule{r}, false
	}
	return nil, false
}

// withoutVain leaves out of a rule of one protocol what each of its packets meets: negated ports or types that they do not have.
func withoutVain(r intent.Rule) intent.Rule {
	if !slices.Contains(withPorts, r.Protocol) {
		for _, p := range []*intent.Peer{&r.Src, &r.Dst} {
			p.NotPorts, p.NotPortSets = nil, nil
		}
	}
	if r.Protocol != icmp && r.Protocol != icmpv6 {
		r.NotICMP = nil
	}
	return r
}

// inhabited leaves empty ranges out.
func inhabited(list []intent.PortRange) (out []intent.PortRange) {
	for _, r := range list {
		if r.Min <= r.Max {
			out = append(out, r)
		}
	}
	return out
}

func asksPorts(p intent.Peer) bool { return len(p.Ports)+len(p.PortSets) > 0 }

// byFamily returns rules that each say of what family they are, if that matters: a list of prefixes restricts a rule to the families in it, also if it
// is negated (decision 016), and ICMP and ICMPv6 are of one family each.
func byFamily(r intent.Rule) (out []intent.Rule) {
	lists := []*[]netip.Prefix{&r.Src.Nets, &r.Src.NotNets, &r.Dst.Nets, &r.Dst.NotNets}
	types := r.Protocol == icmp || r.Protocol == icmpv6
	if !types && !slices.ContainsFunc(lists, func(l *[]netip.Prefix) bool { return len(*l) > 0 }) {
		return []intent.Rule{r}
	}
	for _, f := range []intent.Family{intent.IPv4, intent.IPv6} {
		if r.Family != intent.AnyFamily && r.Family != f || types && (f == intent.IPv4) != (r.Protocol == icmp) {
			continue
		}
		one := r
		one.Family = f
		void := false
		for n, list := range []*[]netip.Prefix{&one.Src.Nets, &one.Src.NotNets, &one.Dst.Nets, &one.Dst.NotNets} {
			if len(*lists[n]) > 0 {
				*list = ofFamily(*lists[n], f)
				void = void || len(*list) == 0
			}
		}
		if !void {
			out = append(out, one)
		}
	}
	return out
}

func ofFamily(all []netip.Prefix, f intent.Family) (out []netip.Prefix) {
	for _, p := range all {
		if p.Addr().Is4() == (f == intent.IPv4) {
			out = append(out, p)
		}
	}
	return out
}

func encodeRule(r intent.Rule) *pb.Rule {
	x := &pb.Rule{
		Action: actions[r.Action], IpVersion: pb.IPVersion(r.Family), Protocol: protocol(r.Protocol), NotProtocol: protocol(r.NotProtocol),
		SrcNet: texts(r.Src.Nets), NotSrcNet: texts(r.Src.NotNets), DstNet: texts(r.Dst.Nets), NotDstNet: texts(r.Dst.NotNets),
		SrcPorts: ports(r.Src.Ports), NotSrcPorts: ports(r.Src.NotPorts), DstPorts: ports(r.Dst.Ports), NotDstPorts: ports(r.Dst.NotPorts),
		SrcIpSetIds: texts(r.Src.Sets), NotSrcIpSetIds: texts(r.Src.NotSets), DstIpSetIds: texts(r.Dst.Sets), NotDstIpSetIds: texts(r.Dst.NotSets),
		SrcNamedPortIpSetIds: texts(r.Src.PortSets), NotSrcNamedPortIpSetIds: texts(r.Src.NotPortSets),
		DstNamedPortIpSetIds: texts(r.Dst.PortSets), NotDstNamedPortIpSetIds: texts(r.Dst.NotPortSets),
	}
	if i := r.ICMP; i != nil && i.AnyCode {
		x.Icmp = &pb.Rule_IcmpType{IcmpType: int32(i.Type)}
	} else if i != nil {
		x.Icmp = &pb.Rule_IcmpTypeCode{IcmpTypeCode: &pb.IcmpTypeAndCode{Type: int32(i.Type), Code: int32(i.Code)}}
	}
	if i := r.NotICMP; i != nil && i.AnyCode {
		x.NotIcmp = &pb.Rule_NotIcmpType{NotIcmpType: int32(i.Type)}
	} else if i != nil {
		x.NotIcmp = &pb.Rule_NotIcmpTypeCode{NotIcmpTypeCode: &pb.IcmpTypeAndCode{Type: int32(i.Type), Code: int32(i.Code)}}
	}
	encodeRequests(x, r.Requests)
	return x
}

// encodeRequests adds what a rule asks beyond packets.
func encodeRequests(x *pb.Rule, q *intent.Requests) {
	if q == nil {
		return
	}
	x.OriginalSrcSelector, x.OriginalNotSrcSelector, x.OriginalSrcNamespaceSelector = q.Src.Selector, q.Src.NotSelector, q.Src.NamespaceSelector
	x.OriginalDstSelector, x.OriginalNotDstSelector, x.OriginalDstNamespaceSelector = q.Dst.Selector, q.Dst.NotSelector, q.Dst.NamespaceSelector
	x.SrcServiceAccountMatch, x.DstServiceAccountMatch = accounts(q.Src.Accounts), accounts(q.Dst.Accounts)
	if q.HTTP == nil {
		return
	}
	x.HttpMatch = &pb.HTTPMatch{Methods: q.HTTP.Methods}
	for _, p := range q.HTTP.Paths {
		one := &pb.HTTPMatch_PathMatch{PathMatch: &pb.HTTPMatch_PathMatch_Exact{Exact: p.Exact}}
		if p.Exact == "" {
			one.PathMatch = &pb.HTTPMatch_PathMatch_Prefix{Prefix: p.Prefix}
		}
		x.HttpMatch.Paths = append(x.HttpMatch.Paths, one)
	}
}

func accounts(a *intent.Accounts) *pb.ServiceAccountMatch {
	if a == nil {
		return nil
	}
	return &pb.ServiceAccountMatch{Selector: a.Selector, Names: a.Names}
}

func protocol(number uint8) *pb.Protocol {
	if number == 0 {
		return nil
	}
	return &pb.Protocol{NumberOrName: &pb.Protocol_Number{Number: int32(number)}}
}

func ports(list []intent.PortRange) (out []*pb.PortRange) {
	for _, r := range list {
		out = append(out, &pb.PortRange{First: int32(r.Min), Last: int32(r.Max)})
	}
	return out
}

// texts are values as the protocol has them.
func texts[T interface{ String() string }](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}
