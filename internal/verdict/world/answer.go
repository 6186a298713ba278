package world

import "net/netip"

// Query asks: may Src open a flow like this to Dst?
type Query struct {
	Src, Dst           Party
	Family             int // 4 or 6: the family of the parties' addresses
	Proto              uint8
	SrcPort, DstPort   uint16 // of TCP, UDP, SCTP, UDPLite
	ICMPType, ICMPCode uint8  // of ICMP, ICMPv6
	// Uplink names the interface by which packets come to and leave the hosts. Empty: not known; then it is that of the host
	// endpoint with an address of its node, or else each host endpoint of the node is evaluated, and one that denies counts.
	Uplink string
	// Via names a node other than the ends' that forwards the packet, in by Uplink and out by it again; empty: none.
	Via string
}

// Party is one end of a query. [World.Resolve] makes one from text.
type Party struct {
	Name     string       `json:"name"`               // namespace/workload, host/NODE or the address
	Endpoint string       `json:"endpoint,omitempty"` // a workload's: namespace/name of its WorkloadEndpoint
	Node     string       `json:"node,omitempty"`     // its host; empty: outside of the cluster
	Host     bool         `json:"host,omitempty"`     // it is the host Node
	Addrs    []netip.Addr `json:"addrs,omitempty"`
	// Floating is the floating address by which a workload is reached; not valid: by its own. It means nothing of a source.
	Floating netip.Addr `json:"floating,omitzero"`
}

// Answer is the verdict on the flow's first packet, and the reason.
type Answer struct {
	Allowed bool       `json:"allowed"`
	Src     netip.Addr `json:"src"`
	Dst     netip.Addr `json:"dst"`
	Hops    []Hop      `json:"hops"` // in the order of the packet's way; all, also those after a denial
	// Decided is the first denial, or the last hop's decision if there is none.
	Decided Decision `json:"decided"`
}

// Hop is one endpoint's policy in one direction, or the host's setting.
type Hop struct {
	Endpoint  string `json:"endpoint"`  // namespace/name of the WorkloadEndpoint; host/NODE
	Name      string `json:"name"`      // a name for people
	Direction string `json:"direction"` // Ingress or Egress
	Stage     string `json:"stage"`     // workload, or one of a host endpoint's
	Node      string `json:"node"`
	// AssumedInterface is that of the host endpoint, if it is only assumed that the packet uses it.
	AssumedInterface string `json:"assumedInterface,omitempty"`

	Allowed  bool     `json:"allowed"`
	Tiers    []Tier   `json:"tiers,omitempty"`    // up to the one that decided; those without a policy are Skipped
	Profiles []Policy `json:"profiles,omitempty"` // up to the one that decided
	Decided  Decision `json:"decided"`

	tags []string // of the endpoint, for [Answer.Tags]
}

// Stages of a packet's way (docs/design/stages.md).
const (
	StageWorkload  = "workload"
	StageHost      = "host"      // to or from a process of the host
	StageForward   = "forward"   // through the host
	StagePreDNAT   = "pre-DNAT"  // before all others but the untracked one
	StageUntracked = "untracked" // before conntrack
)

// Outcomes of a tier.
const (
	OutcomeAllow   = "allow"
	OutcomeDeny    = "deny"
	OutcomePass    = "pass"
	OutcomeEndDeny = "end of tier: deny"
	OutcomeEndPass = "end of tier: pass"
	OutcomeSkipped = "skipped" // no policy of it applies in this direction
)

// Tier is the evaluation of one tier.
type Tier struct {
	Name     string   `json:"name"`
	Outcome  string   `json:"outcome"`
	Policies []Policy `json:"policies,omitempty"` // those that apply, up to the one that decided

	tags []string // of policies that do not apply, for [Answer.Tags]
}

// Policy is the evaluation of one policy or profile.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Rule      int    `json:"rule"` // index of the rule that decided; -1: none matched
	Action    string `json:"action,omitempty"`
	Text      string `json:"text,omitempty"`   // that rule, for people
	Logged    []int  `json:"logged,omitempty"` // Log rules that matched on the way
	Note      string `json:"note,omitempty"`   // what is wrong with it, such as "is missing"
	// NotTranslated is what of a policy of Kubernetes could not be translated, and is closed.
	NotTranslated string `json:"notTranslated,omitempty"`

	tags []string // of all rules that matched, for [Answer.Tags]
}

// Reasons of a decision.
const (
	ReasonRule           = "rule"
	ReasonProfileRule    = "profile rule"
	ReasonEndOfTier      = "end of tier default"
	ReasonNoProfileMatch = "no profile matched"
	ReasonNoProfile      = "no profile"
	ReasonProfileMissing = "profile is missing"
	ReasonProfileClosed  = "profile cannot be read"
	ReasonPolicyClosed   = "a policy of the namespace cannot be read"
	ReasonClosed         = "endpoint is closed"
	ReasonNoAddress      = "no address of this family"
	ReasonHostToLocal    = "a host always reaches its own workloads"
	ReasonToHost         = "setting defaultEndpointToHostAction"
	ReasonMetadata       = "setting metadataAddr"
	ReasonDNS            = "workloads of OpenStack always reach DNS of their host"
	ReasonServiceLoop    = "setting serviceLoopPrevention"
	ReasonFailsafe       = "failsafe port"
	ReasonTunnel         = "encapsulation from a workload"
	ReasonNotJudged      = "no policy of ours is on this way"
)

// Values of Decision.Reject.
const (
	RejectSent       = "the sender is told"
	RejectSuppressed = "in silence: at this stage the sender cannot be told"
)

// Decision is what decided, in one hop or in all.
type Decision struct {
	Reason    string `json:"reason"`
	Detail    string `json:"detail,omitempty"`    // more about Reason, for people
	Endpoint  string `json:"endpoint,omitempty"`  // the endpoint with that policy
	Direction string `json:"direction,omitempty"` // Ingress or Egress
	Tier      string `json:"tier,omitempty"`
	Policy    string `json:"policy,omitempty"` // kind/namespace/name, or kind/name
	RuleIndex int    `json:"ruleIndex"`        // -1: no rule
	Action    string `json:"action"`           // Allow or Deny
	Text      string `json:"text,omitempty"`   // the rule, for people
	// Reject is set if the rule rejects: RejectSent or RejectSuppressed.
	Reject string `json:"reject,omitempty"`
	// Fields are the conditions that the deciding rule has, such as
	// source.selector, in a fixed order.
	Fields []string `json:"fields,omitempty"`
}
