package intent

import (
	"cmp"
	"net/netip"
	"strings"
)

// Key names one intent. It is a [SetID], [PolicyID], [EndpointID], [RouteID], [PeerID] or [HostID], all of which are comparable, so that
// a Key can be the key of a map, and a type switch has the ID. The zero value, nil, names none.
type Key interface {
	String() string
	kind() KeyKind
}

// KeyKind is the kind of intent that a Key names.
type KeyKind uint8

// Kinds of keys, in the order in which their intents depend on each other. Zero is that of nil.
const (
	KeyIPSet KeyKind = iota + 1
	KeyPolicy
	KeyEndpoint
	KeyRoute
	KeyPeer
	KeyHost
)

// KindOf returns the kind of a key.
func KindOf(k Key) KeyKind {
	if k == nil {
		return 0
	}
	return k.kind()
}

// CompareKeys compares keys by their kinds, and keys of one kind by their texts, as [cmp.Compare] does. Nil comes first.
func CompareKeys(a, b Key) int {
	if c := cmp.Compare(KindOf(a), KindOf(b)); c != 0 || a == nil {
		return c
	}
	return strings.Compare(a.String(), b.String())
}

// RouteID names a route: there is one for a destination.
type RouteID struct{ netip.Prefix }

// ID returns the route's destination, which names it.
func (r Route) ID() RouteID { return RouteID{r.Dst} }

// PeerID names a TunnelPeer: a node has one for each kind.
type PeerID struct {
	Node string
	Kind TunnelKind
}

// ID returns what names the peer.
func (p TunnelPeer) ID() PeerID { return PeerID{p.Node, p.Kind} }

// HostID names the HostSettings, of which a node has one: empty. Drivers use other texts for objects of their own.
type HostID string

func (SetID) kind() KeyKind      { return KeyIPSet }
func (PolicyID) kind() KeyKind   { return KeyPolicy }
func (EndpointID) kind() KeyKind { return KeyEndpoint }
func (RouteID) kind() KeyKind    { return KeyRoute }
func (PeerID) kind() KeyKind     { return KeyPeer }
func (HostID) kind() KeyKind     { return KeyHost }

// String is the ID itself.
func (s SetID) String() string { return string(s) }

// String is the node and the kind.
func (p PeerID) String() string { return p.Node + " " + p.Kind.String() }

// String is the ID itself.
func (h HostID) String() string { return string(h) }
