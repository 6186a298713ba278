package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// draft is a plan that is being made.
type draft struct {
	*World
	plan  *Plan
	me    host
	hosts []host
	taken map[netip.Addr]string // why there is a session with this address
	// closed are rules that end each export: pools that are not told, then what is; by family, four first.
	closed, open [2][]Rule
}

func family(four bool) int {
	if four {
		return 0
	}
	return 1
}

// pools makes of pools what may be told, and what others route.
func (d *draft) pools() {
	for _, p := range d.plan.Originate {
		f := family(p.Addr().Is4())
		d.open[f] = append(d.open[f], within(fmt.Sprintf("service prefix %s", p), p, true))
	}
	for _, name := range slices.Sorted(maps.Keys(d.World.pools)) {
		s := d.World.pools[name].Spec
		p := address(s.CIDR).Masked()
		f := family(p.Addr().Is4())
		if s.DisableBGPExport {
			d.closed[f] = append(d.closed[f], within("IPPool "+name+" (disableBGPExport)", p, false))
		} else {
			d.open[f] = append(d.open[f], within("IPPool "+name, p, true))
		}
		if encapsulated(s.VXLANMode) || encapsulated(s.IPIPMode) {
			d.plan.Encapsulated = append(d.plan.Encapsulated, p)
		}
	}
}

func encapsulated(mode string) bool { return mode == "Always" || mode == "CrossSubnet" }

// peers makes the sessions of BGPPeers: those of this node by name first, then by selector, then those of all nodes.
func (d *draft) peers() {
	names := slices.Sorted(maps.Keys(d.World.peers))
	for rank := range 3 {
		for _, name := range names {
			if s := &d.World.peers[name].Spec; rankOf(s) == rank {
				d.peer(name, s)
			}
		}
	}
}

func rankOf(s *api.BGPPeerSpec) int {
	switch {
	case s.Node != "":
		return 0
	case s.NodeSelector != "":
		return 1
	}
	return 2
}

func (d *draft) peer(name string, s *api.BGPPeerSpec) {
	local := selects(s, d.me)
	if s.PeerSelector == "" {
		at, ok := api.PeerAddress(s.PeerIP)
		if local && ok && at.Addr() != d.me.addr(at.Addr().Is4()) {
			d.address(name, s, at)
		}
		return
	}
	for _, h := range d.hosts {
		// The other node has the session too, unless peering is one way: then who is selected waits.
		remote := matches(s.PeerSelector, h.labels)
		reverse := s.ReversePeering != "Manual" && matches(s.PeerSelector, d.me.labels) && selects(s, h)
		if h.name == d.me.name || !(local && remote || reverse) {
			continue
		}
		for _, four := range []bool{true, false} {
			if a := h.addr(four); a.IsValid() && d.me.addr(four).IsValid() {
				session := d.draw(name, s, a)
				session.Port, session.AS, session.PeerNode = h.port, h.as, h.name
				session.Passive = s.ReversePeering != "Manual" && d.waits(a)
				d.reflect(&session, h.cluster)
				d.add(session, s.Filters)
			}
		}
	}
}

// address makes the session with an address.
func (d *draft) address(name string, s *api.BGPPeerSpec, at netip.AddrPort) {
	session := d.draw(name, s, at.Addr())
	session.Port, session.AS = DefaultPort, uint32(s.ASNumber)
	session.Via, _ = netip.ParseAddr(s.ReachableBy) // none: it is empty
	var cluster netip.Addr
	for _, h := range d.hosts {
		if h.addr(at.Addr().Is4()) == at.Addr() {
			session.PeerNode, cluster = h.name, h.cluster
			if h.as == session.AS {
				session.Port = h.port
			}
		}
	}
	if at.Port() != 0 {
		session.Port = at.Port()
	}
	d.reflect(&session, cluster)
	d.add(session, s.Filters)
}

// draw begins a session as a BGPPeer says.
func (d *draft) draw(name string, s *api.BGPPeerSpec, peer netip.Addr) Session {
	out := d.begin(peer)
	out.Why, out.Global = "BGPPeer "+name, s.Node == "" && s.NodeSelector == ""
	if s.LocalASNumber != nil {
		out.LocalAS = uint32(*s.LocalASNumber)
	}
	if s.SourceAddress == "None" {
		out.Source = netip.Addr{}
	}
	out.password(s.Password, d.shutFor(api.KindBGPPeer, name))
	switch {
	case s.NextHopMode == "Self":
		out.NextHop = NextHopSelf
	case s.NextHopMode == "Keep", s.KeepOriginalNextHop:
		out.NextHop = NextHopKeep
	}
	out.Keepalive = seconds(s.KeepaliveTime, DefaultKeepalive)
	out.Hold = holdKeepalives * out.Keepalive
	out.Restart = seconds(s.MaxRestartTime, DefaultRestart)
	if s.TTLSecurity != nil {
		out.Hops = *s.TTLSecurity
	}
	if n := s.NumAllowedLocalASNumbers; n != nil {
		out.AllowLocalAS = uint8(*n)
	}
	if own, said := bfdOf(&d.World.peers[name].Metadata); said {
		out.BFD = own
	}
	return out
}

// password gives a session its password. Where one is wanted and it is not known which, or nobody knows whether one is
// wanted since the resource could not be read, the session is closed: it must never be one without.
func (s *Session) password(p *api.BGPPassword, shut string) {
	switch {
	case shut != "":
		s.Closed = shut
	case p == nil:
	case p.Unread != "":
		s.Closed = p.Unread
	case p.SecretKeyRef == nil:
		s.Closed = "password: no secretKeyRef"
	default:
		s.Password = &Secret{p.SecretKeyRef.Name, p.SecretKeyRef.Key}
	}
}

// begin is a session where nothing special is said.
func (d *draft) begin(peer netip.Addr) Session {
	return Session{
		Peer: peer, LocalAS: d.me.as, Source: d.me.addr(peer.Is4()),
		Keepalive: DefaultKeepalive, Hold: holdKeepalives * DefaultKeepalive, Restart: DefaultRestart,
		BFD: d.bfd(),
	}
}

// bfd is what holds for sessions of this node of which nothing else is said.
func (d *draft) bfd() BFD {
	for _, name := range []string{"node." + d.me.name, "default"} {
		if c := d.configs[name]; c != nil {
			if b, said := bfdOf(&c.Metadata); said {
				return b
			}
		}
	}
	return BFD{BFD: api.DefaultBFD}
}

// bfdOf is what a resource says; what cannot be read is as if it were not there, and among the plan's problems.
func bfdOf(m *api.ObjectMeta) (BFD, bool) {
	b, err := api.ParseBFD(m.Annotations[api.AnnotationBFD])
	return BFD{BFD: b, Asked: b != (api.BFD{})}, err == nil
}

// reflect makes the peer a client if this node reflects and the peer does not, or for another cluster.
func (d *draft) reflect(s *Session, theirs netip.Addr) {
	if s.Internal() && d.me.cluster.IsValid() && theirs != d.me.cluster {
		s.Client, s.Cluster = true, d.me.cluster
	}
}

// waits says which of two nodes calls. Upstream compares the text of addresses; both ends must agree.
func (d *draft) waits(peer netip.Addr) bool {
	return peer.String() > d.me.addr(peer.Is4()).String()
}

// mesh makes the sessions between all nodes that are no reflectors.
func (d *draft) mesh() {
	all := d.config("default")
	if all.NodeToNodeMeshEnabled != nil && !*all.NodeToNodeMeshEnabled || d.me.cluster.IsValid() {
		return
	}
	for _, h := range d.hosts {
		if h.name == d.me.name || h.cluster.IsValid() {
			continue
		}
		for _, four := range []bool{true, false} {
			a := h.addr(four)
			if _, taken := d.taken[a]; !a.IsValid() || !d.me.addr(four).IsValid() || taken {
				continue
			}
			s := d.begin(a)
			s.Why, s.Port, s.AS, s.PeerNode, s.Passive = FromMesh, h.port, h.as, h.name, d.waits(a)
			s.Restart = seconds(all.NodeMeshMaxRestartTime, DefaultRestart)
			s.password(all.NodeMeshPassword, d.shutFor(api.KindBGPConfiguration, "default"))
			d.add(s, nil)
		}
	}
}

// add takes a session into the plan, with its rules.
func (d *draft) add(s Session, filters []string) {
	if s.Peer == d.me.addr(s.Peer.Is4()) {
		return // an address that two nodes have
	}
	if other, ok := d.taken[s.Peer]; ok {
		if other != s.Why {
			d.plan.Problems = append(d.plan.Problems, fmt.Sprintf("%s: %s has the session with %s already", s.Why, other, s.Peer))
		}
		return
	}
	d.taken[s.Peer] = s.Why
	four := s.Peer.Is4()
	for _, name := range filters {
		f := d.filters[name]
		if f == nil {
			// Fail closed: who filters does not want everything told or believed.
			d.plan.Problems = append(d.plan.Problems, fmt.Sprintf("%s: there is no BGPFilter %s; nothing passes", s.Why, name))
			none := Rule{Name: "missing BGPFilter " + name}
			s.Import, s.Export = append(s.Import, none), append(s.Export, none)
			continue
		}
		in, out, version := f.Spec.ImportV6, f.Spec.ExportV6, "V6"
		if four {
			in, out, version = f.Spec.ImportV4, f.Spec.ExportV4, "V4"
		}
		s.Import = append(s.Import, filterRules(name+" import"+version, in, s.Internal())...)
		s.Export = append(s.Export, filterRules(name+" export"+version, out, s.Internal())...)
	}
	s.Export = append(append(s.Export, d.closed[family(four)]...), d.open[family(four)]...)
	d.plan.Sessions = append(d.plan.Sessions, s)
}

// selects reports whether a BGPPeer is of a node.
func selects(s *api.BGPPeerSpec, h host) bool {
	switch {
	case s.Node != "":
		return s.Node == h.name
	case s.NodeSelector != "":
		return matches(s.NodeSelector, h.labels)
	}
	return true
}

// matches is false for a selector that cannot be read.
func matches(text string, labels map[string]string) bool {
	s, err := selector.Parse(text)
	return err == nil && s.Match(labels)
}
