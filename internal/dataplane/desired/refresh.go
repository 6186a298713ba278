package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

var directions = [2]intent.Direction{intent.Ingress, intent.Egress}

// refresh processes what is dirty. What refers to something missing gets no chains, and endpoints that need that are closed.
func (s *State) refresh() {
	if s.hosts.dirty {
		s.noteStages()
	}
	// A policy that is removed may free a name that another waits for, and an endpoint may be the last that called a policy's chain.
	for len(s.dirtyPolicies)+len(s.dirtyEndpoints) > 0 {
		for id := range s.dirtyPolicies {
			delete(s.dirtyPolicies, id)
			callable, why := s.callable[id], s.uncallable[id]
			s.refreshPolicy(id)
			if callable == s.callable[id] && why == s.uncallable[id] {
				continue
			}
			for e := range s.groups.Users(id) {
				s.recheckEndpoint(e)
			}
		}
		if len(s.dirtyPolicies) > 0 {
			continue
		}
		for id := range s.dirtyEndpoints {
			delete(s.dirtyEndpoints, id)
			s.refreshEndpoint(id)
		}
	}
	for link := range s.dirtyLinks {
		delete(s.dirtyLinks, link)
		s.refreshLink(link)
	}
	if s.hosts.dirty {
		s.refreshHosts()
	}
}

// usable returns why a policy cannot be called; nil: it can.
func (s *State) usable(id intent.PolicyID) error {
	p := s.policies[id]
	if p == nil {
		return fmt.Errorf("policy %s was not sent", id)
	}
	if f, broken := s.faults[id]; broken && !f.denies {
		return fmt.Errorf("policy %s: %w", id, f.err)
	}
	return nil
}

func (s *State) refreshPolicy(id intent.PolicyID) {
	if id.Staged() {
		return // no endpoint calls it
	}
	key := intent.Key(id)
	p := s.policies[id]
	if p == nil {
		delete(s.faults, key)
	} else if f, broken := s.faults[key]; !broken || !f.refused {
		if broken {
			delete(s.faults, key)
			s.touched[key] = struct{}{}
		}
		err := s.missingSet(p)
		if err == nil {
			err = s.taken(key, policyChains(id)...)
		}
		if err != nil {
			s.fail(key, err)
		}
	}
	s.charge(id, p)
	err := s.usable(id)
	callable := err == nil
	delete(s.callable, id)
	delete(s.uncallable, id)
	switch {
	case callable:
		s.callable[id] = true
	case p != nil:
		s.uncallable[id] = err.Error()
	}
	s.tell(id, p, callable)
	for _, dir := range directions {
		if !callable || !s.wantsChain(id) {
			s.drop(rules.PolicyChain(id, dir), key)
			continue
		}
		s.wantPolicy(p, earlyActions(rules.Policy(s.within(p.Policy), dir), s.hosts.early[id]))
	}
	s.refreshSilent(id, callable)
}

// refreshSilent makes a second chain of a policy that rejects, if host endpoints ask it about what their host sends. Those
// must call the one chain or the other.
func (s *State) refreshSilent(id intent.PolicyID, callable bool) {
	name := rules.SilentChain(id, intent.Egress)
	_, had := s.owners[name]
	wanted := callable && s.wantsChain(id) && s.hosts.mute[id] && rules.Rejects(s.within(s.policies[id].Policy), intent.Egress)
	if wanted {
		s.wantPolicy(s.policies[id], rules.Silent(s.within(s.policies[id].Policy), intent.Egress))
	} else {
		s.drop(name, id)
	}
	s.hosts.dirty = s.hosts.dirty || wanted != had
}

// wantPolicy makes a chain of a policy desired, with the settings' prefix on its logs.
func (s *State) wantPolicy(p *policy, c rules.Chain) {
	for i := range c.Rules {
		if c.Rules[i].Action == rules.Log {
			if begin := s.host.Log.Begin(p.Tier, p.ID); begin != "" {
				c.Rules[i].Comment = rules.Shorten(begin + ": " + c.Rules[i].Comment)
			}
		}
	}
	s.wantRules(c, p.ID)
}

// missingSet returns which set of a policy cannot be looked up.
func (s *State) missingSet(p *policy) error {
	for _, id := range p.sets {
		if s.sets[id] == nil {
			return fmt.Errorf("set %s was not sent", id)
		}
		if f, broken := s.faults[id]; broken {
			return fmt.Errorf("set %s: %w", id, f.err)
		}
	}
	return s.wrongKinds(p)
}

// wrongKinds returns an error if sets of ports are asked for as addresses, or the reverse.
func (s *State) wrongKinds(p *policy) error {
	for _, r := range slices.Concat(p.Ingress, p.Egress) {
		for _, peer := range []intent.Peer{r.Src, r.Dst} {
			for _, id := range slices.Concat(peer.Sets, peer.NotSets) {
				if s.sets[id].Kind != intent.SetAddrs {
					return fmt.Errorf("set %s does not hold addresses", id)
				}
			}
			for _, id := range slices.Concat(peer.PortSets, peer.NotPortSets) {
				if s.sets[id].Kind != intent.SetPorts {
					return fmt.Errorf("set %s does not hold ports", id)
				}
			}
		}
	}
	return nil
}

// recheckEndpoint marks an endpoint dirty if one of its policies became usable or unusable, or is unusable for another reason.
func (s *State) recheckEndpoint(id intent.EndpointID) {
	e := s.endpoints[id]
	if e == nil {
		return
	}
	if _, broken := s.faults[id]; broken || !e.open || s.needs(e) != nil {
		s.dirtyEndpoints[id] = struct{}{}
	}
}

// policiesOf returns all policies and profiles that an endpoint's chains call.
func (s *State) policiesOf(e *endpoint) []intent.PolicyID { return s.groups.Policies(e.Policies().ID) }

// needs returns what an endpoint lacks to carry traffic; nil: nothing.
func (s *State) needs(e *endpoint) error {
	if len(e.Link) > maxLink {
		return fmt.Errorf("interface name %q is too long", e.Link)
	}
	for _, id := range s.policiesOf(e) {
		if !s.callable[id] {
			return s.usable(id)
		}
	}
	return nil
}

const maxLink = 15 // IFNAMSIZ less the zero byte

func (s *State) refreshEndpoint(id intent.EndpointID) {
	key := intent.Key(id)
	e := s.endpoints[id]
	var err error
	switch f, broken := s.faults[key]; {
	case e != nil && e.ID.Kind == intent.Host && f.refused: // its chains deny, see closedIfBroken
	case e == nil || e.ID.Kind != intent.Workload:
		delete(s.faults, key)
	case broken && f.refused:
		err = f.err
	default:
		delete(s.faults, key)
		if err = s.needs(e); err == nil && e.Closed == "" && e.Link != "" {
			err = s.taken(key, endpointChains(id)...)
		}
		if err != nil {
			s.fail(key, err)
		}
	}
	open := e != nil && e.ID.Kind == intent.Workload && e.Link != "" && e.Closed == "" && err == nil
	if e == nil || e.ID.Kind == intent.Host {
		s.hosts.dirty = true
	}
	if e != nil && e.ID.Kind == intent.Host {
		e.open = s.needs(e) == nil
		s.touched[key] = struct{}{}
		return
	}
	if e != nil {
		e.open = open
		s.dirtyLinks[e.Link] = struct{}{}
		s.touched[key] = struct{}{}
	}
	group := s.place(e, id, open)
	if !open {
		for _, name := range endpointChains(id) {
			s.drop(name, key)
		}
		return
	}
	for _, dir := range directions {
		if group == nil || group.byChains() {
			s.wantRules(rules.Endpoint(e.Endpoint, dir), key)
		} else {
			s.wantGroup(group, dir)
			s.drop(rules.EndpointChain(id, dir), key)
		}
	}
	s.limitChains(e.Endpoint)
	in := e.Endpoint
	in.Spoofable = validSpoofable(in.Spoofable)
	if c := rules.Spoofable(in); len(c.Rules) > 0 {
		s.wantRules(c, key)
	} else {
		s.drop(c.Name, key)
	}
}

// validSpoofable drops invalid prefixes.
func validSpoofable(ps []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range ps {
		if p.IsValid() {
			out = append(out, p.Masked())
		}
	}
	return out
}

// winner returns the endpoint that has an interface: of several open ones, the one whose key is smallest. Nil: none is
// open.
func (s *State) winner(link string) *endpoint {
	var best *endpoint
	for id := range s.linkUsers[link] {
		e := s.endpoints[id]
		if e.open && (best == nil || strings.Compare(e.ID.String(), best.ID.String()) < 0) {
			best = e
		}
	}
	return best
}

// refreshLink computes what an interface leads to.
func (s *State) refreshLink(link string) {
	if link == "" || len(link) > maxLink {
		return
	}
	_, rechecked := s.recheck.links[link]
	l := Link{Name: link, Rechecked: rechecked}
	if e := s.winner(link); e == nil {
		l.Closed = len(s.linkUsers[link]) > 0
	} else {
		l.Endpoint, l.Open = e.ID, true
		l.In, l.Out = s.chainsOf(e)
		l.LimitIn, l.LimitOut = limitChain(e.ID, e.QoS.In, intent.Ingress), limitChain(e.ID, e.QoS.Out, intent.Egress)
		if len(validSpoofable(e.Spoofable)) > 0 {
			l.Source = rules.SpoofChain(e.ID)
		}
	}
	s.newLinks[link] = l
}
