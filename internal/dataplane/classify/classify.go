// Package classify turns policy into look-ups whose number does not depend on how many policies there are.
//
// In: policies, the walks of groups of endpoints through them ([Walk]), and members of sets.
// Out: a [Delta]: what changed in tables that any backend with maps can hold.
//
// A packet is judged in three look-ups. The address of its peer (the source of what an endpoint receives, the destination of
// what it sends) has a [Class]: all addresses that are in the same sets, as far as a local policy asks for a set, are one. Group
// and class give a [Program]. Program, protocol and destination port give a [Code], which stands for what decides: one rule,
// the end of a tier, or, where it depends on more than these look-ups know (source ports, the endpoint's own address, the type of
// an ICMP message, a rule that logs), a short list of rules that are left to ask ([Outcome]).
//
// A set is looked at only while a policy of a local group asks for it. The work of a change is by what it changes: an
// address that enters a set costs its own sets; a policy costs the classes that are in a set of its rules.
//
// Ids are dense and small. One that is no longer used is not given again before the change after the one that freed it is
// in force ([State.Committed]): a packet that is between two look-ups then finds what it was about to find.
//
// The package is pure. A State has one owner.
package classify

import (
	"net/netip"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Class is a set of addresses of one family that no rule of a local group tells apart.
type Class uint32

// Classes of the addresses that are in no set that is asked for.
const (
	World4 Class = 1
	World6 Class = 2
)

// world is the class of all other addresses of a family; f is 0 for IPv4.
func world(f int) Class { return World4 + Class(f) }

// Program decides by protocol and port.
type Program uint32

// Code names an Outcome.
type Code uint32

// Group names endpoints that are asked the same in one direction. Its owner gives the numbers.
type Group uint32

// Walk is what a group is asked, in order.
type Walk struct {
	Direction intent.Direction
	Tiers     []Tier
	Profiles  []intent.PolicyID
	// Mute: what would be rejected is dropped, since the stage cannot tell the sender.
	Mute bool
	// Open: a packet that nobody decided about goes on; else it is denied.
	Open bool
}

// WalkOf is what a workload is asked.
func WalkOf(e intent.Endpoint, direction intent.Direction) Walk {
	asked := e.Policies()
	w := Walk{Direction: direction, Profiles: asked.Profiles}
	for _, t := range asked.Normal {
		ids := t.Ingress
		if direction == intent.Egress {
			ids = t.Egress
		}
		w.Tiers = append(w.Tiers, Tier{Name: t.Name, Pass: t.Default == intent.Pass, Policies: ids})
	}
	return w
}

// Tier is a tier's policies in one direction.
type Tier struct {
	Name     string
	Pass     bool // at its end; else it denies
	Policies []intent.PolicyID
}

// PortKey is a destination port of a protocol that has ports.
type PortKey struct {
	Proto uint8
	Port  uint16
}

// Body is a program: the most specific entry decides, port before protocol before Else.
type Body struct {
	Port  map[PortKey]Code
	Proto map[uint8]Code
	Else  Code
}

// Branch is one rule that is left to ask. Log goes on to the next; all other actions end the packet's way through the walk.
type Branch struct {
	Terms  []rules.Term // all must match; none: it always does
	Action rules.Action // Deny, Allow, Log, Reset or Reject
	By     intent.Decision
}

// Outcome is what a code stands for: branches in order, of which the last has no terms and is not Log.
type Outcome []Branch

// Simple reports whether nothing is left to ask.
func (o Outcome) Simple() bool { return len(o) == 1 }

// Delta is what changed since the last. It is applied in the order of its fields: Grow adds what nothing reaches yet, Flip
// makes packets use it (both may be one transaction), Shrink removes, in a later transaction, what nothing reaches any more.
type Delta struct {
	Grow   Growth
	Flip   Turn
	Shrink Rest
	// Plain are groups that cannot be judged so within the limits, with the reason; empty: it can be again.
	Plain map[Group]string
}

// Growth is new.
type Growth struct {
	Codes    map[Code]Outcome
	Programs map[Program]Body
	Entries  map[Entry]Program // of classes that are new
}

// Entry is a group's for a class. A class without one has the group's program of the world.
type Entry struct {
	Group Group
	Class Class
}

// Turn is what packets see. A zero value removes: an address or prefix then has the class of what covers it.
type Turn struct {
	Addrs   map[netip.Prefix]Class // hosts and prefixes; the longest that covers an address decides
	Entries map[Entry]Program
	World   map[Group][2]Program // by family
}

// Rest is no longer used.
type Rest struct {
	Entries  []Entry
	Groups   []Group
	Classes  []Class
	Programs []Program
	Codes    []Code
}

// Empty reports whether nothing changed.
func (d *Delta) Empty() bool {
	return len(d.Grow.Codes)+len(d.Grow.Programs)+len(d.Grow.Entries)+len(d.Flip.Addrs)+len(d.Flip.Entries)+len(d.Flip.World)+
		len(d.Shrink.Entries)+len(d.Shrink.Groups)+len(d.Shrink.Classes)+len(d.Shrink.Programs)+len(d.Shrink.Codes)+len(d.Plain) == 0
}

// Limits bound what one group may cost. The zero value has the defaults.
type Limits struct {
	Branches int // of an outcome; default 64
	Cells    int // of a program: ports that have an entry; default 1,024
	Entries  int // of all groups; default 250,000
}

func (l Limits) orDefault() Limits {
	if l.Branches == 0 {
		l.Branches = 64
	}
	if l.Cells == 0 {
		l.Cells = 1024
	}
	if l.Entries == 0 {
		l.Entries = 250_000
	}
	return l
}

// Members tells what is in a set, all changes included that were told to the State. A set that is to be removed still has its
// members until Flush returns.
type Members interface {
	Each(set intent.SetID, f func(intent.Member))
}
