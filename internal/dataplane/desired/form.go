package desired

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Changes are what is other than when Changes was called before. A reconciler that has one transaction makes all of it in one;
// one that has not makes sets before the chains that look into them, chains before what leads to them, links last, and
// takes away in the reverse order.
type Changes struct {
	Sets   []Set    // by id
	Chains []Chain  // that are new or have other rules, by name
	Gone   []string // chains that are not wanted any more, by name
	Links  []Link   // by name
}

// Set says what of a set that was merged should be in the kernel. Its members are in the batches.
type Set struct {
	ID     intent.SetID
	Kind   intent.SetKind
	Name   string // a function of ID; of all sets of a kind with Named, each has another
	Named  bool   // the set has its name; without it, another set has
	Wanted bool   // some policy in force looks into it
}

// Chain is a list of rules as it should be. It has Rules, of a policy or an endpoint, or Guards, of a stage.
type Chain struct {
	Name       string
	Comment    string
	Owner      intent.Key // the intent that it is for; nil: it is so on any node
	Hook       *Hook      // where packets come to it; nil: only other chains lead to it
	Rules      []rules.Rule
	Guards     []Guard
	Generation uint16 // of the rules of a policy, see [rules.Chain]
	// Pinned: what an earlier agent left of it stays until the source is in sync, since it follows from settings.
	Pinned bool
}

// Early reports whether a chain is made before the source is in sync: only what is so on any node, and is missing. The rest stays
// as an earlier agent left it.
func (c Chain) Early(exists bool) bool {
	return c.Owner == nil && !(c.Pinned && exists)
}

// HostEndpoints owns the chains that several host endpoints share.
var HostEndpoints intent.Key = intent.HostID("host endpoints")

// Point is a place on a packet's way.
type Point uint8

// Points.
const (
	Prerouting Point = iota
	Input
	Forward
	Output
	Postrouting
)

// Hook is where a stage is asked. That a packet passes one stage ends this one only: later ones still see it.
type Hook struct {
	At       Point
	Priority int  // netfilter's: the lower is asked first; below -200 is before conntrack, below -100 before DNAT
	NAT      bool // it translates, and decides nothing
	Closed   bool // what meets no rule is dropped, so that a stage whose rules somebody flushes is closed
}

// Guard is a rule of a stage. It acts on packets that all its terms and conditions match; without any, on all.
type Guard struct {
	Terms   []rules.Term
	If      []Cond
	Do      Step
	Target  string // of Call and Goto: the name of a chain
	Map     Map    // of Dispatch
	Source  Source // of Translate
	Comment string
	By      intent.Decision // of Drop
}

// Step is what a guard does.
type Step uint8

// Steps. The zero value denies.
const (
	Drop      Step = iota // drop the packet, count it, and report it under By
	Pass                  // the packet has passed this stage; count it
	Skip                  // the packet has passed this stage, without being asked anything
	Call                  // call the chain Target, and go on after it
	Goto                  // go to the chain Target; its end is the end of this one
	Return                // leave this chain
	Dispatch              // go to the chain that Map has for the packet's interface; go on if it has none
	Translate             // give the packet another source
)

// Map leads from interfaces to chains.
type Map uint8

// Maps; [Link] has what they lead to.
const (
	Receives Map = iota // by the interface that a packet leaves by: to the chain through which a workload receives
	Sends               // by the interface that it came by: to the chain through which one sends
	Sources             // by the interface that it came by: to the addresses that one may send from besides its own
)

// Side is the interface by which a map is asked: Src the one that a packet came by.
func (m Map) Side() rules.Side {
	if m == Receives {
		return rules.Dst
	}
	return rules.Src
}

// Source is what Translate puts in the place of a source address.
type Source struct {
	Addr  netip.Addr       // of the guard's family; the zero value: that of the interface which the packet leaves by
	Ports intent.PortRange // of a guard for one protocol that has ports; the zero value: any
}

// CondKind says what a condition looks at.
type CondKind uint8

// Kinds of conditions.
const (
	OnLink       CondKind = iota + 1 // the interface of Side is Link
	OfWorkload                       // the interface of Side is a workload's whose policy is in force
	OfClosed                         // the interface of Side is a workload's that must carry nothing
	Established                      // conntrack knows the packet's flow, or one that announced it
	Invalid                          // conntrack calls the packet so
	Revoked                          // policy no longer allows the packet's flow
	AllowedEarly                     // an early stage of host endpoints allowed the packet
	Untracked                        // the untracked stage allowed it
	Routed                           // the source is routed to the interface that the packet came by
	Forwarded                        // the packet came in by an interface, and its source is not of this host
	ICMPTypes                        // the type is in one of Types
)

// Cond is one condition: with Not it matches what it otherwise would not.
type Cond struct {
	Kind  CondKind
	Not   bool
	Side  rules.Side // of an interface: Src the one that the packet came by, Dst the one that it leaves by
	Link  string     // a name; with * at its end any name that begins so
	Types [][2]uint8
}

// Link is what an interface leads to. An interface that no endpoint has is neither open nor closed.
type Link struct {
	Name     string
	Endpoint intent.EndpointID // whose policy is in force there, if Open
	Open     bool
	Closed   bool // it is a workload's, and must carry nothing
	// Chains, of an open one. Source may be empty: the endpoint sends from no address but its own.
	In, Out, Source string
}

// Chain is what a map has for the interface; empty: nothing.
func (l Link) Chain(m Map) string { return [...]string{l.In, l.Out, l.Source}[m] }
