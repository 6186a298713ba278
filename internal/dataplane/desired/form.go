package desired

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Changes are the differences from the desired state of the call before. A reconciler with transactions applies all of it in one;
// without transactions it makes sets before the chains that look into them, chains before what leads to them, links last, and
// deletes in the reverse order.
type Changes struct {
	Sets   []Set    // by id
	Chains []Chain  // that are new or have other rules, by name
	Gone   []string // chains that are not wanted any more, by name
	Links  []Link   // by name

	// Restarted: the tables are others than those of the call before, of which nothing is meant any more.
	Restarted bool
	// With Config.Members: what changes in the tables, the targets of codes that are new, and codes that are gone.
	Tables    *classify.Delta
	Codes     []Code
	GoneCodes []classify.Code
}

// Set is what should be in the kernel for a set that was merged. Its members are in the batches.
type Set struct {
	ID     intent.SetID
	Kind   intent.SetKind
	Name   string // a function of ID; unique among the sets of a kind with Named
	Named  bool   // the set has its name; without it, another set has
	Wanted bool   // some policy in force looks into it
}

// Chain is a desired list of rules. It has Rules, of a policy or an endpoint, or Guards, of a stage.
type Chain struct {
	Name       string
	Comment    string
	Owner      intent.Key // the intent that it is for; nil: the chain is part of the skeleton
	Hook       *Hook      // where netfilter calls it; nil: only other chains lead to it
	Rules      []rules.Rule
	Guards     []Guard
	Generation uint16 // of the rules of a policy, see [rules.Chain]
	// Pinned: it follows from settings, so one that an earlier agent left stays as it is until the source is in sync.
	Pinned bool
	// Recheck: it decides about established flows alone, and all that it leads to is there without it, so that it may come and go by itself.
	Recheck bool
	// Late: it may be deleted only after a grace period, since a packet that looked up a map before the change may still be about to
	// enter it, or is in it and about to look up another map.
	Late bool
}

// Early reports whether a chain is made before the source is in sync: only the missing ones of the skeleton. The rest stays
// as an earlier agent left it.
func (c Chain) Early(exists bool) bool {
	return c.Owner == nil && !(c.Pinned && exists)
}

// HostEndpoints owns the stages of host endpoints, which several share.
var HostEndpoints intent.Key = intent.HostID("host endpoints")

// Point is a hook of netfilter.
type Point uint8

// Points.
const (
	Prerouting Point = iota
	Input
	Forward
	Output
	Postrouting
)

// Hook is where a stage is called. To pass a packet ends this stage only: later ones still see it.
type Hook struct {
	At       Point
	Priority int  // netfilter's: lower is earlier; below -200 is before conntrack, below -100 before DNAT
	NAT      bool // a NAT chain; it decides nothing
	Accept   bool // what passes it is accepted, and rules of others do not see it; see [Config.Shared]
	Closed   bool // the default action is drop, so that a stage whose rules somebody flushes is closed
}

// Guard is a rule of a stage. It acts on packets that all its terms and conditions match; without any, on all.
type Guard struct {
	Terms  []rules.Term
	If     []Cond
	Do     Step
	Target string     // of Call and Goto: the name of a chain
	Map    Map        // of Dispatch
	Source Source     // of Translate
	To     netip.Addr // of Deliver and Hand: the new destination, of the guard's family
	Port   uint16     // of Hand: the new port
	DSCP   uint8      // of Mark
	// Of LimitPackets: packets a second, and how many may exceed that at once. Of LimitConnections: how many there may be at one time.
	Most, Burst uint32
	// Of Classify: the group of endpoints, and the end of the packet that is not the endpoint.
	Group classify.Group
	Peer  rules.Side
	// Sent, of Classify: a process of the host sent the packet. It keeps the priority that this gave it, and is led to nothing that rejects.
	Sent    bool
	Comment string
	By      intent.Decision // of Drop, and of what limits
}

// Step is the action of a guard.
type Step uint8

// Steps. The zero value denies.
const (
	Drop             Step = iota // drop the packet, count it, and report it under By
	Pass                         // the packet has passed this stage; count it
	Skip                         // the packet has passed this stage, without being asked anything
	Call                         // call the chain Target, and go on after it
	Goto                         // go to the chain Target; its end is the end of this one
	Return                       // leave this chain
	Dispatch                     // go to the chain that Map has for the packet's interface; go on if it has none
	Translate                    // source NAT
	Deliver                      // destination NAT; the connection is marked as one to a floating address
	Hand                         // destination NAT to another port, too; for one protocol that has ports
	Mark                         // give the packet the code point DSCP, and go on; for one family
	Untrack                      // conntrack makes no entry for the packet, which has passed this stage; only before conntrack
	LimitPackets                 // drop packets beyond a rate, as Drop does; the others go on
	LimitConnections             // reject packets of connections beyond a number, which the kernel counts in the rule; the others go on. Match their first packets
	Unmark                       // no early stage of host endpoints has allowed the packet, whatever its mark says; go on
	Refuse                       // as Drop, and the sender gets an ICMP error, port unreachable; in a stage that forwards
	Classify                     // look the packet up in the tables for Group: it has passed this stage, or is dropped
)

// Map maps interfaces to chains.
type Map uint8

// Maps; [Link] has the chains.
const (
	Receives       Map = iota // by outgoing interface: to the chain through which a workload receives
	Sends                     // by incoming interface: to the chain through which a workload sends
	ReceivesWithin            // by outgoing interface: to the limits of a workload that receives
	SendsWithin               // by incoming interface: to the limits of a workload that sends
	Sources                   // by incoming interface: to the source addresses that a workload may use other than its own
)

// Side says by which interface a map is looked up: Src is the incoming one.
func (m Map) Side() rules.Side {
	if m == Receives || m == ReceivesWithin {
		return rules.Dst
	}
	return rules.Src
}

// Source is the new source of Translate.
type Source struct {
	Addr  netip.Addr       // of the guard's family; the zero value: that of the interface which the packet leaves by
	Ports intent.PortRange // of a guard for one protocol that has ports; the zero value: any
	// Random has the port chosen at random, in place of the packet's own if that is free. Two new connections at once, on two processors, can both
	// find the same port free, and the first packet of one of them is lost.
	Random bool
}

// CondKind is the kind of a condition.
type CondKind uint8

// Kinds of conditions.
const (
	OnLink       CondKind = iota + 1 // the interface of Side is Link
	OfWorkload                       // the interface of Side is a workload's whose policy is in force
	OfClosed                         // the interface of Side is a workload's that must carry nothing
	Established                      // conntrack's state is ESTABLISHED or RELATED
	Invalid                          // conntrack's state is INVALID
	Revoked                          // policy no longer allows the packet's flow
	AllowedEarly                     // an early stage of host endpoints allowed the packet
	Untracked                        // the untracked stage allowed it
	Routed                           // the source is routed to the interface that the packet came by
	Rechecked                        // the packet's flow is established, was not announced by another, and it is in the direction in which the flow began; and the interface of Side is rechecked
	Forwarded                        // the packet came in by an interface, and its source is not of this host
	Beginning                        // conntrack's state is NEW
	ICMPTypes                        // the type is in one of Types
	OtherSource                      // the source is an address of this host, and not of the interface that the packet leaves by
	Translated                       // the destination was translated; only where tables are shared, see [Config.Shared]
)

// Cond is one condition; Not negates it.
type Cond struct {
	Kind  CondKind
	Not   bool
	Side  rules.Side // of an interface: Src is the incoming, Dst the outgoing one
	Link  string     // a name; * at its end matches any suffix
	Types [][2]uint8
}

// Link is what an interface leads to. An interface without an endpoint is neither open nor closed.
type Link struct {
	Name     string
	Endpoint intent.EndpointID // whose policy is in force there, if Open
	Open     bool
	Closed   bool // it is a workload's, and must carry nothing
	// Rechecked: policy decides again about established flows, see [State.Judged].
	Rechecked bool
	// Chains, of an open one. Source may be empty: the endpoint may send only from its own addresses. So may limits be.
	In, Out, LimitIn, LimitOut, Source string
}

// Chain returns the chain of the interface in a map; empty: none.
func (l Link) Chain(m Map) string {
	return [...]string{l.In, l.Out, l.LimitIn, l.LimitOut, l.Source}[m]
}
