// Package plan decides with whom a node speaks BGP, and what it advertises and accepts.
//
// In: [api.Update] of Nodes, BGPConfigurations, BGPPeers, BGPFilters and IPPools, and of Kubernetes' services, in any order. Out: a
// [Plan] for one node, which depends on nothing but the content of [Resources]. It is a value: it can be compared, and written down as
// JSON.
package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// Plan is all that a node's speaker must do.
type Plan struct {
	Node     string
	Off      string           `json:",omitempty"` // why this node does not run BGP; all else is empty then
	AS       uint32           `json:",omitempty"`
	RouterID netip.Addr       `json:",omitzero"`
	Listen   []netip.AddrPort `json:",omitempty"`
	Cluster  netip.Addr       `json:",omitzero"` // this node reflects, under this id
	// Dedicated: this host reflects and does nothing else. It originates nothing, and no route is installed.
	Dedicated bool      `json:",omitempty"`
	Sessions  []Session `json:",omitempty"` // one for each peer's address, sorted by it
	// Originate are prefixes and single addresses of services: advertised as they are, whatever the kernel has.
	Originate []netip.Prefix `json:",omitempty"`
	// Foreign are prefixes whose routes others install: those of services, and pools whose routes are the agent's.
	Foreign []netip.Prefix `json:",omitempty"`
	// Normal are the priorities of routes of which nothing else is said, by family, IPv4 first; 0: none is configured, and the speaker's own
	// metrics are used. See [Plan.NormalPriority].
	Normal [2]uint32 `json:",omitzero"`
	// AgentProtocol is that of the agent's routes to workloads, by which they are known; 0: the agent's own.
	AgentProtocol int      `json:",omitempty"`
	Ignored       []string `json:",omitempty"` // patterns of interfaces whose routes are not advertised; * at the end matches anything
	// Inside are patterns of interfaces that lead to workloads or into tunnels by this node's settings, so that their networks are not the host's. See [Plan.Connects],
	// which knows those that need no setting.
	Inside []string `json:",omitempty"`
	// Peering are addresses that this host has for workloads that are its peers, so that these can call it.
	Peering []netip.Addr `json:",omitempty"`
	// LogSeverity is that of the least severe lines to log, as resources have it; empty: they do not say.
	LogSeverity string   `json:",omitempty"`
	Problems    []string `json:",omitempty"` // what in the resources had no effect, and why
	// Unread are resources that could not be read, and of which no earlier version is known: routes may be missing for that.
	Unread []string `json:",omitempty"`
	// Keys are for templates of users: [Resources.Keys]. Empty: nobody asked for them.
	Keys map[string]Key `json:",omitempty"`
}

// NextHop is how a session sets the next hop.
type NextHop string

// Next hops. Auto: this node for external peers and for its own routes, else unchanged (RFC 4271, 5.1.3).
const (
	NextHopAuto NextHop = ""
	NextHopSelf NextHop = "self"
	NextHopKeep NextHop = "keep"
)

// Session is one session that the node is to have.
type Session struct {
	Peer     netip.Addr
	Port     uint16
	Why      string     // mesh, or BGPPeer and its name
	Global   bool       `json:",omitempty"` // that BGPPeer is for all nodes
	PeerNode string     `json:",omitempty"` // the peer is this node of the cluster
	Workload string     `json:",omitempty"` // the peer is this workload on this node, namespace/name; what it advertises has itself as next hop
	AS       uint32     // the peer's
	LocalAS  uint32     // ours towards it
	Source   netip.Addr `json:",omitzero"`  // zero: the kernel chooses
	Via      netip.Addr `json:",omitzero"`  // the gateway to the peer (reachableBy); zero: by the kernel's routes
	Passive  bool       `json:",omitempty"` // the peer connects
	Password *Secret    `json:",omitempty"`
	// Closed: why the session must not be opened: part of its configuration, such as the password, cannot be read.
	Closed  string  `json:",omitempty"`
	NextHop NextHop `json:",omitempty"`
	Hops    uint8   `json:",omitempty"` // TTL security (RFC 5082): how many hops away the peer may be; 0: any number

	Keepalive, Hold, Restart time.Duration
	BFD                      BFD `json:",omitzero"` // the zero value: no BFD

	Client       bool       `json:",omitempty"` // it is a client of this route reflector
	Cluster      netip.Addr `json:",omitzero"`
	AllowLocalAS uint8      `json:",omitempty"`

	Import, Export []Rule `json:",omitempty"` // the first that matches and does not continue decides; none: import accepts, export rejects
}

// Internal reports whether the session is internal (IBGP).
func (s Session) Internal() bool { return s.AS == s.LocalAS }

// BFD is the timing of BFD for a session, whose peer must be one hop away.
type BFD struct {
	api.BFD
	Asked bool `json:",omitempty"` // by a resource, not only by default
}

// PeerRoutes returns the routes to peers behind a gateway (reachableBy), by gateway.
func PeerRoutes(sessions []Session) map[netip.Prefix]netip.Addr {
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

// Defaults: the timers of most implementations, and upstream's restart time.
const (
	DefaultAS        = 64512
	DefaultPort      = 179
	DefaultKeepalive = 30 * time.Second
	DefaultRestart   = 120 * time.Second
	holdKeepalives   = 3
)

// Restart is how long stale routes are kept for peers that restart: the longest restart time of all sessions.
func (p Plan) Restart() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.Sessions {
		longest = max(longest, s.Restart)
	}
	return longest
}

// FromMesh is the Why of a session of the node-to-node mesh.
const FromMesh = "mesh"

// Session finds the session with a peer.
func (p Plan) Session(peer netip.Addr) (Session, bool) {
	i := slices.IndexFunc(p.Sessions, func(s Session) bool { return s.Peer == peer })
	if i < 0 {
		return Session{}, false
	}
	return p.Sessions[i], true
}

// Reflector is the plan of a dedicated reflector: a host without workloads, that forwards nothing.
func (p Plan) Reflector() Plan {
	if p.Off == "" && !p.Cluster.IsValid() {
		p = Plan{Node: p.Node, Problems: p.Problems, Off: fmt.Sprintf(
			"Node %s has no spec.bgp.routeReflectorClusterID: it is to reflect and do nothing else, and without one it does not reflect (--cluster-id sets it)", p.Node)}
	}
	p.Dedicated, p.Originate = true, nil
	return p
}

// NormalPriority is the priority of routes of a family of which nothing else is said.
func (p Plan) NormalPriority(four bool) uint32 {
	return cmp.Or(p.Normal[family(four)], DefaultPriority)
}

// ConfiguredPriority is the normal priority of a family if one is configured, else 0.
func (p Plan) ConfiguredPriority(four bool) uint32 { return p.Normal[family(four)] }

// DefaultPriority is the normal priority of routes where none is configured; in upstream, too.
const DefaultPriority = 1024

// lowestPreference is the LOCAL_PREF of priority 0; each more of priority, which is a metric, is one less of LOCAL_PREF. As in upstream.
const lowestPreference = 1<<31 - 1

// LocalPref is the LOCAL_PREF with which internal peers are sent a route of this priority.
func LocalPref(priority uint32) uint32 { return lowestPreference - priority }

// PriorityOf is the priority that a LOCAL_PREF stands for; 0: none, it is one as other networks have them.
func PriorityOf(localPref uint32) uint32 {
	if localPref < LocalPref(api.MaxBGPRoutePriority) || localPref >= lowestPreference {
		return 0
	}
	return lowestPreference - localPref
}

// IsForeign reports whether routes to a prefix must not be installed by this speaker.
func (p Plan) IsForeign(dst netip.Prefix) bool {
	return p.Dedicated || slices.ContainsFunc(p.Foreign, func(f netip.Prefix) bool { return Covers(f, dst) })
}

// Filters are the rules of filters, by which what blocks cover, and routes that are not the agent's, may be advertised; those of equal sessions are there
// once.
func (p Plan) Filters() (out []Filter) {
	for _, s := range p.Sessions {
		i := slices.IndexFunc(s.Export, func(r Rule) bool { return r.Covered })
		f := Filter{s.Peer.Is4(), s.Export[:max(i, 0)]}
		if len(f.rules) > 0 && !slices.ContainsFunc(out, func(o Filter) bool { return reflect.DeepEqual(o, f) }) {
			out = append(out, f)
		}
	}
	return out
}

// Filter is the part of a session's rules for export that is of BGPFilters.
type Filter struct {
	Four  bool // for IPv4
	rules []Rule
}

// Accepts reports whether a route is advertised although a block covers it, or although it is not the agent's.
func (f Filter) Accepts(t Route) bool {
	r, decided := Decide(f.rules, t)
	return f.Four == t.Dst.Addr().Is4() && decided && r.Accept
}

// AcceptsAny reports whether there are routes that it accepts.
func (f Filter) AcceptsAny() bool {
	return slices.ContainsFunc(f.rules, func(r Rule) bool { return r.Accept })
}

// NamesInterfaces reports whether what it accepts depends on the interfaces of routes.
func (f Filter) NamesInterfaces() bool {
	return slices.ContainsFunc(f.rules, func(r Rule) bool { return r.Interface != "" })
}

// Ignores reports whether routes through an interface are not advertised.
func (p Plan) Ignores(link string) bool {
	return anyMatches(p.Ignored, link)
}

// Connects reports whether the networks of an interface are the host's own, and may be advertised: it leads neither to workloads nor into a tunnel, and
// is not among those that are ignored.
func (p Plan) Connects(link string) bool {
	return link != "" && !p.Ignores(link) && !anyMatches(inside, link) && !anyMatches(p.Inside, link)
}

// inside are upstream's two patterns of interfaces that are not the host's, workloads' and kube-proxy's, and the devices of tunnels.
var inside = []string{"cali*", "kube-ipvs*", intent.LinkVXLAN, intent.LinkVXLAN6, intent.LinkIPIP, intent.LinkWireGuard, intent.LinkWireGuard6}

// anyMatches reports whether one of the patterns, with * at the end or without, matches a name.
func anyMatches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if stem, wild := cutStar(pattern); wild {
			return len(name) >= len(stem) && name[:len(stem)] == stem
		}
		return pattern == name
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
