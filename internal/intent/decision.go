package intent

import (
	"fmt"
	"hash/fnv"
)

// Decision is what can decide about a packet: a rule, the end of a tier or of an endpoint's policy, or a guard that every
// host has.
type Decision struct {
	Reason   string // ReasonRule, or why without one
	Allowed  bool
	Endpoint EndpointID // the endpoint of the policy; zero: that of the packet's interface, since others share the rule
	Tier     string     // empty: a profile, or no policy at all
	Rule     RuleID     // Index is NoRule if Reason is neither ReasonRule nor ReasonLogged
}

// NoRule is the index of a decision without a rule.
const NoRule = -1

// Reasons for a decision.
const (
	ReasonRule           = "rule"
	ReasonLogged         = "logged" // by a rule with action Log, which decides nothing
	ReasonEndOfTier      = "end of tier"
	ReasonNoProfileMatch = "no profile matched"
	ReasonPolicyMissing  = "policy is missing"
	ReasonPolicyClosed   = "policy is closed"
	ReasonClosed         = "endpoint is closed"
	ReasonUnknownLink    = "no endpoint on this workload interface"
	ReasonEstablished    = "established"
	ReasonInvalid        = "invalid"
	ReasonToHost         = "setting defaultEndpointToHostAction"
	ReasonMetadata       = "setting metadataAddr"
	ReasonDNS            = "workloads of OpenStack always reach DNS of their host"
	ReasonServiceLoop    = "setting serviceLoopPrevention"
	ReasonHostToLocal    = "a host always reaches its own workloads"
	ReasonNoPolicy       = "no policy on this way"
	ReasonFailsafe       = "failsafe port"
	ReasonRevoked        = "policy no longer allows this flow"
	ReasonSpoofed        = "spoofed source"
	ReasonTunnel         = "encapsulation from a workload"
	ReasonPacketRate     = "packet rate exceeded"
	ReasonConnections    = "too many connections"
	ReasonNoPeer         = "encapsulation from no host of the tunnel"
)

// Hash returns the FNV-1a hash of the decision, in 32 bits: it is the same on all hosts and after any restart. Two decisions may have the
// same one; package attribution resolves that.
func (d Decision) Hash() uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s|%t|%s|%s|%s|%d|%d", d.Reason, d.Allowed, d.Endpoint, d.Tier, d.Rule.Policy, d.Rule.Direction, d.Rule.Index)
	return h.Sum32()
}
