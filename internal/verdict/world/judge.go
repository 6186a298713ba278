package world

import (
	"net/netip"
	"strings"

	"github.com/twillnet/twill/api"
)

// packet is the first packet of the flow.
type packet struct {
	src, dst           netip.Addr
	proto              uint8
	srcPort, dstPort   uint16
	icmpType, icmpCode uint8
	sentTo             netip.Addr // a floating address, until the host of its workload puts dst in its place; not valid: dst
}

// asSent returns the packet as it is before destination NAT.
func (p packet) asSent() packet {
	if p.sentTo.IsValid() {
		p.dst = p.sentTo
	}
	return p
}

// Judge answers q. The way of a packet: the egress policy of a workload that
// sends it, then the ingress policy of a workload that receives it, wherever
// the two are; the other end of a host's own workload is that host.
func (w *World) Judge(q Query) Answer {
	q = w.translated(q)
	p := packet{
		src: addrOf(q.Src, q.Family), dst: addrOf(q.Dst, q.Family), proto: q.Proto,
		srcPort: q.SrcPort, dstPort: q.DstPort, icmpType: q.ICMPType, icmpCode: q.ICMPCode, sentTo: q.Dst.Floating,
	}
	a := Answer{Src: p.src, Dst: p.dst}
	from, to := w.endpoint(q.Src.Endpoint), w.endpoint(q.Dst.Endpoint)
	for _, party := range []Party{q.Src, q.Dst} {
		// A host reaches its own workloads from any address it has there.
		local := party.Host && to != nil && to.spec.Node == party.Node
		if !addrOf(party, q.Family).IsValid() && !local {
			a.Decided = Decision{Reason: ReasonNoAddress, Detail: party.Name, RuleIndex: -1, Action: string(api.Deny)}
			return a
		}
	}
	if from != nil && from == to && !p.sentTo.IsValid() {
		a.Allowed, a.Decided = true, notJudged()
		return a
	}
	within := q.Src.Node != "" && q.Src.Node == q.Dst.Node // it does not leave its host
	out := p                                               // as it leaves its host
	if !within {
		out = p.asSent()
	}
	if from != nil {
		a.Hops = append(a.Hops, w.enter(from, p, out, q.Dst.Host && within)...)
		a.Hops = append(a.Hops, w.sent(from, q.Dst.Host && within, out)...)
	}
	if !within {
		a.Hops = append(a.Hops, w.leave(q.Src.Node, q.Uplink, out, from == nil)...)
		if from != nil {
			a.Hops = append(a.Hops, w.looped(q.Src.Node, out.dst)...)
		}
		if q.Via != "" && q.Via != q.Src.Node && q.Via != q.Dst.Node {
			a.Hops = append(a.Hops, w.arrive(q.Via, q.Uplink, out, false)...)
			a.Hops = append(a.Hops, w.leave(q.Via, q.Uplink, out, false)...)
			a.Hops = append(a.Hops, w.looped(q.Via, out.dst)...)
		}
		a.Hops = append(a.Hops, w.arrive(q.Dst.Node, q.Uplink, p, to == nil)...)
	}
	if to != nil {
		a.Hops = append(a.Hops, w.ingressHop(to, p, q.Src.Host && within))
		if !q.Src.Host || !within {
			a.Hops = append(a.Hops, w.underAll(to, p)...)
			a.Hops = append(a.Hops, w.looped(q.Dst.Node, p.dst)...)
		}
	}
	a.decide()
	return a
}

// sent returns the hops of a packet that a workload sends, maybe to its own host.
func (w *World) sent(from *endpoint, toHost bool, p packet) []Hop {
	if !toHost {
		return []Hop{w.fromWorkload(from, p)}
	}
	for _, of := range []func(*endpoint, packet) (Hop, bool){w.served, w.resolves} {
		if h, ok := of(from, p); ok {
			return []Hop{h}
		}
	}
	return append([]Hop{w.fromWorkload(from, p)}, w.toHostHops(from.spec.Node)...)
}

// addrOf returns the party's first address of the family.
func addrOf(p Party, family int) netip.Addr {
	for _, a := range p.Addrs {
		if a.Is4() == (family == 4) {
			return a
		}
	}
	return netip.Addr{}
}

func notJudged() Decision {
	return Decision{Reason: ReasonNotJudged, RuleIndex: -1, Action: string(api.Allow)}
}

// decide sets the whole answer: each hop must allow.
func (a *Answer) decide() {
	a.Allowed, a.Decided = true, notJudged()
	for _, h := range a.Hops {
		a.Decided = h.Decided
		if !h.Allowed {
			a.Allowed = false
			return
		}
	}
}

// ingressHop evaluates a workload's ingress policy, unless its own host is the source: "Host → local workload is always allowed, whatever
// policy says". A closed one has no route, so the host does not reach it either.
func (w *World) ingressHop(e *endpoint, p packet, fromOwnHost bool) Hop {
	if fromOwnHost && e.closed == "" {
		h := newHop(e, api.Ingress, StageWorkload)
		return h.end(Decision{Reason: ReasonHostToLocal, RuleIndex: -1, Action: string(api.Allow)})
	}
	return w.hop(e, api.Ingress, p)
}

// toHostHops returns the hops of a workload's packet to its own host after the
// workload's egress policy. No host endpoint's normal policy is asked about it.
func (w *World) toHostHops(name string) []Hop {
	action := w.toHost["node."+name]
	if action == "" {
		action = w.toHost["default"]
	}
	d := Decision{Reason: ReasonToHost, Detail: "Drop", RuleIndex: -1, Action: string(api.Deny)}
	if action == "Return" || action == "Accept" {
		d.Detail, d.Action = action, string(api.Allow)
	}
	h := Hop{Endpoint: "host/" + name, Name: "host/" + name, Direction: string(api.Ingress), Stage: StageHost, Node: name}
	return []Hop{h.end(d)}
}

func toHostAction(r *api.FelixConfiguration) string {
	for _, a := range []string{"Drop", "Return", "Accept"} {
		if strings.EqualFold(a, r.Spec.DefaultEndpointToHostAction) {
			return a
		}
	}
	return ""
}

func newHop(e *endpoint, dir api.PolicyType, stage string) Hop {
	h := Hop{Endpoint: e.name, Name: e.label, Direction: string(dir), Stage: stage, Node: e.spec.Node}
	if e.host && e.spec.InterfaceName != "*" && len(e.prefixes) == 0 {
		h.tags = append(h.tags, "host endpoint without expectedIPs")
	}
	return h
}

// end sets the decision of a hop.
func (h Hop) end(d Decision) Hop {
	d.Endpoint, d.Direction = h.Endpoint, h.Direction
	if d.Reject != "" && (h.Stage == StageUntracked || h.Stage == StageHost && h.Direction == string(api.Egress)) {
		d.Reject = RejectSuppressed
	}
	h.Decided, h.Allowed = d, d.Action == string(api.Allow)
	return h
}

// closedTier precedes all tiers and has the policies that cannot be read.
const closedTier = "closed"

// hop evaluates the workload stage of docs/design/stages.md, or the normal one of a host: tiers,
// then profiles, then drop.
func (w *World) hop(e *endpoint, dir api.PolicyType, p packet) Hop {
	stage := StageWorkload
	if e.host {
		stage = StageHost
	}
	h := newHop(e, dir, stage)
	deny := func(reason, detail string) Hop {
		return h.end(Decision{Reason: reason, Detail: detail, RuleIndex: -1, Action: string(api.Deny)})
	}
	if e.closed != "" {
		return deny(ReasonClosed, e.closed)
	}
	for _, c := range w.closed {
		if c.ref.Namespace == e.namespace {
			seen := Policy{Kind: c.ref.Kind, Namespace: c.ref.Namespace, Name: c.ref.Name, Rule: -1, Action: string(api.Deny), Note: c.closed}
			h.Tiers = append(h.Tiers, Tier{Name: closedTier, Outcome: OutcomeDeny, Policies: []Policy{seen}})
			d := Decision{Reason: ReasonPolicyClosed, Detail: c.closed, Tier: closedTier, Policy: seen.ref(), RuleIndex: -1, Action: string(api.Deny)}
			return h.end(d)
		}
	}
	if d := w.walk(&h, e, dir, p); d != nil {
		return h.end(*d)
	}
	return w.profileHop(h, e, dir, p)
}

// walk evaluates all tiers; nil if none decides.
func (w *World) walk(h *Hop, e *endpoint, dir api.PolicyType, p packet) *Decision {
	for _, name := range w.tierNames() {
		t, d := w.tier(name, e, dir, p, h.Stage)
		h.Tiers = append(h.Tiers, t)
		if d != nil {
			return d
		}
	}
	return nil
}

// tier evaluates one tier; the decision is nil if the packet goes on to the next.
func (w *World) tier(name string, e *endpoint, dir api.PolicyType, p packet, stage string) (Tier, *Decision) {
	t := Tier{Name: name, Outcome: OutcomeSkipped, tags: w.placelessTags(name, e, dir, stage)}
	for _, pol := range w.applicable(name, e, dir, stage) {
		seen, d := w.evaluate(pol.ref, rulesOf(pol.spec.Ingress, pol.spec.Egress, dir), p, scope{namespace: pol.ref.Namespace})
		seen.tags, seen.NotTranslated = append(seen.tags, pol.tags()...), pol.partly
		t.Policies = append(t.Policies, seen)
		switch seen.Action {
		case string(api.Allow), string(api.Deny):
			t.Outcome = strings.ToLower(seen.Action)
			d.Tier, d.Reason = name, ReasonRule
			return t, d
		case string(api.Pass):
			t.Outcome = OutcomePass
			return t, nil
		}
	}
	if len(t.Policies) == 0 {
		return t, nil
	}
	// The default actions of tiers in the early stages drop nothing.
	if w.endsInPass(name) || stage == StageUntracked || stage == StagePreDNAT {
		t.Outcome = OutcomeEndPass
		return t, nil
	}
	t.Outcome = OutcomeEndDeny
	last := t.Policies[len(t.Policies)-1]
	return t, &Decision{Reason: ReasonEndOfTier, Tier: name, Policy: last.ref(), RuleIndex: -1, Action: string(api.Deny)}
}

// profileHop evaluates the profiles, after the last tier.
func (w *World) profileHop(h Hop, e *endpoint, dir api.PolicyType, p packet) Hop {
	for _, name := range e.spec.Profiles {
		ref := api.Ref{Kind: api.KindProfile, Name: name}
		prof, ok := w.profiles[name]
		reason, note := ReasonProfileMissing, "is missing"
		if ok && prof.closed != "" {
			reason, note = ReasonProfileClosed, prof.closed
		}
		if !ok || prof.closed != "" {
			h.Profiles = append(h.Profiles, Policy{Kind: ref.Kind, Name: name, Rule: -1, Action: string(api.Deny), Note: note})
			return h.end(Decision{Reason: reason, Detail: "profile " + name + ": " + note, Policy: refText(ref), RuleIndex: -1, Action: string(api.Deny)})
		}
		seen, d := w.evaluate(ref, rulesOf(prof.spec.Ingress, prof.spec.Egress, dir), p, scope{})
		h.Profiles = append(h.Profiles, seen)
		if d != nil {
			d.Reason = ReasonProfileRule
			return h.end(*d)
		}
	}
	reason := ReasonNoProfileMatch
	if len(e.spec.Profiles) == 0 {
		reason = ReasonNoProfile
	}
	return h.end(Decision{Reason: reason, RuleIndex: -1, Action: string(api.Deny)})
}

func rulesOf(ingress, egress []api.Rule, dir api.PolicyType) []api.Rule {
	if dir == api.Ingress {
		return ingress
	}
	return egress
}

func refText(r api.Ref) string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

func (p Policy) ref() string {
	return refText(api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})
}
