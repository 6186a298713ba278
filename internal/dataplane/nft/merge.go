package nft

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// policy is a policy as wanted, and the sets that it asks for.
type policy struct {
	intent.Policy
	sets []intent.SetID
}

// endpoint is an endpoint as wanted, and the policies that it asks for.
type endpoint struct {
	intent.Endpoint
	policies []intent.PolicyID
	open     bool // it may carry traffic: its chains are wanted
}

func policyKey(id intent.PolicyID) intent.Key {
	return intent.Key{Kind: intent.KeyPolicy, ID: id.String()}
}

func endpointKey(id intent.EndpointID) intent.Key {
	return intent.Key{Kind: intent.KeyEndpoint, ID: id.String()}
}

var hostKey = intent.Key{Kind: intent.KeyHost}

// Merge takes a change in. It touches no kernel. Routes and peers are other drivers'.
func (d *Driver) Merge(b intent.Batch) {
	for _, s := range b.IPSets {
		d.mergeSet(s)
	}
	for _, m := range b.Members {
		d.mergeMembers(m)
	}
	for _, p := range b.Policies {
		d.mergePolicy(p)
	}
	for _, e := range b.Endpoints {
		d.mergeEndpoint(e)
	}
	if b.Host != nil {
		d.configure(*b.Host)
		d.touched[hostKey] = struct{}{}
	}
	for i := len(b.Removed) - 1; i >= 0; i-- {
		d.remove(b.Removed[i])
	}
	if b.InSync && !d.inSync {
		d.inSync = true
		d.unpin()
	}
}

func (d *Driver) mergeSet(in intent.IPSet) {
	s := d.sets[in.ID]
	delete(d.faults, intent.Key{Kind: intent.KeyIPSet, ID: string(in.ID)})
	if s != nil && s.kind != in.Kind {
		d.remove(s.key())
		s = nil
	}
	if s == nil {
		s = d.newIPSet(in)
		d.sets[in.ID] = s
	}
	d.change(s, func() {
		s.clear()
		for _, m := range in.Members {
			s.add(m)
		}
	})
	d.touched[s.key()] = struct{}{}
	d.noteCollision(s)
	d.markSet(s)
}

func (d *Driver) mergeMembers(m intent.MemberDelta) {
	s := d.sets[m.Set]
	if s == nil {
		// No rule can ask for a set that was never sent without being closed, so this opens nothing.
		key := intent.Key{Kind: intent.KeyIPSet, ID: string(m.Set)}
		d.faults[key] = fault{err: errors.New("members of a set that was not sent")}
		d.touched[key] = struct{}{}
		return
	}
	d.another(s.key())
	before := [2]bool{s.covers[0].n > 0, s.covers[1].n > 0}
	d.change(s, func() {
		for _, x := range m.Removed {
			s.remove(x)
		}
		for _, x := range m.Added {
			s.add(x)
		}
	})
	d.touched[s.key()] = struct{}{}
	if before != [2]bool{s.covers[0].n > 0, s.covers[1].n > 0} {
		d.markSet(s) // rules change with the kinds of kernel sets
		return
	}
	d.settleSet(s)
	if s.outgrown() {
		d.markSet(s)
	}
}

func (d *Driver) mergePolicy(in intent.Policy) {
	if old := d.policies[in.ID]; old != nil {
		d.unlinkPolicy(old)
	}
	p := &policy{Policy: in}
	if !in.ID.Staged() { // those are judged, but not here
		p.sets = rules.Sets(in)
	}
	d.policies[in.ID] = p
	for _, id := range p.sets {
		d.setUsers.add(id, in.ID)
		d.settle(id)
	}
	d.another(policyKey(in.ID))
	d.touched[policyKey(in.ID)] = struct{}{}
	d.dirtyPolicies[in.ID] = struct{}{}
}

func (d *Driver) unlinkPolicy(p *policy) {
	for _, id := range p.sets {
		d.setUsers.remove(id, p.ID)
		d.settle(id)
	}
}

func (d *Driver) settle(id intent.SetID) {
	if s := d.sets[id]; s != nil {
		d.settleSet(s)
	}
}

func (d *Driver) mergeEndpoint(in intent.Endpoint) {
	if old := d.endpoints[in.ID]; old != nil {
		d.unlinkEndpoint(old)
	}
	d.another(endpointKey(in.ID))
	d.touched[endpointKey(in.ID)] = struct{}{}
	e := &endpoint{Endpoint: in, policies: policiesOf(in)}
	d.endpoints[in.ID] = e
	for _, id := range e.policies {
		d.policyUser.add(id, in.ID)
	}
	if in.ID.Kind == intent.Workload && in.Link != "" {
		d.linkUsers.add(in.Link, in.ID)
	}
	d.dirtyEndpoints[in.ID] = struct{}{}
	d.hosts.dirty = d.hosts.dirty || in.ID.Kind == intent.Host
}

func (d *Driver) unlinkEndpoint(e *endpoint) {
	for _, id := range e.policies {
		d.policyUser.remove(id, e.ID)
	}
	d.linkUsers.remove(e.Link, e.ID)
	d.dirtyLinks[e.Link] = struct{}{}
}

// policiesOf are all policies and profiles that an endpoint's chains call.
func policiesOf(e intent.Endpoint) []intent.PolicyID {
	ids := append([]intent.PolicyID(nil), e.Profiles...)
	for _, tiers := range [][]intent.Tier{e.Untracked, e.PreDNAT, e.Normal, e.Forward} {
		for _, t := range tiers {
			ids = append(append(ids, t.Ingress...), t.Egress...)
		}
	}
	return ids
}

func (d *Driver) remove(key intent.Key) {
	delete(d.faults, key)
	delete(d.touched, key)
	switch key.Kind {
	case intent.KeyIPSet:
		id := intent.SetID(key.ID)
		if s := d.sets[id]; s != nil {
			d.change(s, s.clear)
			s.release()
			delete(d.sets, id)
			d.markSet(s)
			d.freeNames(s)
		}
	case intent.KeyPolicy:
		if p := d.policyOf(key); p != nil {
			d.unlinkPolicy(p)
			delete(d.policies, p.ID)
			d.dirtyPolicies[p.ID] = struct{}{}
		}
	case intent.KeyEndpoint:
		if e := d.endpointOf(key); e != nil {
			d.unlinkEndpoint(e)
			d.hosts.dirty = d.hosts.dirty || e.ID.Kind == intent.Host
			delete(d.endpoints, e.ID)
			d.dirtyEndpoints[e.ID] = struct{}{}
		}
	}
}

// change changes the members of a set.
func (d *Driver) change(s *ipset, f func()) {
	f()
	for i := range families {
		if s.count(i) > 0 {
			d.use(i)
		}
	}
}

// use says that a family is used from now on: then all sets, and all that ask for them, change.
func (d *Driver) use(slot int) {
	if d.used[slot] {
		return
	}
	d.used[slot] = true
	for _, s := range d.sets {
		d.markSet(s)
	}
}

// markSet makes everything that depends on a set's kinds of kernel sets, or on its existence, be looked at again.
func (d *Driver) markSet(s *ipset) {
	d.settleSet(s)
	for id := range d.setUsers[s.id] {
		d.dirtyPolicies[id] = struct{}{}
	}
}

// settleSet says which kernel sets a set should have.
func (d *Driver) settleSet(s *ipset) {
	_, broken := d.faults[s.key()]
	wanted := d.sets[s.id] == s && !broken && d.needed(s.id)
	for i := range families {
		d.want(s.exact[i], wanted && d.used[i])
		if s.ranges[i] != nil {
			d.want(s.ranges[i], wanted && s.covers[i].n > 0)
		}
	}
}

// markDirty makes the intent behind a key be looked at again.
func (d *Driver) markDirty(key intent.Key) {
	switch key.Kind {
	case intent.KeyIPSet:
		if s := d.sets[intent.SetID(key.ID)]; s != nil {
			d.markSet(s)
		}
	case intent.KeyPolicy:
		if p := d.policyOf(key); p != nil {
			d.dirtyPolicies[p.ID] = struct{}{}
		}
	case intent.KeyEndpoint:
		if e := d.endpointOf(key); e != nil {
			d.dirtyEndpoints[e.ID] = struct{}{}
		}
	}
}

// policyOf is the policy that a key names; nil: there is none.
func (d *Driver) policyOf(key intent.Key) *policy {
	id, _ := intent.ParsePolicyID(key.ID)
	return d.policies[id]
}

// endpointOf is the endpoint that a key names; nil: there is none.
func (d *Driver) endpointOf(key intent.Key) *endpoint {
	id, _ := intent.ParseEndpointID(key.ID)
	return d.endpoints[id]
}

// wanted reports whether a key names an intent that is there.
func (d *Driver) wanted(key intent.Key) bool {
	switch key.Kind {
	case intent.KeyIPSet:
		return d.sets[intent.SetID(key.ID)] != nil
	case intent.KeyPolicy:
		return d.policyOf(key) != nil
	case intent.KeyEndpoint:
		return d.endpointOf(key) != nil
	}
	return false
}

// reason says why an endpoint carries no traffic although nothing failed.
func (d *Driver) reason(key intent.Key) string {
	e := d.endpointOf(key)
	switch {
	case key.Kind != intent.KeyEndpoint || e == nil:
		return ""
	case e.Closed != "":
		return e.Closed
	case e.ID.Kind == intent.Host && !slices.Contains(slices.Collect(maps.Values(d.hosts.links)), e.ID):
		return "no interface of this host is under it"
	case e.ID.Kind == intent.Host:
		return ""
	case e.Link == "":
		return "has no interface"
	case e.open && d.winner(e.Link) != e:
		return fmt.Sprintf("interface %s is another endpoint's", e.Link)
	}
	return ""
}

// validSpoofable drops prefixes that are none.
func validSpoofable(ps []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range ps {
		if p.IsValid() {
			out = append(out, p.Masked())
		}
	}
	return out
}
