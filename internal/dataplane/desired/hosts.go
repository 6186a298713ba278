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
// host sends is judged in postrouting: before it, the interface that a translated packet leaves by is not known.
var hostStages = []hostStage{
	{"host-untracked-in", rules.Untracked, intent.Ingress, Hook{At: Prerouting, Priority: -300}},
	{"host-untracked-out", rules.Untracked, intent.Egress, Hook{At: Output, Priority: -300}},
	{"host-pre-dnat", rules.PreDNAT, intent.Ingress, Hook{At: Prerouting, Priority: -150}},
	{"host-forward-in", rules.HostForward, intent.Ingress, Hook{At: Forward, Priority: -3, Closed: true}},
	{"host-forward-out", rules.HostForward, intent.Egress, Hook{At: Forward, Priority: 0, Closed: true}},
	{"host-in", rules.HostNormal, intent.Ingress, Hook{At: Input, Priority: 2}},
	{"host-out", rules.HostNormal, intent.Egress, Hook{At: Postrouting, Priority: -150}},
}

// everyLink is the interface of the host endpoint for all of a host's own.
const everyLink = "*"

// Addrs are the addresses of an interface; none: it has none, or is not there.
type Addrs struct {
	Link  string
	Addrs []netip.Addr
}

// Links takes note of the addresses by which those host endpoints are found that name no interface.
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

// hosts is what is known of host endpoints besides their intents.
type hosts struct {
	dirty   bool
	addrs   map[string][]netip.Addr         // of interfaces
	exclude []*regexp.Regexp                // interfaces that no endpoint has by an address
	links   map[string]intent.EndpointID    // which endpoint each is under, everyLink included
	chains  map[string]struct{}             // that were wanted
	early   map[intent.PolicyID]rules.Stage // policies that are asked before conntrack or DNAT
	mute    map[intent.PolicyID]bool        // policies that are asked in postrouting, which cannot reject
}

// refreshHosts makes all chains of host endpoints anew. There are few of them, and they change seldom.
func (s *State) refreshHosts() {
	s.hosts.dirty = false
	s.hosts.links = s.hostLinks()
	wanted := map[string]struct{}{}
	names := s.hostNames()
	for _, st := range hostStages {
		var ask []Guard
		for _, link := range s.linksInOrder() {
			e := s.endpoints[s.hosts.links[link]]
			if link == everyLink && st.stage == rules.Untracked {
				continue
			}
			c := rules.HostEndpoint(s.shutIfBroken(e), st.stage, st.dir)
			if st.hook.At == Postrouting {
				s.askSilently(c, e)
			}
			if len(c.Rules) == 0 {
				if link != everyLink { // it is under an endpoint of its own, which says nothing
					ask = append(ask, Guard{If: onLink(st.dir, link), Do: Skip})
				}
				continue
			}
			if names[c.Name] != e.ID {
				ask = append(ask, s.closeHost(st, e, names[c.Name], link)...)
				continue
			}
			s.wantRules(c, HostEndpoints)
			wanted[c.Name] = struct{}{}
			ask = append(ask, Guard{If: onLink(st.dir, link), Do: Goto, Target: c.Name, Comment: e.ID.Name})
		}
		if !slices.ContainsFunc(ask, func(g Guard) bool { return g.Comment != "" }) {
			continue // nobody is asked at this stage
		}
		gs := append(s.beforeHosts(st), ask...)
		if st.hook.Closed {
			gs = append(gs, Guard{Do: Skip, Comment: "not a host endpoint's"})
		}
		s.want(Chain{Name: st.name, Owner: HostEndpoints, Hook: &st.hook, Guards: gs})
		wanted[st.name] = struct{}{}
	}
	for name := range s.hosts.chains {
		if _, ok := wanted[name]; !ok {
			s.drop(name, HostEndpoints)
		}
	}
	s.hosts.chains = wanted
}

// hostNames says which host endpoint has the name of a chain: of two whose names collide, the first by its own name.
func (s *State) hostNames() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	for id, e := range s.endpoints {
		if id.Kind != intent.Host {
			continue
		}
		if key := intent.Key(id); s.faults[key].err != nil { // a collision: nothing else is a host endpoint's fault
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

// closeHost stands for the chain of a host endpoint whose name is another's.
func (s *State) closeHost(st hostStage, e *endpoint, other intent.EndpointID, link string) []Guard {
	s.fail(e.ID, collision(rules.HostChain(e.ID, st.stage, st.dir), other))
	if st.stage >= rules.PreDNAT { // as one that is closed: later stages drop
		return nil
	}
	return []Guard{{If: onLink(st.dir, link), Do: Drop, Comment: e.ID.Name, By: always(intent.ReasonClosed)}}
}

// askSilently leads a chain that is called from postrouting to the silent chains of policies that reject: the kernel refuses
// the whole transaction if a chain that rejects can be reached from there.
func (s *State) askSilently(c rules.Chain, e *endpoint) {
	for _, id := range s.policiesOf(e) {
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

// linksInOrder puts the one for all others last.
func (s *State) linksInOrder() []string {
	var out []string
	for l := range s.hosts.links {
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

// hostLinks finds the host endpoint of each interface: one that names it before one that has an address of it; of
// several, an open one, then the smallest name.
func (s *State) hostLinks() map[string]intent.EndpointID {
	out := map[string]intent.EndpointID{}
	named := map[string]bool{}
	put := func(link string, e *endpoint, byName bool) {
		old, taken := out[link]
		if !taken || byName && !named[link] || byName == named[link] && better(e, s.endpoints[old]) {
			out[link], named[link] = e.ID, byName
		}
	}
	for _, e := range s.endpoints {
		switch {
		case e.ID.Kind != intent.Host || len(e.Link) > maxLink:
		case e.Link != "":
			put(e.Link, e, true)
		default:
			for link, addrs := range s.hosts.addrs {
				if !excluded(s.hosts.exclude, link) && slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(e.Addrs, a) }) {
					put(link, e, false)
				}
			}
		}
	}
	return out
}

// exclusions makes of the words of settings what names of interfaces are held against. Who made the settings has refused
// what is no regular expression.
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

// shutIfBroken closes an endpoint whose policies cannot all be asked.
func (s *State) shutIfBroken(e *endpoint) intent.Endpoint {
	out := e.Endpoint
	if err := s.needs(e); err != nil && out.Closed == "" {
		out.Closed = err.Error()
	}
	return out
}

// onLink matches an interface in the direction of an endpoint; the one for all others matches whatever is left.
func onLink(dir intent.Direction, link string) []Cond {
	if link == everyLink {
		return nil
	}
	return []Cond{{Kind: OnLink, Side: sideOf(dir), Link: link}}
}

// sideOf is the interface that is of the host in a direction.
func sideOf(dir intent.Direction) rules.Side {
	if dir == intent.Ingress {
		return rules.Src
	}
	return rules.Dst
}

// beforeHosts is what passes a stage of host endpoints without being asked.
func (s *State) beforeHosts(st hostStage) []Guard {
	pass := func(comment string, cond ...Cond) Guard { return Guard{If: cond, Do: Skip, Comment: comment} }
	var gs []Guard
	local := st.dir == intent.Egress && st.stage == rules.HostNormal
	if local {
		// Established flows first: they need no look at the routes.
		gs = append(gs, pass("", Cond{Kind: Established}), pass("forwarded", Cond{Kind: Forwarded}))
	}
	gs = append(gs, pass("", onLink(st.dir, "lo")...), neighbours(Skip))
	if st.stage != rules.HostNormal || local {
		for _, p := range s.cfg.Prefixes {
			gs = append(gs, pass("workload", onLink(st.dir, p+everyLink)...))
		}
		for _, kind := range []CondKind{OfWorkload, OfClosed} { // those of any other name that the node attached itself
			gs = append(gs, pass("workload", Cond{Kind: kind, Side: sideOf(st.dir)}))
		}
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
	if st.stage == rules.HostNormal && !local {
		gs = append(gs, Guard{If: fromWorkload(), Do: Call, Target: chainServices})
		if s.host.EndpointToHost != intent.ToHostReturn { // the setting has decided
			gs = append(gs, pass("workload", fromWorkload()...))
		}
	}
	if st.stage != rules.HostForward {
		gs = append(gs, s.failsafes(st.dir, false)...)
	}
	return gs
}

// failsafes are ports that no policy closes. Where nothing is tracked replies are seen too: then the ports are turned
// round. The other end is the source of what comes in, and the destination of what goes out.
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

// noteStages says at which early stage policies are asked, so that what they allow is known later on, and which are asked
// where nothing can be rejected.
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

// earlyActions are those of a policy that is asked early. Before conntrack nothing is answered: the answer would be of no
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
