// Package classify turns policy into look-ups whose number does not depend on how many policies there are.
//
// In: policies, the walks of groups of endpoints through them ([Walk]), and members of sets.
// Out: a [Delta]: what changed in tables that any backend with maps can hold.
//
// A packet is evaluated in three look-ups. The address of its peer (the source of what an endpoint receives, the destination of
// what it sends) has a [Class]: all addresses that are in the same sets, of those that a local policy asks for, have one class. Group
// and class give a [Program]. Program, protocol and destination port give a [Code], which stands for the decision: one rule,
// the end of a tier, or, where it depends on more than these look-ups know (source ports, the endpoint's own address, the type of
// an ICMP message, a rule that logs), a short list of rules that remain to be evaluated ([Outcome]).
//
// A set is tracked only while a policy of a local group asks for it. The work of a change is proportional to what it changes: an
// address that enters a set costs its own sets; a policy costs the classes that are in a set of its rules.
//
// The number of a class, program or code follows from what it stands for: an agent that starts anew gives the same, but where two
// contents meet in one number. One that is no longer used stands for nothing else before the change after the one that freed it is
// in force ([State.Committed]): a packet that is between two look-ups then finds what it was about to find.
//
// Work is bounded, too, and counted, not timed ([Limits]): a group that exceeds its share is left to the rendering without classes, and does not
// touch the share of others.
//
// The package is pure. A State has one owner.
package classify

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Class is a set of addresses of one family that no rule of a local group distinguishes.
type Class uint32

// Classes of the addresses that are in no set that a rule asks for.
const (
	World4 Class = 1
	World6 Class = 2
)

// Bounds of numbers. No two kinds have a number in common, so that a backend may keep them in one register, one after another; and
// the number of a class says of which family its addresses are.
const (
	FirstClass4  Class   = 16
	LastClass4   Class   = 0x1fff_ffff
	FirstClass6  Class   = 0x2000_0000
	LastClass6   Class   = 0x3fff_ffff
	FirstProgram Program = 0x4000_0000
	LastProgram  Program = 0x6fff_ffff
	FirstCode    Code    = 0x7000_0000
	LastCode     Code    = 0x7fff_ffff
)

// world is the class of all other addresses of a family; f is 0 for IPv4.
func world(f int) Class { return World4 + Class(f) }

// Program maps protocol and port to a code.
type Program uint32

// Code is the id of an Outcome.
type Code uint32

// Group is the id of endpoints with the same policies in one direction. The caller assigns the numbers.
type Group uint32

// Walk is the policies of a group, in order.
type Walk struct {
	Direction intent.Direction
	Tiers     []Tier
	Profiles  []intent.PolicyID
	// Mute: what would be rejected is dropped, since the stage cannot answer the sender.
	Mute bool
	// Open: a packet that no rule decides about goes on; else it is denied.
	Open bool
	// Early is what Allow becomes at a stage whose leave later ones must know of: AllowUntracked or AllowEarly; zero: Allow.
	Early rules.Action
	// Endpoint is the one endpoint of the group, of which a denial at the end of a tier or of the walk is said to be; empty: there may be several.
	Endpoint intent.EndpointID
}

// WalkOf returns the walk of a workload endpoint in one direction.
func WalkOf(e intent.Endpoint, direction intent.Direction) Walk {
	return walkOf(e.Policies().Normal, e.Policies().Profiles, direction)
}

func walkOf(tiers []intent.Tier, profiles []intent.PolicyID, direction intent.Direction) Walk {
	w := Walk{Direction: direction, Profiles: profiles}
	for _, t := range tiers {
		ids := t.Ingress
		if direction == intent.Egress {
			ids = t.Egress
		}
		w.Tiers = append(w.Tiers, Tier{Name: t.Name, Pass: t.Default == intent.Pass, Policies: ids})
	}
	return w
}

// HostWalkOf returns the walk of a host endpoint at a stage in one direction, as [rules.HostEndpoint] has it in chains.
func HostWalkOf(e intent.Endpoint, stage rules.Stage, direction intent.Direction) Walk {
	w := walkOf(stage.Tiers(e), nil, direction)
	w.Endpoint, w.Open = e.ID, stage != rules.HostNormal
	switch stage {
	case rules.HostNormal:
		w.Profiles, w.Mute = e.Policies().Profiles, direction == intent.Egress
	case rules.PreDNAT:
		w.Early = rules.AllowEarly
	case rules.Untracked:
		w.Early, w.Mute = rules.AllowUntracked, true
	}
	if w.Early != 0 { // no end of a tier decides there
		for i := range w.Tiers {
			w.Tiers[i].Pass = true
		}
	}
	return w
}

// Asked returns the policies and profiles of a walk, in order.
func (w Walk) Asked() (out []intent.PolicyID) {
	for _, t := range w.Tiers {
		out = append(out, t.Policies...)
	}
	return append(out, w.Profiles...)
}

// Tier is a tier's policies in one direction.
type Tier struct {
	Name     string
	Pass     bool // the default action; else it denies
	Policies []intent.PolicyID
}

// PortKey is a destination port of a protocol that has ports.
type PortKey struct {
	Proto uint8
	Port  uint16
}

// Body is the content of a program: the most specific entry decides, port before protocol before Else.
type Body struct {
	Port  map[PortKey]Code
	Proto map[uint8]Code
	Else  Code
}

// Branch is one rule that remains to be evaluated. Log goes on to the next; all other actions end the walk.
type Branch struct {
	Terms  []rules.Term // all must match; none: every packet matches
	Action rules.Action // Deny, Allow, AllowUntracked, AllowEarly, Log, Reset, Reject; Accept: the packet goes on, and nothing decided
	By     intent.Decision
}

// Outcome is the content of a code: branches in order, of which the last has no terms and is not Log.
type Outcome []Branch

// Simple reports whether the decision needs no further look at the packet.
func (o Outcome) Simple() bool { return len(o) == 1 }

// Delta is what changed since the last one. It is applied in the order of its fields: Grow adds what nothing refers to yet, Flip
// makes packets use it (both may be one transaction), Shrink removes, in a later transaction, what nothing refers to any more.
type Delta struct {
	Grow   Growth
	Flip   Turn
	Shrink Rest
	// Plain are groups that exceed the limits and must be rendered without classes, with the reason; empty: no longer so.
	Plain map[Group]string
	// Next is applied after this one; nil: none. A group that exceeds the limits is left out in one, and what only that group asked for
	// goes in the next.
	Next *Delta
}

// Growth is what is new.
type Growth struct {
	Classes  map[Class]About
	Codes    map[Code]Outcome
	Programs map[Program]Body
	Entries  map[Entry]Program // of new classes
}

// About says for people which addresses a class has.
type About struct {
	Some []Selection // that these are in: at most eight
	More int         // how many others they are in
}

// Selection is a set, its members with one port, or prefixes.
type Selection struct {
	Set   intent.SetID
	Proto uint8 // with Port: of a set of ports
	Port  uint16
	Nets  string // of a rule, if there is no set
}

// Entry is a group's entry for a class. A class without one has the group's program of the world.
type Entry struct {
	Group Group
	Class Class
}

// Turn is what packets look up first. A zero value removes: an address or prefix then has the class of the prefix that covers it.
type Turn struct {
	Addrs   map[netip.Prefix]Class // hosts and prefixes; the longest that covers an address decides
	Entries map[Entry]Program
	World   map[Group][2]Program // by family
}

// Rest is what is no longer used.
type Rest struct {
	Entries  []Entry
	Groups   []Group
	Classes  []Class
	Programs []Program
	Codes    []Code
}

// Empty reports whether nothing changed.
func (d *Delta) Empty() bool {
	return d.Next == nil && len(d.Grow.Classes)+len(d.Grow.Codes)+len(d.Grow.Programs)+len(d.Grow.Entries)+len(d.Flip.Addrs)+len(d.Flip.Entries)+len(d.Flip.World)+
		len(d.Shrink.Entries)+len(d.Shrink.Groups)+len(d.Shrink.Classes)+len(d.Shrink.Programs)+len(d.Shrink.Codes)+len(d.Plain) == 0
}

// Members has the present members of sets, including all changes that the State received. A set that is to be removed still has its
// members until Flush returns.
type Members interface {
	Each(set intent.SetID, f func(intent.Member))
}
