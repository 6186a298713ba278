package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// planner builds a plan.
type planner struct {
	*Resources
	plan  *Plan
	self  host
	nodes []host
	taken map[netip.Addr]string // the Why of the session with this address
	// closed, marks and open are the rules that end each export: pools that are not advertised, communities for the rest, then what is
	// advertised; by family, IPv4 first.
	closed, marks, open [2][]Rule
	// byFilter are rules against what filters alone may accept, before all these: where a filter accepts anything.
	byFilter [2][]Rule
	counting map[string]*api.IPPool // pools by name, of each CIDR one
	services []netip.Prefix         // of which addresses of services are advertised
}

func family(four bool) int {
	if four {
		return 0
	}
	return 1
}

// pools makes the closing export rules, of pools.
func (d *planner) pools() {
	for _, name := range slices.Sorted(maps.Keys(d.counting)) {
		s := d.counting[name].Spec
		p := address(s.CIDR).Masked()
		f := family(p.Addr().Is4())
		if s.DisableBGPExport {
			d.closed[f] = append(d.closed[f], within("IPPool "+name+" (disableBGPExport)", p, false))
		} else {
			d.open[f] = append(d.open[f], within("IPPool "+name, p, true))
		}
		if encapsulated(s.IPIPMode) || encapsulated(s.VXLANMode) || !d.installs() {
			d.plan.Foreign = append(d.plan.Foreign, p)
		}
	}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		f, single := family(all.Addr().Is4()), all.Addr().BitLen()
		d.open[f] = append(d.open[f], Rule{Name: "a block of this node in no IPPool", Prefix: all, Max: single - 1, Own: true, Accept: true})
	}
}

// filtersAlone makes the rules against what filters alone may accept, of families in which one accepts anything: what blocks cover, and
// routes that are not the agent's.
func (d *planner) filtersAlone() {
	accepts := func(r api.BGPFilterRule) bool { return r.Action == "Accept" && !r.Void }
	for _, filter := range d.filters {
		for f, list := range [][]api.BGPFilterRule{filter.Spec.ExportV4, filter.Spec.ExportV6} {
			if slices.ContainsFunc(list, accepts) {
				d.byFilter[f] = []Rule{
					{Name: "the block that covers it", Covered: true},
					{Name: "the default for routes that are not the agent's", Foreign: true},
				}
			}
		}
	}
}

// communities makes the rules of prefixAdvertisements: those of the node, or else of default.
func (d *planner) communities() {
	own, all := d.config("node."+d.self.name), d.config("default")
	values := map[string]string{}
	for _, c := range append(slices.Clone(all.Communities), own.Communities...) {
		values[c.Name] = c.Value
	}
	for _, a := range or(own.PrefixAdvertisements, all.PrefixAdvertisements) {
		p := address(a.CIDR).Masked()
		r := Rule{Name: "prefixAdvertisements " + a.CIDR, Prefix: p, Min: p.Bits(), Max: p.Addr().BitLen(), Continue: true}
		for _, c := range a.Communities {
			value := cmp.Or(values[c], c)
			if !strings.Contains(value, ":") {
				d.plan.Problems = append(d.plan.Problems, fmt.Sprintf("BGPConfiguration: prefix %s: no community has the name %s", a.CIDR, c))
				continue
			}
			r.Add = append(r.Add, value)
		}
		if p.IsValid() && len(r.Add) > 0 {
			d.marks[family(p.Addr().Is4())] = append(d.marks[family(p.Addr().Is4())], r)
		}
	}
}

func encapsulated(mode string) bool { return mode == "Always" || mode == "CrossSubnet" }

// peers makes the sessions of BGPPeers: first those for this node by name, then by selector, then those for all nodes; and then those
// at the other end of them, where this node is the peer and nothing says of a session of its own.
func (d *planner) peers() {
	names := slices.Sorted(maps.Keys(d.Resources.peers))
	for _, sessions := range []func(string, *api.BGPPeerSpec){d.forward, d.reverse} {
		for rank := range 3 {
			for _, name := range names {
				if s := &d.Resources.peers[name].Spec; rankOf(s) == rank {
					sessions(name, s)
				}
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

// forward makes the sessions of a BGPPeer that is for this node.
func (d *planner) forward(name string, s *api.BGPPeerSpec) {
	if !selects(s, d.self) {
		return
	}
	if s.LocalWorkloadSelector != "" {
		d.workloads(name, s)
		return
	}
	if at, ok := api.PeerAddress(s.PeerIP); ok && s.PeerSelector == "" && at.Addr() != d.self.addr(at.Addr().Is4()) {
		d.address(name, s, at)
	}
	for _, four := range []bool{true, false} {
		for _, h := range d.nodes {
			if s.PeerSelector != "" && h.name != d.self.name && d.names(s, h, four) {
				d.node(name, s, h, four)
			}
		}
	}
}

// reverse makes the sessions of which this node is the peer.
func (d *planner) reverse(name string, s *api.BGPPeerSpec) {
	for _, four := range []bool{true, false} {
		if s.ReversePeering == "Manual" || s.LocalWorkloadSelector != "" || !d.names(s, d.self, four) {
			continue
		}
		for _, h := range d.nodes {
			if _, taken := d.taken[h.addr(four)]; h.name != d.self.name && selects(s, h) && !taken {
				d.node(name, s, h, four)
			}
		}
	}
}

// names reports whether a node is a BGPPeer's peer, in one family: by selector, or by its address, AS number and port.
func (d *planner) names(s *api.BGPPeerSpec, h host, four bool) bool {
	if s.PeerSelector != "" {
		return matches(s.PeerSelector, h.labels)
	}
	at, ok := api.PeerAddress(s.PeerIP)
	return ok && at.Addr().Is4() == four && at.Addr() == h.addr(four) && d.peerAS(s) == h.as && (at.Port() == 0 || at.Port() == h.port)
}

// node makes the session with another node in one family.
func (d *planner) node(name string, s *api.BGPPeerSpec, h host, four bool) {
	a := h.addr(four)
	if !a.IsValid() || !d.self.addr(four).IsValid() {
		return
	}
	session := d.draw(name, s, a)
	session.Port, session.AS, session.PeerNode = h.port, h.as, h.name
	if n := s.LocalASNumber; n != nil { // it is that of the nodes that the BGPPeer is for, not of their peers
		if !selects(s, d.self) || !d.names(s, h, four) {
			session.LocalAS = d.self.as
		}
		if selects(s, h) && d.names(s, d.self, four) {
			session.AS = uint32(*n)
		}
	}
	session.Passive = s.ReversePeering != "Manual" && d.isPassive(a)
	d.setClient(&session, h.cluster)
	d.add(session, s.Filters)
}

// address makes the session with an address.
func (d *planner) address(name string, s *api.BGPPeerSpec, at netip.AddrPort) {
	session := d.draw(name, s, at.Addr())
	session.Port, session.AS = DefaultPort, d.peerAS(s)
	session.Via, _ = netip.ParseAddr(s.ReachableBy) // none: it is empty
	var cluster netip.Addr
	for _, h := range d.nodes {
		if h.addr(at.Addr().Is4()) == at.Addr() {
			session.PeerNode, cluster = h.name, h.cluster
			if h.as == session.AS {
				session.Port = h.port
			}
			// The other node has the session too, unless peering is one way.
			session.Passive = s.ReversePeering != "Manual" && d.names(s, h, at.Addr().Is4()) && d.self.addr(at.Addr().Is4()).IsValid() && d.isPassive(at.Addr())
		}
	}
	if at.Port() != 0 {
		session.Port = at.Port()
	}
	d.setClient(&session, cluster)
	d.add(session, s.Filters)
}

// peerAS is the AS of a BGPPeer's peerIP.
func (d *planner) peerAS(s *api.BGPPeerSpec) uint32 { return cmp.Or(uint32(s.ASNumber), d.clusterAS()) }

// draw makes a session with a BGPPeer's settings.
func (d *planner) draw(name string, s *api.BGPPeerSpec, peer netip.Addr) Session {
	out := d.newSession(peer)
	out.Why, out.Global = "BGPPeer "+name, s.Node == "" && s.NodeSelector == ""
	if s.LocalASNumber != nil {
		out.LocalAS = uint32(*s.LocalASNumber)
	}
	if s.SourceAddress == "None" {
		out.Source = netip.Addr{}
	}
	out.password(s.Password, d.unreadableReason(api.KindBGPPeer, name))
	switch {
	case s.NextHopMode == "Self":
		out.NextHop = NextHopSelf
	case s.NextHopMode == "Keep", s.KeepOriginalNextHop:
		out.NextHop = NextHopKeep
	}
	out.Keepalive = seconds(s.KeepaliveTime, DefaultKeepalive, api.MaxBGPKeepalive)
	out.Hold = holdKeepalives * out.Keepalive
	out.Restart = seconds(s.MaxRestartTime, DefaultRestart, api.MaxBGPRestart)
	if s.TTLSecurity != nil {
		out.Hops = *s.TTLSecurity
	}
	if n := s.NumAllowedLocalASNumbers; n != nil {
		out.AllowLocalAS = uint8(*n)
	}
	if own, found := bfdOf(&d.Resources.peers[name].Metadata); found {
		out.BFD = own
	}
	return out
}

// password sets a session's password. Where one is configured but unknown, or it is unknown whether one is
// configured since the resource could not be read, the session is closed: it must never be opened without.
func (s *Session) password(p *api.BGPPassword, unreadable string) {
	switch {
	case unreadable != "":
		s.Closed = unreadable
	case p == nil:
	case p.Unread != "":
		s.Closed = p.Unread
	case p.SecretKeyRef == nil:
		s.Closed = "password: no secretKeyRef"
	default:
		s.Password = &Secret{p.SecretKeyRef.Name, p.SecretKeyRef.Key}
	}
}

// newSession returns a session with the defaults.
func (d *planner) newSession(peer netip.Addr) Session {
	return Session{
		Peer: peer, LocalAS: d.self.as, Source: d.self.addr(peer.Is4()),
		Keepalive: DefaultKeepalive, Hold: holdKeepalives * DefaultKeepalive, Restart: DefaultRestart,
		BFD: d.bfd(),
	}
}

// bfd returns this node's default for sessions.
func (d *planner) bfd() BFD {
	for _, name := range []string{"node." + d.self.name, "default"} {
		if c := d.configs[name]; c != nil {
			if b, found := bfdOf(&c.Metadata); found {
				return b
			}
		}
	}
	return BFD{BFD: api.DefaultBFD}
}

// bfdOf reads a resource's annotation; false if it has none or cannot be read, which is among the plan's problems.
func bfdOf(m *api.ObjectMeta) (BFD, bool) {
	b, err := api.ParseBFD(m.Annotations[api.AnnotationBFD])
	return BFD{BFD: b, Asked: b != (api.BFD{})}, err == nil
}

// setClient makes an internal peer a client if this node reflects and the peer does not reflect for the same cluster.
func (d *planner) setClient(s *Session, theirs netip.Addr) {
	if s.Internal() && d.self.cluster.IsValid() && theirs != d.self.cluster {
		s.Client, s.Cluster = true, d.self.cluster
	}
}

// isPassive reports whether this node waits for the peer's connection. Both ends must agree, so addresses are compared as text, as
// upstream does.
func (d *planner) isPassive(peer netip.Addr) bool {
	return peer.String() > d.self.addr(peer.Is4()).String()
}

// mesh makes the sessions of the node-to-node mesh, which has no reflectors.
func (d *planner) mesh() {
	all := d.config("default")
	if all.NodeToNodeMeshEnabled != nil && !*all.NodeToNodeMeshEnabled || d.self.cluster.IsValid() {
		return
	}
	for _, h := range d.nodes {
		if h.name == d.self.name || h.cluster.IsValid() {
			continue
		}
		for _, four := range []bool{true, false} {
			a := h.addr(four)
			if _, taken := d.taken[a]; !a.IsValid() || !d.self.addr(four).IsValid() || taken {
				continue
			}
			s := d.newSession(a)
			s.Why, s.Port, s.AS, s.PeerNode, s.Passive = FromMesh, h.port, h.as, h.name, d.isPassive(a)
			s.Restart = seconds(all.NodeMeshMaxRestartTime, DefaultRestart, api.MaxBGPRestart)
			s.password(all.NodeMeshPassword, d.unreadableReason(api.KindBGPConfiguration, "default"))
			d.add(s, nil)
		}
	}
}

// add adds a session with its rules to the plan, unless there is one with that address.
func (d *planner) add(s Session, filters []string) {
	if s.Peer == d.self.addr(s.Peer.Is4()) {
		return // another node has this node's address
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
			// Fail closed: a peer with a filter is not meant to get and send everything.
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
	if s.Workload != "" {
		s.Import = append(s.Import, Rule{Name: "what no BGPFilter accepts of a workload"})
	}
	f := family(four)
	s.Export = slices.Concat(withoutUnnamed(s.Export, four), d.byFilter[f], d.closed[f], d.marks[f], d.serviceRules(s), d.open[f])
	d.plan.Sessions = append(d.plan.Sessions, s)
}

// withoutUnnamed adds rules of a filter by which the host's own default routes are rejected, each before one that would accept them and does not name them, as 0.0.0.0/0 or
// ::/0. A rule that accepts everything means what is behind this node, and not the way from it to everywhere else, which would lead back.
func withoutUnnamed(filters []Rule, four bool) (out []Rule) {
	all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	if four {
		all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	for _, r := range filters {
		names := r.Prefix == all && r.Max == 0 && !r.Not
		means := (Rule{Prefix: r.Prefix, Not: r.Not, Min: r.Min, Max: r.Max}).Matches(Route{Dst: all})
		if ofOthers := !r.Learned && r.Community == "" && len(r.ASPath) == 0; r.Accept && ofOthers && means && !names {
			out = append(out, Rule{Name: "default routes that no BGPFilter names", Prefix: all, Foreign: true, Interface: r.Interface, Priority: r.Priority})
		}
		out = append(out, r)
	}
	return out
}

// selects reports whether a BGPPeer applies to a node.
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
