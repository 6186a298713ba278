// Package plan decides with whom a node speaks BGP, and what it tells and believes.
//
// In: [api.Update] of Nodes, BGPConfigurations, BGPPeers, BGPFilters and IPPools, in any order. Out: a [Plan] for one
// node, which depends on the resources that a [World] holds and on nothing else. It is a value: it can be compared,
// and written down as JSON.
package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
)

// Plan is all that a node's speaker must do.
type Plan struct {
	Node     string
	Off      string           `json:",omitempty"` // why this node does not speak BGP; all else is empty then
	AS       uint32           `json:",omitempty"`
	RouterID netip.Addr       `json:",omitzero"`
	Listen   []netip.AddrPort `json:",omitempty"`
	Cluster  netip.Addr       `json:",omitzero"` // this node reflects, under this id
	// Dedicated: this host reflects and does nothing else. It tells nothing of its own, and its kernel gets no route.
	Dedicated bool      `json:",omitempty"`
	Sessions  []Session `json:",omitempty"` // one for each peer's address, sorted by it
	// Originate are prefixes of services: told to peers as they are, whatever the kernel has.
	Originate []netip.Prefix `json:",omitempty"`
	// Foreign are prefixes whose routes others put into the kernel: those of services.
	Foreign []netip.Prefix `json:",omitempty"`
	// Encapsulated are pools whose packets are to be encapsulated, which Twill does not do yet: they go without where the
	// next hop is on a link of this host, and nowhere else, since a router between would send them to whoever has the
	// pool's addresses there, or back.
	Encapsulated []netip.Prefix `json:",omitempty"`
	Marks        []Mark         `json:",omitempty"`
	Ignored      []string       `json:",omitempty"` // interfaces whose routes are not told; * at the end stands for anything
	Problems     []string       `json:",omitempty"` // what in the resources could not be honoured
	// Unread are resources that could not be read, and of which nothing is known: routes may be missing for that.
	Unread []string `json:",omitempty"`
}

// Mark puts communities on what this node tells within a prefix, be it its own or what peers told.
type Mark struct {
	Prefix      netip.Prefix
	Communities []string
}

// NextHop says which next hop a session tells.
type NextHop string

// Next hops. Auto: this node towards other systems and for its own routes, else as it was told.
const (
	NextHopAuto NextHop = ""
	NextHopSelf NextHop = "self"
	NextHopKeep NextHop = "keep"
)

// Session is one wanted session.
type Session struct {
	Peer     netip.Addr
	Port     uint16
	Why      string     // mesh, or BGPPeer and its name
	Global   bool       `json:",omitempty"` // that BGPPeer is for all nodes
	PeerNode string     `json:",omitempty"` // the peer is this node of the cluster
	AS       uint32     // the peer's
	LocalAS  uint32     // ours towards it
	Source   netip.Addr `json:",omitzero"`  // zero: the kernel chooses
	Via      netip.Addr `json:",omitzero"`  // the gateway to the peer, if it has a route of its own; else the kernel knows
	Passive  bool       `json:",omitempty"` // the peer calls
	Password *Secret    `json:",omitempty"`
	// Closed: the session must not be opened, and why: what was to be said of it, its password perhaps, cannot be read.
	Closed  string  `json:",omitempty"`
	NextHop NextHop `json:",omitempty"`
	Hops    uint8   `json:",omitempty"` // TTL security: how far the peer may be; 0: anywhere

	Keepalive, Hold, Restart time.Duration
	BFD                      BFD `json:",omitzero"` // the zero value: none

	Client       bool       `json:",omitempty"` // we reflect to it
	Cluster      netip.Addr `json:",omitzero"`
	AllowLocalAS uint8      `json:",omitempty"`

	Import, Export []Rule `json:",omitempty"` // the first that matches decides; none: import accepts, export rejects
}

// Internal reports whether both ends are of one autonomous system.
func (s Session) Internal() bool { return s.AS == s.LocalAS }

// BFD says how soon a session must know that its peer cannot be reached, if that is one hop away.
type BFD struct {
	api.BFD
	Asked bool `json:",omitempty"` // by a resource, and not only by default
}

// Ways are the routes to peers that go through a gateway, of reachableBy.
func Ways(sessions []Session) map[netip.Prefix]netip.Addr {
	out := map[netip.Prefix]netip.Addr{}
	for _, s := range sessions {
		if s.Via.IsValid() {
			out[netip.PrefixFrom(s.Peer, s.Peer.BitLen())] = s.Via
		}
	}
	return out
}

// Secret names a password.
type Secret struct {
	Name, Key string
}

// Times that hold where nothing else is said: those of most implementations, and the restart time that upstream has.
const (
	DefaultAS        = 64512
	DefaultPort      = 179
	DefaultKeepalive = 30 * time.Second
	DefaultRestart   = 120 * time.Second
	holdKeepalives   = 3
)

// Restart is how long peers may take to come back before what they told is forgotten.
func (p Plan) Restart() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.Sessions {
		longest = max(longest, s.Restart)
	}
	return longest
}

// FromMesh is why a session is that no BGPPeer made.
const FromMesh = "mesh"

// Session finds the session with a peer.
func (p Plan) Session(peer netip.Addr) (Session, bool) {
	i := slices.IndexFunc(p.Sessions, func(s Session) bool { return s.Peer == peer })
	if i < 0 {
		return Session{}, false
	}
	return p.Sessions[i], true
}

// Reflector is the plan of a host that does nothing but reflect: for one that has no workloads, and forwards for nobody.
func (p Plan) Reflector() Plan {
	if p.Off == "" && !p.Cluster.IsValid() {
		p = Plan{Node: p.Node, Problems: p.Problems, Off: fmt.Sprintf(
			"Node %s has no spec.bgp.routeReflectorClusterID: it is to reflect and do nothing else, and without one it does not reflect (--cluster-id sets it)", p.Node)}
	}
	p.Dedicated, p.Originate = true, nil
	return p
}

// IsForeign reports whether routes to a prefix are not for this speaker to bring into the kernel.
func (p Plan) IsForeign(dst netip.Prefix) bool {
	return p.Dedicated || slices.ContainsFunc(p.Foreign, func(f netip.Prefix) bool { return Covers(f, dst) })
}

// IsEncapsulated reports whether packets to a prefix are to be encapsulated.
func (p Plan) IsEncapsulated(dst netip.Prefix) bool {
	return slices.ContainsFunc(p.Encapsulated, func(e netip.Prefix) bool { return Covers(e, dst) })
}

// CommunitiesOf are the communities that a route to dst gets when this node tells it.
func (p Plan) CommunitiesOf(dst netip.Prefix) []string {
	var out []string
	for _, m := range p.Marks {
		if Covers(m.Prefix, dst) {
			out = append(out, m.Communities...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Ignores reports whether routes through an interface are not told.
func (p Plan) Ignores(link string) bool {
	return slices.ContainsFunc(p.Ignored, func(pattern string) bool {
		if stem, wild := cutStar(pattern); wild {
			return len(link) >= len(stem) && link[:len(stem)] == stem
		}
		return pattern == link
	})
}

func cutStar(s string) (string, bool) {
	if n := len(s) - 1; n >= 0 && s[n] == '*' {
		return s[:n], true
	}
	return s, false
}

// Covers reports whether all of b is in a.
func Covers(a, b netip.Prefix) bool {
	return a.Bits() <= b.Bits() && a.Contains(b.Addr())
}
