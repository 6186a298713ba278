package verdict

import (
	"net/netip"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/match"
)

// Stages of a packet's way (docs/design/stages.md).
const (
	stageUntracked = "untracked"
	stagePreDNAT   = "pre-DNAT"
	stageHost      = "host"
	stageForward   = "forward"
	stageWorkload  = "workload"
)

// JudgeStaged is Judge if staged policies were enforced.
func (s *State) JudgeStaged(p Packet) Verdict {
	s.staged = true
	defer func() { s.staged = false }()
	return s.Judge(p)
}

// Judge returns the verdict on p at all stages of its way. It cannot fail: an unknown set is empty,
// an unknown policy denies, and so does a workload interface without an endpoint.
func (s *State) Judge(p Packet) Verdict {
	j := judge{s: s, p: p}
	v := j.judge()
	if v.Allowed && p.InLink != "" && p.OutLink != "" && s.host.Loops(p.Dst) {
		j.trace = v.Trace
		j.decide(false, Step{
			Stage: stageForward, Outcome: intent.ReasonServiceLoop, By: intent.RuleID{Index: intent.NoRule}, Reject: s.host.ServiceLoops == intent.LoopsReject,
		})
		return j.last
	}
	return v
}

// judge is Judge up to the last stage of those that forward, which is no endpoint's.
func (j *judge) judge() Verdict {
	s, p := j.s, j.p
	from, fromWorkload, ok := s.workload(p.InLink)
	if fromWorkload && !ok {
		return j.noEndpoint(from)
	}
	to, toWorkload, ok := s.workload(p.OutLink)
	if toWorkload && p.InLink == "" {
		// "Host → local workload is always allowed": no chain is on this way, so nothing closes it, neither a closed endpoint
		// nor the state of a connection. See agreetest.TestNothingStopsAHostOnItsWayToAWorkload.
		return j.without(true, intent.ReasonHostToLocal)
	}
	if toWorkload && !ok {
		return j.noEndpoint(to)
	}
	if p.InLink != "" {
		if v, done := j.hostEarly(fromWorkload); done {
			return v
		}
	}
	if p.InLink == "" && p.OutLink != "" {
		return j.hostOut()
	}
	if p.InLink != "" && p.OutLink != "" && j.p.State != Established && !j.skipsIn && !j.through(p.InLink, fromWorkload, intent.Ingress) {
		return j.last
	}
	switch {
	case fromWorkload && j.tunnel():
		return j.without(false, intent.ReasonTunnel)
	case p.State == Established:
		return j.without(true, intent.ReasonEstablished)
	case p.State == Invalid && (fromWorkload || toWorkload) && !s.host.AllowInvalid:
		return j.without(false, intent.ReasonInvalid)
	case p.OutLink == "":
		return j.toHost(from, fromWorkload)
	}
	return j.forwarded(from, to, fromWorkload, toWorkload)
}

// tunnel reports whether the packet encapsulates others in a way that workloads must not: IPIP is protocol 4 (RFC 2003), VXLAN is UDP
// to the port of the settings (RFC 7348).
func (j *judge) tunnel() bool {
	return j.p.Proto == 4 && !j.s.host.AllowIPIP || j.p.Proto == 17 && j.p.DstPort == j.s.host.PortVXLAN() && !j.s.host.AllowVXLAN
}

// judge is the evaluation of one packet.
type judge struct {
	s       *State
	p       Packet
	trace   []Step
	last    Verdict // of the last stage that decided
	skipsIn bool    // an early stage allowed: inbound host-normal and host-forward are skipped
}

// hostAt is the host endpoint of an interface. A workload's interface has that for all interfaces, and no other.
func (j *judge) hostAt(link string, ofWorkload bool) (intent.Endpoint, bool) {
	if ofWorkload {
		link = "*"
	}
	return j.s.hostEndpoint(link)
}

// hostEarly evaluates raw and pre-DNAT of an inbound packet; done if it is dropped, or
// has no further stage.
func (j *judge) hostEarly(fromWorkload bool) (Verdict, bool) {
	e, ok := j.hostAt(j.p.InLink, fromWorkload)
	if !ok || fromWorkload && j.forMetadata() {
		return Verdict{}, false
	}
	// "`*` host endpoints ignore doNotTrack"
	if e.Link != "*" && !j.failsafe(intent.Ingress, false) && !j.failsafe(intent.Egress, true) {
		switch j.tiers(stageUntracked, e, e.Policies().Untracked, intent.Ingress, j.p) {
		case intent.Deny:
			return j.last, true
		case intent.Allow:
			j.skipsIn, j.p.State = true, Untracked
		}
	}
	if j.p.State == Established {
		return Verdict{}, false
	}
	before := j.p
	if before.OrigDst.IsValid() {
		before.Dst, before.DstPort = before.OrigDst, before.OrigDstPort
	}
	if failsafe(j.s.host.FailsafeIn, before.Proto, before.Src, before.DstPort) {
		return Verdict{}, false
	}
	switch j.tiers(stagePreDNAT, e, e.Policies().PreDNAT, intent.Ingress, before) {
	case intent.Deny:
		return j.last, true
	case intent.Allow:
		j.skipsIn = true
	}
	return Verdict{}, false
}

// hostOut evaluates a packet of a local process that leaves by a host's own link.
func (j *judge) hostOut() Verdict {
	e, ok := j.s.hostEndpoint(j.p.OutLink)
	if ok && e.Link != "*" && !j.failsafe(intent.Egress, false) && !j.failsafe(intent.Ingress, true) {
		switch j.tiers(stageUntracked, e, e.Policies().Untracked, intent.Egress, j.p) {
		case intent.Deny:
			return j.last
		case intent.Allow:
			j.p.State = Untracked
		}
	}
	switch {
	case j.p.State == Established:
		return j.without(true, intent.ReasonEstablished)
	case !ok || j.p.State == Untracked:
		return j.passed()
	}
	if j.failsafe(intent.Egress, false) {
		return j.without(true, intent.ReasonFailsafe)
	}
	j.all(stageHost, e, e.Policies().Normal, intent.Egress)
	return j.last
}

// failsafe reports whether no policy may close this packet's way. For replies of untracked
// flows, source and destination port are exchanged.
func (j *judge) failsafe(dir intent.Direction, reply bool) bool {
	list, other, port := j.s.host.FailsafeOut, j.p.Dst, j.p.DstPort
	if dir == intent.Ingress {
		list = j.s.host.FailsafeIn
	}
	if (dir == intent.Ingress) != reply {
		other = j.p.Src
	}
	if reply {
		port = j.p.SrcPort
	}
	return failsafe(list, j.p.Proto, other, port)
}

func failsafe(list []intent.Failsafe, proto uint8, other netip.Addr, port uint16) bool {
	for _, f := range list {
		if f.Protocol == proto && f.Port == port && (!f.Net.IsValid() || f.Net.Contains(other)) {
			return true
		}
	}
	return false
}

// forMetadata reports whether a packet goes to the server of metadata, after translation.
func (j *judge) forMetadata() bool {
	m := j.s.host.Metadata
	return m.IsValid() && j.p.Proto == 6 && m == netip.AddrPortFrom(j.p.Dst, j.p.DstPort)
}

// toHost evaluates a packet to a local process. Of a workload's, the setting decides, and no host endpoint after it.
func (j *judge) toHost(from intent.Endpoint, fromWorkload bool) Verdict {
	if fromWorkload {
		if j.forMetadata() {
			return j.without(true, intent.ReasonMetadata)
		}
		if j.s.host.DNS && j.p.Proto == 17 && j.p.DstPort == 53 {
			return j.without(true, intent.ReasonDNS)
		}
		if !j.all(stageWorkload, from, from.Policies().Normal, intent.Egress) {
			return j.last
		}
		if j.s.host.EndpointToHost == intent.ToHostReturn {
			return j.passed()
		}
		return j.without(j.s.host.EndpointToHost == intent.ToHostAccept, intent.ReasonToHost)
	}
	if e, ok := j.s.hostEndpoint(j.p.InLink); ok && j.p.InLink != "" && !j.skipsIn {
		if j.failsafe(intent.Ingress, false) {
			return j.without(true, intent.ReasonFailsafe)
		}
		j.all(stageHost, e, e.Policies().Normal, intent.Ingress)
		return j.last
	}
	return j.passed()
}

// forwarded evaluates a packet that is forwarded, after host in: from the
// workload, to the workload, host out.
func (j *judge) forwarded(from, to intent.Endpoint, fromWorkload, toWorkload bool) Verdict {
	if fromWorkload && !j.all(stageWorkload, from, from.Policies().Normal, intent.Egress) {
		return j.last
	}
	if toWorkload && !j.all(stageWorkload, to, to.Policies().Normal, intent.Ingress) {
		return j.last
	}
	if !j.through(j.p.OutLink, toWorkload, intent.Egress) {
		return j.last
	}
	return j.passed()
}

// through evaluates the policy for forwarded packets of an interface's host endpoint, if it has one.
func (j *judge) through(link string, ofWorkload bool, dir intent.Direction) bool {
	e, ok := j.hostAt(link, ofWorkload)
	if !ok {
		return true
	}
	if e.Closed != "" {
		j.decide(false, Step{Stage: stageForward, Endpoint: e.ID, Outcome: intent.ReasonClosed, By: intent.RuleID{Direction: dir, Index: intent.NoRule}})
		return false
	}
	return j.tiers(stageForward, e, e.Policies().Forward, dir, j.p) != intent.Deny
}

// all evaluates tiers, then profiles, then drops. It reports whether the packet passed.
func (j *judge) all(stage string, e intent.Endpoint, tiers []intent.Tier, dir intent.Direction) bool {
	if e.Closed != "" {
		j.decide(false, Step{Stage: stage, Endpoint: e.ID, Outcome: intent.ReasonClosed, By: intent.RuleID{Direction: dir, Index: intent.NoRule}})
		return false
	}
	if a := j.tiers(stage, e, tiers, dir, j.p); a != intent.Pass {
		return a == intent.Allow
	}
	for _, id := range e.Policies().Profiles {
		switch j.policy(Step{Stage: stage, Endpoint: e.ID}, id, dir, j.p) {
		case intent.Allow:
			return true
		case intent.Deny:
			return false
		}
	}
	j.decide(false, Step{Stage: stage, Endpoint: e.ID, Outcome: intent.ReasonNoProfileMatch, By: intent.RuleID{Direction: dir, Index: intent.NoRule}})
	return false
}

// tiers returns Allow or Deny, or Pass if no tier decided. The default actions of tiers in
// the early host stages decide nothing.
func (j *judge) tiers(stage string, e intent.Endpoint, tiers []intent.Tier, dir intent.Direction, p Packet) intent.Action {
	early := stage == stageUntracked || stage == stagePreDNAT
	for _, t := range tiers {
		ids := t.Ingress
		if dir == intent.Egress {
			ids = t.Egress
		}
		if len(ids) == 0 {
			continue
		}
		step := Step{Stage: stage, Endpoint: e.ID, Tier: t.Name}
		switch a := j.tier(step, ids, dir, p); {
		case a == intent.Allow || a == intent.Deny:
			return a
		case a == intent.Log && t.Default == intent.Deny && !early: // no rule decided
			step.Outcome, step.By = intent.ReasonEndOfTier, intent.RuleID{Policy: ids[len(ids)-1], Direction: dir, Index: intent.NoRule}
			j.decide(false, step)
			return intent.Deny
		case a == intent.Log:
			step.Outcome, step.By = "end of tier: pass", intent.RuleID{Direction: dir, Index: intent.NoRule}
			j.trace = append(j.trace, step)
		}
	}
	return intent.Pass
}

// tier returns the action of the first policy that decides; Log if none does.
func (j *judge) tier(step Step, ids []intent.PolicyID, dir intent.Direction, p Packet) intent.Action {
	for _, id := range ids {
		if a := j.policy(step, id, dir, p); a != intent.Log {
			return a
		}
	}
	return intent.Log
}

// policy returns the action of the first rule that matches; Log if none does. An unknown
// policy, and one that takes the place of something unreadable, denies.
func (j *judge) policy(step Step, id intent.PolicyID, dir intent.Direction, p Packet) intent.Action {
	pol, ok := j.s.policies[id]
	step.By = intent.RuleID{Policy: id, Direction: dir, Index: intent.NoRule}
	if !ok || pol.Closed != "" {
		step.Outcome = intent.ReasonPolicyClosed
		if !ok {
			step.Outcome = intent.ReasonPolicyMissing
		}
		j.decide(false, step)
		return intent.Deny
	}
	rules := pol.Ingress
	if dir == intent.Egress {
		rules = pol.Egress
	}
	terms := pol.terms(dir)
	for i, r := range rules {
		if r.Action == intent.Log || !match.Any(terms[i], p.terms(), &j.s.sets) {
			continue
		}
		step.By.Index = i
		if r.Action != intent.Pass {
			step.Outcome = intent.ReasonRule
			step.Reject = r.Rejects() && answers(step.Stage, dir)
			j.decide(r.Action == intent.Allow, step)
			return r.Action
		}
		if step.Tier == "" {
			continue // profiles have no next tier to pass to
		}
		step.Outcome = "pass"
		j.trace = append(j.trace, step)
		return intent.Pass
	}
	return intent.Log
}

// answers reports whether a stage can answer the sender. Before conntrack an answer would belong to no connection, and policy of
// the other direction would decide about it; packets of the host are evaluated in postrouting, where the kernel cannot reject.
func answers(stage string, dir intent.Direction) bool {
	return stage != stageUntracked && (stage != stageHost || dir != intent.Egress)
}

// decide records a decision; it is final unless a later stage is evaluated.
func (j *judge) decide(allowed bool, step Step) {
	j.trace = append(j.trace, step)
	j.last = Verdict{
		Decision: intent.Decision{Allowed: allowed, Endpoint: step.Endpoint, Tier: step.Tier, Rule: step.By, Reason: step.Outcome},
		Rejected: step.Reject,
		Trace:    j.trace,
	}
}

// without records a decision without a policy.
func (j *judge) without(allowed bool, reason string) Verdict {
	j.decide(allowed, Step{Outcome: reason, By: intent.RuleID{Index: intent.NoRule}})
	return j.last
}

// passed returns the verdict of the last stage that allowed, if any was evaluated.
func (j *judge) passed() Verdict {
	if j.last.Reason == "" {
		return j.without(true, intent.ReasonNoPolicy)
	}
	return j.last
}

// noEndpoint returns the verdict for an interface without an endpoint, or with a closed one: it carries nothing but what its host
// sends to it, whatever the state of connections.
func (j *judge) noEndpoint(e intent.Endpoint) Verdict {
	reason := intent.ReasonUnknownLink
	if e.Closed != "" {
		reason = intent.ReasonClosed
	}
	j.decide(false, Step{Stage: stageWorkload, Endpoint: e.ID, Outcome: reason, By: intent.RuleID{Index: intent.NoRule}})
	return j.last
}
