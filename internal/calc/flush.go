package calc

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/calc/policy"
	"github.com/twillnet/twill/internal/intent"
)

// sent is what the batches so far add up to, sets and routes apart.
type sent struct {
	endpoints map[string]intent.Endpoint // by datastore key
	stacks    map[string]*stack          // of those endpoints
	policies  map[intent.PolicyID]*policy.Policy
	users     map[intent.PolicyID]int            // how many stacks and profile lists refer to it
	sets      map[intent.PolicyID][]intent.SetID // that it uses
	host      *intent.HostSettings
	staged    int // stacks in use that staged policies would change
}

func newSent() sent {
	return sent{
		endpoints: map[string]intent.Endpoint{}, stacks: map[string]*stack{}, policies: map[intent.PolicyID]*policy.Policy{},
		users: map[intent.PolicyID]int{}, sets: map[intent.PolicyID][]intent.SetID{},
	}
}

// stack is the tiers, by stage, of all endpoints of a kind to which the same policies apply.
type stack struct {
	key   string           // in Graph.stacks
	tiers [4][]intent.Tier // by policy.Stage; a workload has only the normal ones
	// Staged is tiers as they would be if staged policies were enforced; nil: no different.
	staged *[4][]intent.Tier
	users  int // endpoints
}

// Flush returns the smallest change since the last Flush.
func (g *Graph) Flush() intent.Batch {
	b := intent.Batch{InSync: g.inSync}
	goneEndpoints := g.flushEndpoints(&b)
	goneRoutes := g.routes.Flush(&b)
	gonePolicies := g.flushPolicies(&b)
	goneSets := append(g.sets.Flush(&b), g.serves.Flush(&b)...)
	// In the order of a batch's fields: whoever removes begins at the end.
	b.Removed = slices.Concat(goneSets, gonePolicies, goneEndpoints, goneRoutes)
	g.flushHost(&b)
	return b
}

// flushHost sends the settings of the node if they are others than before.
func (g *Graph) flushHost(b *intent.Batch) {
	if !g.dirtyHost {
		return
	}
	g.dirtyHost = false
	if h := g.host(); g.sent.host == nil || !g.sent.host.Equal(h) {
		g.sent.host = &h
		copied := h
		b.Host = &copied
	}
}

// flushEndpoints makes dirty endpoints anew, and makes policies dirty whose users change.
func (g *Graph) flushEndpoints(b *intent.Batch) (gone []intent.Key) {
	for _, key := range slices.Sorted(maps.Keys(g.dirtyLocals)) {
		old, had := g.sent.endpoints[key]
		oldStack := g.sent.stacks[key]
		if item := g.here.Get(key); item != nil {
			s := g.stack(item)
			e := g.endpoint(item.Value, s)
			g.hold(s)
			g.count(e.Profiles, 1)
			g.sent.endpoints[key], g.sent.stacks[key] = e, s
			if !had || !sameEndpoint(old, e) {
				g.routes.Set(key, routesOf(e))
				b.Endpoints = append(b.Endpoints, e)
			}
		} else if had {
			delete(g.sent.endpoints, key)
			delete(g.sent.stacks, key)
			g.routes.Set(key, nil)
			gone = append(gone, old.ID)
		}
		if had {
			g.count(old.Profiles, -1)
			g.letGo(oldStack)
		}
	}
	clear(g.dirtyLocals)
	return gone
}

// stack returns the tiers of a local endpoint.
func (g *Graph) stack(item hereItem) *stack {
	ids := g.here.Selectors(item)
	host := item.Value.id.Kind == intent.Host
	key := append(make([]byte, 0, 1+4*len(ids)), byte(item.Value.id.Kind))
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	if s := g.stacks[string(key)]; s != nil {
		return s
	}
	ps := make([]*policy.Policy, len(ids))
	for i, id := range ids {
		ps[i] = g.applied[id].Policy
	}
	s := &stack{key: string(key)}
	if policy.Differs(ps) {
		s.staged = &[4][]intent.Tier{}
	}
	for i := range s.tiers {
		stage := policy.Stage(i)
		if !host && stage != policy.Normal {
			continue
		}
		s.tiers[i] = g.order.Tiers(ps, stage, false)
		if s.staged != nil {
			s.staged[i] = g.order.Tiers(ps, stage, true)
		}
	}
	g.stacks[s.key] = s
	return s
}

func (g *Graph) hold(s *stack) {
	if s.users++; s.users > 1 {
		return
	}
	g.countAll(s, 1)
	if s.staged != nil {
		g.sent.staged++
		g.dirtyHost = true
	}
}

// letGo counts one endpoint less. A stack without any is made anew if it is needed again.
func (g *Graph) letGo(s *stack) {
	if s.users--; s.users > 0 {
		return
	}
	g.countAll(s, -1)
	if s.staged != nil {
		g.sent.staged--
		g.dirtyHost = true
	}
	if g.stacks[s.key] == s {
		delete(g.stacks, s.key)
	}
}

func (g *Graph) countAll(s *stack, by int) {
	all := s.tiers[:]
	if s.staged != nil {
		all = slices.Concat(all, s.staged[:])
	}
	for _, tiers := range all {
		for _, t := range tiers {
			g.count(t.Ingress, by)
			g.count(t.Egress, by)
		}
	}
}

// count counts references to policies up or down.
func (g *Graph) count(ids []intent.PolicyID, by int) {
	for _, id := range ids {
		was := g.sent.users[id]
		if was+by == 0 {
			delete(g.sent.users, id)
		} else {
			g.sent.users[id] = was + by
		}
		if was == 0 || was+by == 0 {
			g.dirtyPolicies[id] = true
		}
	}
}

// flushPolicies makes those anew that are used and changed, or used for the first time.
func (g *Graph) flushPolicies(b *intent.Batch) (gone []intent.Key) {
	for _, id := range sortedIDs(maps.Keys(g.dirtyPolicies)) {
		used := g.sent.sets[id]
		old, had := g.sent.policies[id]
		if g.sent.users[id] == 0 {
			if had {
				delete(g.sent.policies, id)
				gone = append(gone, id)
			}
			delete(g.sent.sets, id)
		} else {
			now := g.policy(id)
			g.sent.policies[id] = now
			if had && now.Equal(old) {
				continue
			}
			made, sets := g.convert.Policy(now)
			g.sent.sets[id] = sets
			b.Policies = append(b.Policies, made)
		}
		for _, s := range used { // after the new ones are counted, so that what stays is not gone in between
			counted{g.sets, g.serves}.Release(s)
		}
	}
	clear(g.dirtyPolicies)
	g.convert.Forget()
	return gone
}

func (g *Graph) policy(id intent.PolicyID) *policy.Policy {
	if p := g.policies[id]; p != nil {
		return p.Policy
	}
	if p := g.profiles[id.Name]; p != nil {
		return p
	}
	return policy.OfProfile(id.Name, nil, "")
}

func sortedIDs(ids func(func(intent.PolicyID) bool)) []intent.PolicyID {
	return slices.SortedFunc(ids, func(a, b intent.PolicyID) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// State is the whole present answer, in a canonical order: what all batches add up to.
type State struct {
	IPSets    []intent.IPSet
	Policies  []intent.Policy
	Endpoints []intent.Endpoint
	Routes    []intent.Route
	Host      intent.HostSettings
}

// Intents returns the present answer, as of the last Flush.
func (g *Graph) Intents() State {
	convert := policy.NewConverter(named{})
	s := State{IPSets: append(g.sets.Present(), g.serves.Present()...), Routes: g.routes.Sent(), Host: g.host()}
	for _, id := range sortedIDs(maps.Keys(g.sent.policies)) {
		p, _ := convert.Policy(g.sent.policies[id])
		s.Policies = append(s.Policies, p)
	}
	for _, key := range slices.Sorted(maps.Keys(g.sent.endpoints)) {
		s.Endpoints = append(s.Endpoints, g.sent.endpoints[key])
	}
	return s
}
