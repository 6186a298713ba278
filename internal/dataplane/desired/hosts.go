package desired

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// hostStage is a stage of host endpoints. It is there only while some host endpoint needs it.
type hostStage struct {
	name  string
	stage rules.Stage
	dir   intent.Direction
	hook  Hook
}

// hostStages are in the order of a packet's way. The input stage comes after those of workloads. What a process of the
// host sends is asked about in postrouting: before it, the outgoing interface of a translated packet is not known.
var hostStages = []hostStage{
	{"host-untracked-in", rules.Untracked, intent.Ingress, Hook{At: Prerouting, Priority: -300}},
	{"host-untracked-out", rules.Untracked, intent.Egress, Hook{At: Output, Priority: -300}},
	{"host-pre-dnat", rules.PreDNAT, intent.Ingress, Hook{At: Prerouting, Priority: -150}},
	{"host-forward-in", rules.HostForward, intent.Ingress, Hook{At: Forward, Priority: -3, Closed: true}},
	{"host-forward-out", rules.HostForward, intent.Egress, Hook{At: Forward, Priority: 0, Closed: true}},
	{"host-in", rules.HostNormal, intent.Ingress, Hook{At: Input, Priority: 2}},
	{"host-out", rules.HostNormal, intent.Egress, Hook{At: Postrouting, Priority: -150}},
}

// HostStage is a stage of host endpoints, as people and readers of the kernel's table know it.
type HostStage struct {
	Chain     string // of all host endpoints, which leads to the chain of each
	Direction string // of the host: receives or sends
	dir       intent.Direction
}

// Maps is how the names of the maps begin that the chain of a host endpoint asks at the stage.
func (s HostStage) Maps(chain string) string { return hostMaps(chain, s.dir) }

// HostStages are all stages of host endpoints, in the order of a packet's way.
func HostStages() []HostStage {
	out := make([]HostStage, len(hostStages))
	for i, st := range hostStages {
		out[i] = HostStage{Chain: st.name, Direction: [...]string{intent.Ingress: "receives", intent.Egress: "sends"}[st.dir], dir: st.dir}
	}
	return out
}

// everyLink is the interface of the host endpoint for all of a host's own.
const everyLink = "*"

// Addrs are the addresses of an interface; none: it has none, or does not exist.
type Addrs struct {
	Link  string
	Addrs []netip.Addr
}

// Links takes the present addresses of interfaces that changed, by which host endpoints that name no interface are found.
func (s *State) Links(changes []Addrs) {
	for _, c := range changes {
		if is, known := s.hosts.addrs[c.Link]; known == (len(c.Addrs) > 0) && slices.Equal(c.Addrs, is) {
			continue
		}
		if s.hosts.addrs[c.Link] = c.Addrs; len(c.Addrs) == 0 {
			delete(s.hosts.addrs, c.Link)
		}
		s.hosts.dirty = true
	}
}

// hosts is the state of host endpoints other than their intents.
type hosts struct {
	dirty   bool
	addrs   map[string][]netip.Addr         // of interfaces
	exclude []*regexp.Regexp                // interfaces that get no endpoint by an address
	links   map[string]intent.EndpointID    // the endpoint of each interface, everyLink included
	chains  map[string]intent.Key           // chains that were wanted, with their owner
	early   map[intent.PolicyID]rules.Stage // policies that are asked before conntrack or DNAT
	mute    map[intent.PolicyID]bool        // policies that are asked in postrouting, which cannot reject
	sends   []Guard                         // that lead what processes of the host send to policy
}

// refreshHosts computes all chains of host endpoints again. There are few of them, and they change seldom.
func (s *State) refreshHosts() {
	s.hosts.dirty = false
	s.hosts.links, s.hosts.sends = s.hostLinks(), nil
	wanted := map[string]intent.Key{}
	names := s.hostNames()
	for _, st := range hostStages {
		var ask, all []Guard
		links := s.hosts.links
		if st.stage == rules.HostNormal {
			links = s.withDecrypted(links)
		}
		for _, link := range linksInOrder(links) {
			found := s.askHost(st, link, s.endpoints[links[link]], names, wanted)
			if ask = append(ask, found...); link == everyLink && st.stage != rules.HostNormal {
				all = found
			}
		}
		if !slices.ContainsFunc(ask, func(g Guard) bool { return g.Comment != "" }) {
			continue // no endpoint has policy at this stage
		}
		if st.hook.At == Postrouting {
			s.hosts.sends = ask
		}
		gs := append(s.beforeHosts(st, all), ask...)
		if st.hook.Closed {
			gs = append(gs, Guard{Do: Skip, Comment: "not a host endpoint's"})
		}
		s.want(Chain{Name: st.name, Owner: HostEndpoints, Hook: &st.hook, Guards: gs})
		wanted[st.name] = HostEndpoints
	}
	if len(wanted) > 0 {
		for _, name := range s.unmark() {
			wanted[name] = HostEndpoints
		}
	}
	for name, owner := range s.hosts.chains {
		if _, ok := wanted[name]; !ok {
			s.drop(name, owner)
			s.forgetHost(name)
		}
	}
	s.hosts.chains = wanted
	s.accepted()
}

// askHost returns the guards that lead the packets of an interface to the chain of its host endpoint at a stage, and wants that chain.
func (s *State) askHost(st hostStage, link string, e *endpoint, names map[string]intent.EndpointID, wanted map[string]intent.Key) []Guard {
	if link == everyLink && st.stage == rules.Untracked {
		return nil
	}
	asked := s.closedIfBroken(e)
	c := rules.HostEndpoint(asked, st.stage, st.dir)
	switch {
	case len(c.Rules) == 0 && link == everyLink:
		return nil
	case len(c.Rules) == 0: // its own endpoint has no policy here
		return []Guard{{If: onLink(st.dir, link), Do: Skip}}
	case names[c.Name] != e.ID:
		return s.closeHost(st, e, names[c.Name], link)
	}
	if !s.askTables(c, asked, st) {
		s.askSilently(c, asked, st)
		s.wantRules(c, e.ID)
	}
	wanted[c.Name] = e.ID
	return []Guard{{If: onLink(st.dir, link), Do: Goto, Target: c.Name, Comment: e.ID.Name}}
}

// hostNames returns the owner of the name of each chain: of two host endpoints with the same one, the smaller name.
func (s *State) hostNames() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	for id, e := range s.endpoints {
		if id.Kind != intent.Host {
			continue
		}
		if key := intent.Key(id); s.faults[key].err != nil && !s.faults[key].refused { // a collision
			delete(s.faults, key)
			s.touched[key] = struct{}{}
		}
		for _, st := range hostStages {
			name := rules.HostChain(id, st.stage, st.dir)
			if other, taken := out[name]; !taken || e.ID.Name < other.Name {
				out[name] = id
			}
		}
	}
	return out
}

// closeHost returns the guards for a host endpoint whose chain name belongs to another.
func (s *State) closeHost(st hostStage, e *endpoint, other intent.EndpointID, link string) []Guard {
	s.fail(e.ID, collision(rules.HostChain(e.ID, st.stage, st.dir), other))
	if st.stage >= rules.PreDNAT { // like a closed endpoint: later stages drop
		return nil
	}
	return []Guard{{If: onLink(st.dir, link), Do: Drop, Comment: e.ID.Name, By: always(intent.ReasonClosed)}}
}

// askSilently replaces, in a chain that is called from postrouting, jumps to policies that reject by jumps to their silent chains: the kernel
// refuses the whole transaction if a chain with a reject can be reached from there.
func (s *State) askSilently(c rules.Chain, e intent.Endpoint, st hostStage) {
	if st.hook.At != Postrouting {
		return
	}
	for _, id := range s.groups.Policies(e.Policies().ID) {
		if p := s.policies[id]; p == nil || !rules.Rejects(s.within(p.Policy), intent.Egress) {
			continue
		}
		loud, silent := rules.PolicyChain(id, intent.Egress), rules.SilentChain(id, intent.Egress)
		for i := range c.Rules {
			if c.Rules[i].Target == loud {
				c.Rules[i].Target = silent
			}
		}
	}
}

// linksInOrder returns the interfaces in order, everyLink last.
func linksInOrder(links map[string]intent.EndpointID) []string {
	var out []string
	for l := range links {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b string) int {
		if (a == everyLink) != (b == everyLink) {
			return map[bool]int{true: 1, false: -1}[a == everyLink]
		}
		return strings.Compare(a, b)
	})
	return out
}

// hostLinks finds the host endpoint of each interface: one that names it or has an address of it; of several, an open one, then the smallest name, as
// upstream has it.
func (s *State) hostLinks() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	put := func(link string, e *endpoint) {
		if old, taken := out[link]; !taken || better(e, s.endpoints[old]) {
			out[link] = e.ID
		}
	}
	for _, e := range s.endpoints {
		switch {
		case e.ID.Kind != intent.Host || len(e.Link) > maxLink:
		case e.Link != "":
			put(e.Link, e)
		default:
			for link, addrs := range s.hosts.addrs {
				if !excluded(s.hosts.exclude, link) && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(e.Addrs, a) }) {
					put(link, e)
				}
			}
		}
	}
	return out
}

// exclusions compiles the excluded interface names of the settings, some of which are regular expressions. Those that do not compile
// were refused where the settings were read.
func exclusions(words []string) (out []*regexp.Regexp) {
	for _, w := range words {
		pattern := "^" + regexp.QuoteMeta(w) + "$"
		if inner, ok := strings.CutPrefix(w, "/"); ok {
			pattern = strings.TrimSuffix(inner, "/")
		}
		if re, err := regexp.Compile(pattern); err == nil {
			out = append(out, re)
		}
	}
	return out
}

func excluded(by []*regexp.Regexp, link string) bool {
	return slices.ContainsFunc(by, func(re *regexp.Regexp) bool { return re.MatchString(link) })
}

func better(a, b *endpoint) bool {
	if (a.Closed == "") != (b.Closed == "") {
		return a.Closed == ""
	}
	return a.ID.Name < b.ID.Name
}

// closedIfBroken returns the endpoint, closed if its policies cannot all be asked, or the backend refused them.
func (s *State) closedIfBroken(e *endpoint) intent.Endpoint {
	out := e.Endpoint
	err := s.needs(e)
	if f := s.faults[e.ID]; f.refused {
		err = f.err
	}
	if err != nil && out.Closed == "" {
		out.Closed = err.Error()
	}
	return out
}

// onLink matches an interface in the direction of an endpoint; everyLink matches any other.
func onLink(dir intent.Direction, link string) []Cond {
	if link == everyLink {
		return nil
	}
	return []Cond{{Kind: OnLink, Side: sideOf(dir), Link: link}}
}

// sideOf returns the side of a packet that is the host's in a direction.
func sideOf(dir intent.Direction) rules.Side {
	if dir == intent.Ingress {
		return rules.Src
	}
	return rules.Dst
}

// beforeHosts returns the guards that come before those of each interface at a stage of host endpoints: for packets that pass without being asked, and
// for those of workloads. About the latter only the endpoint for all interfaces is asked, by the guards that are given; none: they pass, too.
func (s *State) beforeHosts(st hostStage, all []Guard) []Guard {
	pass := func(comment string, cond ...Cond) Guard { return Guard{If: cond, Do: Skip, Comment: comment} }
	var gs []Guard
	local := st.dir == intent.Egress && st.stage == rules.HostNormal
	if local {
		// Established flows first: they need no look-up of routes.
		gs = append(gs, pass("", Cond{Kind: Established}), pass("forwarded", Cond{Kind: Forwarded}))
	}
	gs = append(gs, pass("", onLink(st.dir, "lo")...), neighbours(discovery, Skip))
	if len(all) == 0 {
		gs = append(gs, s.passWorkloads(st.dir)...)
	}
	if st.stage == rules.Untracked {
		return append(append(gs, s.failsafes(st.dir, false)...), s.failsafes(1-st.dir, true)...)
	}
	switch {
	case local:
		gs = append(gs, pass("untracked", Cond{Kind: Untracked}))
	case st.dir == intent.Ingress && st.stage != rules.PreDNAT:
		gs = append(gs, pass("allowed early", Cond{Kind: AllowedEarly}))
	}
	if !local {
		gs = append(gs, pass("", Cond{Kind: Established}))
	}
	if st.stage != rules.HostForward {
		gs = append(append(gs, s.betweenHosts(st.dir)...), s.failsafes(st.dir, false)...)
	}
	if len(all) > 0 {
		gs = append(append(append(gs, s.ofTheHost(st)...), ofWorkloads(st.dir, all)...), s.passWorkloads(st.dir)...)
	}
	return gs
}

// passWorkloads passes the packets of workloads, and of interfaces that will be theirs: later stages decide about them.
func (s *State) passWorkloads(dir intent.Direction) (gs []Guard) {
	for _, p := range s.cfg.Prefixes {
		gs = append(gs, Guard{If: onLink(dir, p+everyLink), Do: Skip, Comment: "workload"})
	}
	for _, kind := range []CondKind{OfWorkload, OfClosed} { // interfaces of any other name that the node attached itself
		gs = append(gs, Guard{If: []Cond{{Kind: kind, Side: sideOf(dir)}}, Do: Skip, Comment: "workload"})
	}
	return gs
}

// ofWorkloads confines guards to the packets of workloads whose policy is in force.
func ofWorkloads(dir intent.Direction, all []Guard) (gs []Guard) {
	for _, g := range all {
		g.If = append([]Cond{{Kind: OfWorkload, Side: sideOf(dir)}}, g.If...)
		gs = append(gs, g)
	}
	return gs
}

// ofTheHost passes what a workload needs of its host before destinations are translated, which its own policy is not asked about, either.
func (s *State) ofTheHost(st hostStage) []Guard {
	if st.stage != rules.PreDNAT {
		return nil
	}
	gs := []Guard{{If: fromWorkload(), Do: Call, Target: chainServices}}
	if s.host.Metadata.IsValid() {
		gs = append(gs, Guard{Terms: toServer(intent.MetadataService), If: fromWorkload(), Do: Pass, Comment: "metadata"})
	}
	return append(gs, s.forMetadata()...)
}

// failsafes returns guards that pass the failsafe ports. For replies of untracked flows source and destination port are
// exchanged. The other end is the source of an incoming packet, and the destination of an outgoing one.
func (s *State) failsafes(dir intent.Direction, reply bool) []Guard {
	list := s.host.FailsafeIn
	if dir == intent.Egress {
		list = s.host.FailsafeOut
	}
	other, at := rules.Src, rules.Dst
	if (dir == intent.Egress) != reply {
		other = rules.Dst
	}
	if reply {
		at = rules.Src
	}
	var gs []Guard
	for _, f := range list {
		terms := portOf(f.Protocol, at, f.Port)
		if f.Net.IsValid() {
			terms = append([]rules.Term{{Kind: rules.Nets, Side: other, Nets: []netip.Prefix{f.Net.Masked()}}}, terms...)
		}
		gs = append(gs, Guard{Terms: terms, Do: Pass, Comment: "failsafe"})
	}
	return gs
}

// noteStages records which policies are asked at an early stage, so that later stages know what they allowed, and which are asked
// in postrouting, where nothing can be rejected.
func (s *State) noteStages() {
	early, mute := map[intent.PolicyID]rules.Stage{}, map[intent.PolicyID]bool{}
	for _, e := range s.endpoints {
		if e.ID.Kind != intent.Host {
			continue
		}
		for _, stage := range []rules.Stage{rules.PreDNAT, rules.Untracked} {
			for _, t := range stage.Tiers(e.Endpoint) {
				for _, id := range slices.Concat(t.Ingress, t.Egress) {
					early[id] = stage
				}
			}
		}
		for _, id := range egressOf(e.Policies()) {
			mute[id] = true
		}
	}
	for id := range s.policies {
		if early[id] != s.hosts.early[id] || mute[id] != s.hosts.mute[id] {
			s.dirtyPolicies[id] = struct{}{}
		}
	}
	s.hosts.early, s.hosts.mute = early, mute
}

func egressOf(g *intent.Group) []intent.PolicyID {
	out := slices.Clone(g.Profiles)
	for _, t := range g.Normal {
		out = append(out, t.Egress...)
	}
	return out
}

// earlyActions returns the chain of a policy that is asked early. Before conntrack nothing is rejected with an answer: the answer would belong to no
// connection, and policy of the other direction would decide about it.
func earlyActions(c rules.Chain, stage rules.Stage) rules.Chain {
	if stage == rules.Untracked {
		c = rules.Mute(c)
	}
	for i := range c.Rules {
		switch {
		case c.Rules[i].Action != rules.Allow:
		case stage == rules.Untracked:
			c.Rules[i].Action = rules.AllowUntracked
		case stage == rules.PreDNAT:
			c.Rules[i].Action = rules.AllowEarly
		}
	}
	return c
}
