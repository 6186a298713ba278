package desired

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// set is a desired set.
type set struct {
	Set
	stated  Set // as in the last Changes
	counted int // members, when a policy that refers to it was last priced
}

// policy is a desired policy, and the sets that its rules look into.
type policy struct {
	intent.Policy
	sets []intent.SetID
	uses map[intent.SetID]intent.Use // see use
}

// use returns how a policy uses a set.
func (p *policy) use(id intent.SetID) intent.Use {
	if p.uses == nil {
		p.uses = intent.Uses(p.Policy)
	}
	return p.uses[id]
}

// endpoint is a desired endpoint.
type endpoint struct {
	intent.Endpoint
	open    bool   // it may carry traffic: its chains are wanted
	in, out string // the names of its chains, see chains
}

// chains returns the names of the chains through which an endpoint receives and sends.
func (e *endpoint) chains() (in, out string) {
	if e.in == "" {
		e.in, e.out = rules.EndpointChain(e.ID, intent.Ingress), rules.EndpointChain(e.ID, intent.Egress)
	}
	return e.in, e.out
}

// hostKey is the key of the settings.
var hostKey = intent.Key(intent.HostID(""))

// Merge merges a change into the desired state. Routes and peers belong to other drivers. A backend merges the batch's sets first, since
// State asks its [Coster] for their sizes. It has no error: what is wrong of an intent is in its outcome.
func (s *State) Merge(b intent.Batch) {
	stricter := s.stricter(b)
	for _, in := range b.IPSets {
		s.mergeSet(in)
	}
	for _, m := range b.Members {
		s.mergeMembers(m)
	}
	for _, p := range b.Policies {
		s.mergePolicy(p)
	}
	for _, e := range b.Endpoints {
		s.mergeEndpoint(e)
	}
	if b.Host != nil {
		s.configure(*b.Host)
		s.touched[hostKey] = struct{}{}
	}
	for i := len(b.Removed) - 1; i >= 0; i-- {
		s.remove(b.Removed[i])
	}
	s.recheckEndpoints(stricter)
	if b.InSync && !s.inSync {
		s.inSync = true
		s.hostAction() // which was pinned until now
		s.natOutgoing()
		s.metadata()
		s.serviceLoops()
		s.tunnelStages()
		s.hosts.dirty, s.dirtyFloats, s.dirtyLimits, s.dirtyCodes = true, true, true, true
	}
	if s.dirtyLimits {
		s.dirtyLimits = false
		s.limitStages()
	}
	if s.dirtyCodes && s.inSync {
		s.dirtyCodes = false
		s.codePoints()
	}
	if s.dirtyFloats && s.inSync {
		s.dirtyFloats = false
		s.floating()
	}
}

func (s *State) mergeSet(in intent.IPSet) {
	key := intent.Key(in.ID)
	delete(s.faults, key)
	x := s.sets[in.ID]
	if x != nil && x.Kind != in.Kind {
		s.remove(key)
		x = nil
	}
	if x == nil {
		x = &set{Set: Set{ID: in.ID, Kind: in.Kind, Name: SetName(in.ID)}}
		s.sets[in.ID] = x
		s.newSets[in.ID] = struct{}{}
		s.claim(x)
	}
	s.touched[key] = struct{}{}
	s.noteCollision(x)
	s.markSet(in.ID)
}

func (s *State) mergeMembers(m intent.MemberDelta) {
	key := intent.Key(m.Set)
	s.touched[key] = struct{}{}
	if s.sets[m.Set] == nil {
		// A rule that asks for a set that was never sent closes its endpoints, so this opens nothing.
		s.faults[key] = fault{err: errors.New("members of a set that was not sent")}
		return
	}
	s.retryOne(key)
	if s.outgrown(m.Set) {
		s.markSet(m.Set)
	}
}

// Reshaped notes that the backend now renders the rules which ask for a set in another form.
func (s *State) Reshaped(id intent.SetID) { s.markSet(id) }

func (s *State) mergePolicy(in intent.Policy) {
	if old := s.policies[in.ID]; old != nil {
		s.unlinkPolicy(old)
	}
	p := &policy{Policy: in}
	if !in.ID.Staged() { // those are evaluated, but not here
		p.sets = rules.Sets(in)
	}
	s.policies[in.ID] = p
	for _, id := range p.sets {
		s.setUsers.add(id, in.ID)
		s.newSets[id] = struct{}{}
	}
	key := intent.Key(in.ID)
	s.retryOne(key)
	s.touched[key] = struct{}{}
	s.dirtyPolicies[in.ID] = struct{}{}
}

func (s *State) unlinkPolicy(p *policy) {
	for _, id := range p.sets {
		s.setUsers.remove(id, p.ID)
		s.newSets[id] = struct{}{}
	}
}

func (s *State) mergeEndpoint(in intent.Endpoint) {
	if old := s.endpoints[in.ID]; old != nil {
		s.unlinkEndpoint(old)
	}
	key := intent.Key(in.ID)
	s.retryOne(key)
	s.touched[key] = struct{}{}
	s.refloat(in.ID, s.natsOf(in.ID), in.NATs)
	s.relimit(in.ID, in.QoS)
	s.recode(in.ID, in.QoS)
	s.endpoints[in.ID] = &endpoint{Endpoint: in}
	s.groups.Join(in)
	if in.ID.Kind == intent.Workload && in.Link != "" {
		s.linkUsers.add(in.Link, in.ID)
	}
	s.dirtyEndpoints[in.ID] = struct{}{}
	if in.ID.Kind == intent.Host {
		s.hosts.dirty = true
	}
}

func (s *State) unlinkEndpoint(e *endpoint) {
	s.groups.Leave(e.Endpoint)
	s.linkUsers.remove(e.Link, e.ID)
	s.dirtyLinks[e.Link] = struct{}{}
}

func (s *State) remove(key intent.Key) {
	delete(s.faults, key)
	delete(s.touched, key)
	switch id := key.(type) {
	case intent.SetID:
		if x := s.sets[id]; x != nil {
			delete(s.sets, id)
			s.markSet(id)
			s.release(x)
		}
	case intent.PolicyID:
		if p := s.policies[id]; p != nil {
			s.unlinkPolicy(p)
			delete(s.policies, id)
			s.dirtyPolicies[id] = struct{}{}
		}
	case intent.EndpointID:
		if e := s.endpoints[id]; e != nil {
			s.unlinkEndpoint(e)
			s.hosts.dirty = s.hosts.dirty || id.Kind == intent.Host
			s.refloat(id, e.NATs, nil)
			s.relimit(id, intent.QoS{})
			s.recode(id, intent.QoS{})
			delete(s.endpoints, id)
			s.dirtyEndpoints[id] = struct{}{}
		}
	}
}

// markSet marks dirty what depends on a set.
func (s *State) markSet(id intent.SetID) {
	s.renderAgain(id)
	s.newSets[id] = struct{}{}
	if id == intent.SetVXLANPeers || id == intent.SetIPIPPeers || id == intent.SetWireGuardPeers { // stages look into them
		s.tunnelStages()
		s.hosts.dirty = true
	}
	for user := range s.setUsers[id] {
		s.dirtyPolicies[user] = struct{}{}
	}
}

// useOf returns what of a set should be in the kernel, and whether that differs from the last Changes.
func (s *State) useOf(id intent.SetID) (use Set, changed bool) {
	x := s.sets[id]
	if x == nil {
		return use, false
	}
	_, broken := s.faults[id]
	x.Wanted = !broken && s.needed(id)
	changed = x.stated != x.Set
	x.stated = x.Set
	return x.Set, changed
}

// markDirty marks the intent of a key dirty.
func (s *State) markDirty(key intent.Key) {
	switch id := key.(type) {
	case intent.SetID:
		if s.sets[id] != nil {
			s.markSet(id)
		}
	case intent.PolicyID:
		if s.policies[id] != nil {
			s.dirtyPolicies[id] = struct{}{}
		}
	case intent.EndpointID:
		if s.endpoints[id] != nil {
			s.dirtyEndpoints[id] = struct{}{}
		}
	}
}

// known reports whether an intent with that key exists.
func (s *State) known(key intent.Key) bool {
	switch id := key.(type) {
	case intent.SetID:
		return s.sets[id] != nil
	case intent.PolicyID:
		return s.policies[id] != nil
	case intent.EndpointID:
		return s.endpoints[id] != nil
	}
	return false
}

// wrong returns why an intent is not in force, or not as it should be; nil: it is.
func (s *State) wrong(key intent.Key) error {
	id, ofEndpoint := key.(intent.EndpointID)
	e := s.endpoints[id]
	if key == hostKey && s.faults[key].err == nil {
		return s.brokenStage()
	}
	if err := s.faults[key].err; err != nil || !ofEndpoint || e == nil || id.Kind != intent.Host || e.Closed != "" {
		return err
	}
	return s.needs(e) // a host endpoint has no fault for that: its chains are made, and deny
}

// reason returns why an endpoint carries no traffic although nothing failed.
func (s *State) reason(key intent.Key) string {
	id, ofEndpoint := key.(intent.EndpointID)
	e := s.endpoints[id]
	switch {
	case !ofEndpoint || e == nil:
		return ""
	case e.Closed != "":
		return e.Closed
	case e.ID.Kind == intent.Host && !slices.Contains(slices.Collect(maps.Values(s.hosts.links)), e.ID):
		return "no interface of this host is under it"
	case e.ID.Kind == intent.Host:
		return ""
	case e.Link == "":
		return "has no interface"
	case e.open && s.winner(e.Link) != e:
		return fmt.Sprintf("interface %s is another endpoint's", e.Link)
	}
	return ""
}
