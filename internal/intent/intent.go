// Package intent is the typed answer of calc: what this node should be.
//
// In: nothing; these are values. Out: nothing; calc makes them, verdict judges
// packets by them, dataplane drivers make the kernel match them.
// Intents hold no references to api resources and are not changed once sent.
package intent

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Batch is the smallest change from the last batch. Its fields are in the
// order in which a driver may apply them; Removed goes last, reversed.
type Batch struct {
	IPSets    []IPSet // new sets, with their first members
	Members   []MemberDelta
	Policies  []Policy
	Endpoints []Endpoint
	Routes    []Route
	Peers     []TunnelPeer
	Host      *HostSettings // nil: unchanged
	Removed   []Key
	InSync    bool // true once every resource that existed at start is in
}

// Empty reports whether the batch changes nothing.
func (b Batch) Empty() bool {
	return len(b.IPSets)+len(b.Members)+len(b.Policies)+len(b.Endpoints)+len(b.Routes)+len(b.Peers)+len(b.Removed) == 0 && b.Host == nil
}

// Outcome says what became of one intent in the kernel.
type Outcome struct {
	Key    Key
	Err    error  // nil: it is in force
	Final  bool   // of an Err: to try again does not help, until intents change
	Reason string // why it is not up although Err is nil, such as "interface is absent"
}

// Repair is something that somebody else had changed or made, and that is now as the intents want it.
type Repair struct {
	What  string // "chain wl-guard", "route 10.65.1.2/32", "ipv4/conf/cali1/rp_filter"
	Cause Cause
}

// Cause is how a change of somebody else's was found.
type Cause string

// Causes.
const (
	ByEvent    Cause = "event"     // the kernel told at once
	ByReadBack Cause = "read-back" // it has no event for it, or the event was lost
	ByTakeOver Cause = "take-over" // it was never ours, and stood where ours belongs
)

// SetID names an IP set; equal content selection has an equal id.
type SetID string

// SetKind is the shape of a set's members.
type SetKind uint8

// Kinds of sets.
const (
	SetAddrs SetKind = iota // prefixes; a host is /32 or /128
	SetPorts                // address (always a host prefix), protocol, port: named ports
)

// IPSet is a selection of addresses, of both families.
type IPSet struct {
	ID      SetID
	Kind    SetKind
	Comment string // the selector, for people
	Members []Member
}

// Member is an element of a set. Proto and Port are zero in a SetAddrs.
type Member struct {
	Prefix netip.Prefix
	Proto  uint8
	Port   uint16
}

// MemberDelta changes a set that exists.
type MemberDelta struct {
	Set            SetID
	Added, Removed []Member
}

// PolicyID names a policy or profile. Kind is api.KindNetworkPolicy, …GlobalNetworkPolicy or …Profile.
type PolicyID struct {
	Kind, Namespace, Name string
}

// String is kind/namespace/name, or kind/name.
func (p PolicyID) String() string {
	if p.Namespace == "" {
		return p.Kind + "/" + p.Name
	}
	return p.Kind + "/" + p.Namespace + "/" + p.Name
}

// Staged reports whether it is a policy that is judged and never enforced.
func (p PolicyID) Staged() bool { return strings.HasPrefix(p.Kind, "Staged") }

// Policy is the rules of a policy or profile that some local endpoint uses.
type Policy struct {
	ID      PolicyID
	Tier    string // empty for a profile
	Ingress []Rule // a rule's identity is (policy, direction, index here)
	Egress  []Rule
	// Closed says why this stands for something missing or unreadable; its
	// rules then deny everything.
	Closed string
}

// Action of a rule, or at the end of a tier.
type Action uint8

// Actions. The zero value denies.
const (
	Deny Action = iota
	Allow
	Pass
	Log
)

// String is the action as users write it.
func (a Action) String() string { return [...]string{"Deny", "Allow", "Pass", "Log"}[a&3] }

// Direction is seen from the endpoint.
type Direction uint8

// Directions.
const (
	Ingress Direction = iota
	Egress
)

// String is the direction as users write it.
func (d Direction) String() string {
	if d == Ingress {
		return "Ingress"
	}
	return "Egress"
}

// RuleID is the identity of a rule, in every log, counter and explanation.
type RuleID struct {
	Policy    PolicyID
	Direction Direction
	Index     int
}

// Rejects reports whether a packet that the rule denies is answered.
func (r Rule) Rejects() bool { return r.Reject && r.Action == Deny && !r.Void }

// Family restricts a rule to one IP version.
type Family uint8

// Families.
const (
	AnyFamily Family = 0
	IPv4      Family = 4
	IPv6      Family = 6
)

// Rule is a conjunction: it matches if everything that is set in it matches.
type Rule struct {
	Action      Action
	Void        bool // matches nothing; keeps its place
	Reject      bool // of a Deny: the sender is told, where the kernel can
	Family      Family
	Protocol    uint8 // 0: any
	NotProtocol uint8 // 0: none
	ICMP        *ICMP
	NotICMP     *ICMP
	Src, Dst    Peer
}

// ICMP matches a type, and a code unless AnyCode.
type ICMP struct {
	Type, Code uint8
	AnyCode    bool
}

// Peer is what one side of a packet must be.
//
// A list of prefixes that is not empty makes its rule one of the families that the list has, also the list of those that must
// not be: a rule is for no packet of a family of which one of its four lists has prefixes, but none of this family
// (decision 016).
type Peer struct {
	Nets    []netip.Prefix // in one of these, if any are given
	NotNets []netip.Prefix // in none of these
	Sets    []SetID        // in all of these
	NotSets []SetID        // in none of these
	// The port must be in Ports or, with its address and protocol, in one of
	// PortSets, if any of the two is given. Likewise in none of the others.
	Ports       []PortRange
	PortSets    []SetID
	NotPorts    []PortRange
	NotPortSets []SetID
}

// PortRange is inclusive at both ends.
type PortRange struct{ Min, Max uint16 }

// EndpointKind tells workloads from hosts.
type EndpointKind uint8

// Kinds of endpoints.
const (
	Workload EndpointKind = iota
	Host
)

// EndpointID names an endpoint as the datastore does; Namespace is empty for a host's.
type EndpointID struct {
	Kind            EndpointKind
	Namespace, Name string
}

// String is workload/namespace/name or host/name.
func (e EndpointID) String() string {
	if e.Kind == Host {
		return "host/" + e.Name
	}
	return "workload/" + e.Namespace + "/" + e.Name
}

// Endpoint is a local endpoint.
type Endpoint struct {
	ID        EndpointID
	Label     string       // for people: namespace/pod, or the host endpoint's name
	Link      string       // interface name; "*" for all of a host's
	MAC       string       // empty: unknown
	Addrs     []netip.Addr // a workload's own; a host's expected
	Spoofable []netip.Prefix
	Group     *Group // what it is asked by; nil: no policy and no profile, see Policies
	Closed    string // why it must carry no traffic at all; empty: it may
}

// RouteKind says what a route does.
type RouteKind uint8

// Kinds of routes.
const (
	RouteLink      RouteKind = iota // to a local endpoint, scope link
	RouteBlackhole                  // an own block
)

// Route is one that the agent owns.
type Route struct {
	Dst  netip.Prefix
	Kind RouteKind
	Link string
	MAC  string // of the endpoint, for a permanent neighbour; empty: resolve
}

// TunnelPeer is a remote end of an overlay; nothing makes one yet.
type TunnelPeer struct {
	Node string
	Addr netip.Addr
}

// HostSettings are those of the whole node. They come in batches like all else,
// so that a driver brings a change of them into force together with policy, and
// needs no restart.
type HostSettings struct {
	EndpointToHost ToHost // what a workload's traffic to its host gets after its egress policy
	// Prefixes of names of workloads' interfaces, sorted; nil: the driver's own default.
	Prefixes []string
	// Exclude are names of interfaces, and regular expressions between slashes, that no host endpoint has by an address.
	Exclude      []string
	NoForwarding bool // the host is made no router
	NoIPv6       bool // IPv6 is not forwarded, and no gateway answers in it; its rules are as ever
	AllowVXLAN   bool // from workloads
	AllowIPIP    bool // from workloads
	AllowInvalid bool // what conntrack calls invalid goes on to policy
	FailsafeIn   []Failsafe
	FailsafeOut  []Failsafe
	KeepDenied   bool // flows that policy denies after they began live on
	OwnTable     bool // nobody but the agent may change its nftables table, where the kernel can see to that
	// ReportAllowed: rules report what they allow, too, and not only what they drop.
	ReportAllowed bool
	Log           LogSettings
	Refresh       Refresh
	NAT           NATOutgoing
}

// NATOutgoing gives packets from some pools to what is in no pool the host's own address.
type NATOutgoing struct {
	From []netip.Prefix // pools that ask for it, sorted
	Pool []netip.Prefix // all of them, and what else is inside, sorted; empty if From is
	// How: the zero value gives packets that leave by any interface its address, and whatever port is free.
	Addr  netip.Addr // IPv4; instead of the interface's
	Ports PortRange  // of TCP and UDP; the zero value: any
	Link  string     // by which they leave; * at its end: any that begins so
}

// Failsafe is what no policy of a host endpoint can close: inbound, a port of the
// host, for others in Net; outbound, that port of others in Net.
type Failsafe struct {
	Protocol uint8
	Port     uint16
	Net      netip.Prefix // the zero value: anywhere
}

// LogSettings say how rules with action Log report packets.
type LogSettings struct {
	Prefix string // %t, %k, %n, %p: tier, kind, name, namespace/name of the policy
	Rate   uint32 // packets in Per, for each rule; zero: no limit
	Per    time.Duration
	Burst  uint32
}

// Begin is what begins the report of a packet by a rule of a policy in a tier.
func (s LogSettings) Begin(tier string, p PolicyID) string {
	full := p.Name
	if p.Namespace != "" {
		full = p.Namespace + "/" + full
	}
	return strings.NewReplacer("%t", tier, "%k", p.Kind, "%n", p.Name, "%p", full).Replace(s.Prefix)
}

// Equal reports whether two settings are the same.
func (h HostSettings) Equal(o HostSettings) bool {
	same := slices.Equal(h.Prefixes, o.Prefixes) && slices.Equal(h.Exclude, o.Exclude) && slices.Equal(h.FailsafeIn, o.FailsafeIn) && slices.Equal(h.FailsafeOut, o.FailsafeOut)
	same = same && slices.Equal(h.NAT.From, o.NAT.From) && slices.Equal(h.NAT.Pool, o.NAT.Pool) &&
		h.NAT.Addr == o.NAT.Addr && h.NAT.Ports == o.NAT.Ports && h.NAT.Link == o.NAT.Link
	return same && h.EndpointToHost == o.EndpointToHost && h.AllowVXLAN == o.AllowVXLAN && h.AllowIPIP == o.AllowIPIP &&
		h.AllowInvalid == o.AllowInvalid && h.KeepDenied == o.KeepDenied && h.OwnTable == o.OwnTable && h.NoIPv6 == o.NoIPv6 && h.NoForwarding == o.NoForwarding && h.ReportAllowed == o.ReportAllowed && h.Log == o.Log && h.Refresh == o.Refresh
}

// Refresh says how often each part of the kernel is read back, besides what its
// events tell; zero means never.
type Refresh struct{ Policy, Routes, Interfaces time.Duration }

// ToHost is the fate of a workload's packet to its own host.
type ToHost uint8

// Fates; the zero value drops, as upstream's.
const (
	ToHostDrop   ToHost = iota
	ToHostReturn        // go on to the host's own policy
	ToHostAccept
)
