// Package intent is the typed answer of calc: what this node should be.
//
// In: nothing; these are values. Out: nothing; calc makes them, verdict evaluates
// packets by them, dataplane drivers make the kernel match them.
// Intents hold no references to api resources and are not changed once sent.
package intent

import (
	"cmp"
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
	InSync    bool // true once every resource that existed at start is merged
}

// Empty reports whether the batch changes nothing. InSync alone does not count.
func (b Batch) Empty() bool {
	return len(b.IPSets)+len(b.Members)+len(b.Policies)+len(b.Endpoints)+len(b.Routes)+len(b.Peers)+len(b.Removed) == 0 && b.Host == nil
}

// Outcome is the result of one intent in the kernel.
type Outcome struct {
	Key    Key
	Err    error  // nil: it is in force
	Final  bool   // of an Err: trying again does not help until intents change
	Reason string // why it carries no traffic although Err is nil, such as "interface is absent"
	Note   string // what else there is to say of one that is in force, for people
	// Chains is why an endpoint's policy is asked rule by rule although the settings want it to be look-ups; empty: it is not so.
	Chains string
}

// Repair is a kernel object that another process had changed or made, and that is now as the intents want it.
type Repair struct {
	What  string // "chain wl-guard", "route 10.65.1.2/32", "ipv4/conf/cali1/rp_filter"
	Cause Cause
}

// Cause is how a change by another process was found.
type Cause string

// Causes.
const (
	ByEvent    Cause = "event"     // the kernel sent an event
	ByReadBack Cause = "read-back" // it has no event for it, or the event was lost
	ByTakeOver Cause = "take-over" // it was never ours, and had the place of ours
)

// SetID names an IP set; equal selections have equal ids.
type SetID string

// SetKind is the kind of a set's members.
type SetKind uint8

// Kinds of sets.
const (
	SetAddrs SetKind = iota // prefixes; a host is /32 or /128
	SetPorts                // address (always a host prefix), protocol, port: named ports
)

// IPSet is a set of addresses of both families.
type IPSet struct {
	ID      SetID
	Kind    SetKind
	Comment string // the selector, for people
	Members []Member
}

// Member is an element of a set. Proto (IANA's number) and Port are zero in a SetAddrs.
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

// Staged reports whether it is a policy that is evaluated and never enforced.
func (p PolicyID) Staged() bool { return strings.HasPrefix(p.Kind, "Staged") }

// Policy is the rules of a policy or profile that some local endpoint uses.
type Policy struct {
	ID      PolicyID
	Tier    string // empty for a profile
	Ingress []Rule // a rule's identity is (policy, direction, index here)
	Egress  []Rule
	// Closed says why this takes the place of something missing or unreadable; its
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

// String is the action as in the API.
func (a Action) String() string { return [...]string{"Deny", "Allow", "Pass", "Log"}[a&3] }

// Direction is from the endpoint's point of view: Ingress is what it receives.
type Direction uint8

// Directions.
const (
	Ingress Direction = iota
	Egress
)

// String is the direction as in the API.
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

// Rejects reports whether the sender of a packet that the rule denies gets an answer.
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
// Protocols are IANA's protocol numbers (IPv4's protocol, IPv6's next header).
type Rule struct {
	Action      Action
	Void        bool // matches nothing; there to keep the indices of other rules
	Reject      bool // of a Deny: the sender gets an answer, where the kernel can send one
	Family      Family
	Protocol    uint8 // 0: any
	NotProtocol uint8 // 0: none
	ICMP        *ICMP
	NotICMP     *ICMP
	Src, Dst    Peer
	Requests    *Requests // what it asks beyond packets; nil: nothing
}

// ICMP matches a type, and a code unless AnyCode: those of ICMP (RFC 792) in IPv4, of ICMPv6 (RFC 4443) in IPv6.
type ICMP struct {
	Type, Code uint8
	AnyCode    bool
}

// Peer is the conditions on one end of a packet.
//
// A list of prefixes that is not empty restricts its rule to the families in the list, also if the list is negated:
// a rule matches no packet of a family if one of its four lists has prefixes, but none of this family
// (decision 016).
type Peer struct {
	Nets    []netip.Prefix // in one of these, if there are any
	NotNets []netip.Prefix // in none of these
	Sets    []SetID        // in all of these
	NotSets []SetID        // in none of these
	// The port must be in Ports or, with its address and protocol, in one of
	// PortSets, if there are any of either; and it must be in none of NotPorts and NotPortSets.
	Ports       []PortRange
	PortSets    []SetID
	NotPorts    []PortRange
	NotPortSets []SetID
}

// PortRange is inclusive at both ends; it is empty if Min is greater than Max.
type PortRange struct{ Min, Max uint16 }

// EndpointKind is workload or host.
type EndpointKind uint8

// Kinds of endpoints.
const (
	Workload EndpointKind = iota
	Host
)

// EndpointID is the name of an endpoint in the datastore; Namespace is empty for a host's.
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
	Label     string         // for people: namespace/pod, or the host endpoint's name
	Link      string         // interface name; "*" for all of a host, workloads' included; empty: a host endpoint's is found by Addrs
	MAC       string         // empty: unknown
	Addrs     []netip.Addr   // a workload's own; a host endpoint's expected ones
	Spoofable []netip.Prefix // sources that a workload may use other than Addrs
	NATs      []NAT          // floating addresses of a workload, none of which another endpoint has
	QoS       QoS            // of a workload; of a host endpoint DSCP alone
	Group     *Group         // its policies; nil: no policy and no profile, see Policies
	Closed    string         // why it must carry no traffic at all; empty: it may
}

// NAT is a floating address: what is sent to External arrives at Internal, one of the endpoint's own addresses, of the same family.
type NAT struct{ External, Internal netip.Addr }

// QoS limits what a workload receives and sends. The zero value limits nothing.
type QoS struct {
	In, Out   Limits
	Bandwidth [2]Bandwidth // by Direction
	DSCP      DSCP         // of what it sends out of the cluster; also of a host endpoint
}

// DSCP is a code point plus one (RFC 2474); zero: packets keep what they have.
type DSCP uint8

// Bandwidth is how much may pass, of whatever, also what a host sends to its own workloads. Beyond it packets wait, and are dropped if many do.
type Bandwidth struct {
	Rate  uint64 // bits a second; zero: any
	Burst uint64 // bits that may pass at once; zero: the driver's default
	// Peak is how fast a burst may pass, in bits a second, more than Rate; zero: at once. PeakBurst is how many bytes may exceed that at once.
	Peak, PeakBurst uint64
}

// Limits are those of one direction. Of what they are for, none holds up what a host sends to its own workloads.
type Limits struct {
	PacketRate  uint32 // packets a second; zero: any
	PacketBurst uint32 // packets that may exceed the rate at once; more than zero, if there is a rate
	Connections uint32 // of TCP, at one time; zero: any
}

// RouteKind is the type of a route.
type RouteKind uint8

// Kinds of routes.
const (
	RouteLink      RouteKind = iota // to a local endpoint, scope link
	RouteBlackhole                  // one of the node's own blocks
	RouteTunnel                     // to addresses of another host, by its end of a tunnel
	RouteDirect                     // to addresses of another host, on a network that this host is on
	RouteEncrypted                  // to addresses of another host, by WireGuard alone: without a peer of that host they are unreachable
)

// Move is whether a virtual machine is about to move to another host, of which both have an endpoint with its addresses.
type Move uint8

// Moves.
const (
	Stays Move = iota // it does not move
	Comes             // it is still on the other host, until it is seen here
	Goes              // it is here, until it is seen on the other host
)

// Route is a route of the agent's, in the main table, or of a RouteEncrypted in one of its own that is asked before.
type Route struct {
	Dst  netip.Prefix
	Kind RouteKind
	Link string // interface of a RouteLink, device of a RouteTunnel
	MAC  string // of the endpoint, for a permanent neighbour; empty: the kernel resolves it
	Move Move   // of a RouteLink: of the machine that it leads to
	Node string // of a route to another host
	// Via is the next hop: of a RouteDirect, the other host's own address; of a RouteTunnel, [TunnelPeer].Hop, and if it is
	// not valid there is no tunnel between the two, so that the destination is unreachable.
	Via    netip.Addr
	Claims []Claim // of a RouteLink: of all endpoints, if several claim the address; the first that can has it, and Link, MAC and Move are the first's
}

// HostSettings are the settings of the whole node. They are part of batches,
// so that a driver brings a change of them into force together with policy, and
// needs no restart.
type HostSettings struct {
	EndpointToHost ToHost // the action for a workload's traffic to its host after its egress policy
	// Prefixes of names of workloads' interfaces, sorted; nil: the driver's default.
	Prefixes []string
	// Exclude are names of interfaces, and regular expressions between slashes: no host endpoint has such an interface by an address.
	Exclude      []string
	NoForwarding bool // the host does not forward
	NoIPv6       bool // IPv6 is not forwarded, and no gateway answers in it; its rules are unchanged
	AllowVXLAN   bool // from workloads
	AllowIPIP    bool // from workloads
	AllowInvalid bool // packets that conntrack calls invalid go on to policy
	FailsafeIn   []Failsafe
	FailsafeOut  []Failsafe
	KeepDenied   bool // established flows that policy denies are not revoked
	OwnTable     bool // nobody but the agent may change its nftables table, if the kernel can enforce that (decision 015)
	// ReportAllowed: rules also report what they allow, and not only what they drop.
	ReportAllowed bool
	// Compiled: policy of workloads is look-ups in tables, as far as these can hold it, instead of chains of rules.
	Compiled bool
	Log      LogSettings
	Refresh  Refresh
	NAT      NATOutgoing
	// Inside are all pools and all nodes' addresses, sorted, if an endpoint of this node has a DSCP; else none.
	Inside []netip.Prefix
	// Metadata is where TCP from workloads to [MetadataService] goes, of IPv4; the zero value: where it is sent to.
	Metadata netip.AddrPort
	DNS      bool // what workloads send to UDP port 53 of the host needs no policy
	Tunnels  Tunnels
	VXLAN    VXLANSettings
	// WireGuard are settings of tunnels that Tunnels has.
	WireGuard   WireGuardSettings
	Checksums   Checksums // of what goes through VXLAN and IPIP
	MTU         MTUSettings
	Routes      RouteSettings
	IPTables    IPTablesSettings
	MarkMask    uint32 // the bits of packets' marks that are ours; zero: the driver's default
	Services    ServicePrefixes
	LocalSubnet LocalSubnet
	// ServiceLoops is the action for what the host forwards to Services.
	ServiceLoops ServiceLoops
}

// LocalSubnet says for which of its workloads' own addresses the host answers ARP and neighbour solicitations on its networks: those in Pools, and not
// in Except. The zero value: for none.
type LocalSubnet struct {
	Pools  []netip.Prefix // of workloads, without a tunnel, sorted
	Except []netip.Prefix // addresses of nodes within them, sorted
	Again  time.Duration  // how often they are announced again; zero: never
}

// Has reports whether the host may answer for an address of a workload.
func (l LocalSubnet) Has(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	return slices.ContainsFunc(l.Pools, in) && !slices.ContainsFunc(l.Except, in)
}

// Equal reports whether two are the same.
func (l LocalSubnet) Equal(o LocalSubnet) bool {
	return slices.Equal(l.Pools, o.Pools) && slices.Equal(l.Except, o.Except) && l.Again == o.Again
}

// ServicePrefixes are those whose addresses of services this node may advertise by BGP, each list sorted. What is sent to such an address comes
// here, and if no service has it, the host's default route leads back to the router that sent it.
type ServicePrefixes struct{ Cluster, External, Balancer []netip.Prefix }

// All returns the prefixes, each once, sorted. The prefix of all addresses is none of services: to drop what is sent there would end all forwarding.
func (s ServicePrefixes) All() []netip.Prefix {
	all := slices.Concat(s.Cluster, s.External, s.Balancer)
	slices.SortFunc(all, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	return slices.DeleteFunc(slices.Compact(all), func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// Equal reports whether two have the same prefixes.
func (s ServicePrefixes) Equal(o ServicePrefixes) bool {
	return slices.Equal(s.Cluster, o.Cluster) && slices.Equal(s.External, o.External) && slices.Equal(s.Balancer, o.Balancer)
}

// ServiceLoops is the action for a forwarded packet whose destination is an address of services: no service of the node has it, else
// destination NAT would have put another in its place.
type ServiceLoops uint8

// Actions; the zero value drops, as upstream's.
const (
	LoopsDrop   ServiceLoops = iota
	LoopsReject              // and the sender gets an ICMP error, port unreachable
	LoopsPass                // it is forwarded
)

// Loops reports whether a packet to an address must not be forwarded, since it would come back.
func (h HostSettings) Loops(dst netip.Addr) bool {
	if h.ServiceLoops == LoopsPass {
		return false
	}
	has := func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(dst) } // as All
	return slices.ContainsFunc(h.Services.Cluster, has) || slices.ContainsFunc(h.Services.External, has) || slices.ContainsFunc(h.Services.Balancer, has)
}

// IPTablesSettings say how policy in the tables of iptables goes together with rules of other programs there. The zero value is the default.
type IPTablesSettings struct {
	Append       bool // what is there already of others is asked before policy, not after it
	FilterReturn bool // what policy allows goes on to the rules of others in table filter; else it is accepted there
	MangleReturn bool // the same in table mangle
	Reject       bool // what policy denies in table filter is answered with an ICMP error; else it is dropped in silence
}

// RouteSettings are those of routes to this host's workloads. The zero value: as no setting says otherwise.
type RouteSettings struct {
	Off          bool          // the agent makes and deletes no routes at all
	KeepExternal bool          // routes of others through workloads' interfaces stay
	Source       [2]netip.Addr // from which the host sends to workloads, of IPv4 and of IPv6; the zero value: the kernel's choice
	Metric       [2]int        // zero: the kernel's default
	// Elevated are metrics of routes to a machine that has come from another host, better than those of others to it, for Settle after
	// the move is over, too; zero: there is none that is better, and Metric stands for it.
	Elevated [2]int
	Settle   time.Duration
	Protocol int // zero: the agent's own
}

// MetadataService is the address at which virtual machines ask about themselves.
var MetadataService = netip.AddrPortFrom(netip.AddrFrom4([4]byte{169, 254, 169, 254}), 80)

// PortVXLAN is the UDP port to which encapsulated packets are sent, whether this host has a tunnel or not.
func (h HostSettings) PortVXLAN() uint16 { return cmp.Or(h.VXLAN.Port, PortVXLAN) }

// NATOutgoing is source NAT to the host's address for packets from some pools to destinations outside of all pools.
type NATOutgoing struct {
	From []netip.Prefix // pools that ask for it, sorted
	Pool []netip.Prefix // all pools, and other prefixes that are inside, sorted; empty if From is
	// How: the zero value gives packets the address of the interface by which they leave, and any free port.
	Addr  netip.Addr // IPv4; instead of the interface's address
	Ports PortRange  // of TCP and UDP; the zero value: any
	Link  string     // the interface by which they leave; * at its end matches any suffix
}

// Failsafe is what no policy of a host endpoint can close: inbound, a port of the
// host, from Net; outbound, that port of others in Net.
type Failsafe struct {
	Protocol uint8 // IANA's number
	Port     uint16
	Net      netip.Prefix // the zero value: any address
}

// LogSettings limit and name what rules with action Log report.
type LogSettings struct {
	Prefix string        // %t, %k, %n, %p: tier, kind, name, namespace/name of the policy
	Rate   uint32        // packets in Per, for each rule; zero: no limit
	Per    time.Duration // whole seconds
	Burst  uint32        // packets that may exceed the rate at once
}

// Begin returns Prefix with the names of a policy of a tier filled in: the start of the log prefix of its rules.
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
	same = same && slices.Equal(h.NAT.From, o.NAT.From) && slices.Equal(h.NAT.Pool, o.NAT.Pool) && slices.Equal(h.Inside, o.Inside) &&
		h.NAT.Addr == o.NAT.Addr && h.NAT.Ports == o.NAT.Ports && h.NAT.Link == o.NAT.Link && h.Services.Equal(o.Services) && h.LocalSubnet.Equal(o.LocalSubnet) && h.ServiceLoops == o.ServiceLoops
	return same && h.EndpointToHost == o.EndpointToHost && h.AllowVXLAN == o.AllowVXLAN && h.AllowIPIP == o.AllowIPIP &&
		h.AllowInvalid == o.AllowInvalid && h.KeepDenied == o.KeepDenied && h.OwnTable == o.OwnTable && h.NoIPv6 == o.NoIPv6 && h.NoForwarding == o.NoForwarding && h.ReportAllowed == o.ReportAllowed && h.Compiled == o.Compiled && h.VXLAN == o.VXLAN && h.WireGuard.Equal(o.WireGuard) && h.Checksums == o.Checksums && h.Metadata == o.Metadata && h.DNS == o.DNS && h.MTU == o.MTU && h.Routes == o.Routes && h.IPTables == o.IPTables && h.MarkMask == o.MarkMask && h.Tunnels == o.Tunnels && h.Log == o.Log && h.Refresh == o.Refresh
}

// Refresh is how often each part of the kernel is read back, in addition to
// its events; zero means never.
type Refresh struct{ Policy, Routes, Interfaces time.Duration }

// ToHost is the action for a workload's packet to its own host.
type ToHost uint8

// Actions; the zero value drops, as upstream's.
const (
	ToHostDrop   ToHost = iota
	ToHostReturn        // go on to the rules of others; where ours are in a table of their own, as ToHostAccept
	ToHostAccept
)
