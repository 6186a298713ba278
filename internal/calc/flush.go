package calc

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/calc/policy"
	"github.com/twillnet/twill/internal/calc/route"
	"github.com/twillnet/twill/internal/intent"
)

// sent is the sum of all batches so far, without sets and routes.
type sent struct {
	endpoints map[string]intent.Endpoint // by datastore key
	moves     map[string]intent.Move     // of those of them that come or go
	groups    map[string]*group          // of those endpoints
	policies  map[intent.PolicyID]*policy.Policy
	users     map[intent.PolicyID]int            // the number of stacks and profile lists that refer to it
	sets      map[intent.PolicyID][]intent.SetID // that it uses
	host      *intent.HostSettings
	staged    int // stacks in use that staged policies would change
	marked    int // endpoints with a DSCP
}

func newSent() sent {
	return sent{
		endpoints: map[string]intent.Endpoint{}, moves: map[string]intent.Move{}, groups: map[string]*group{}, policies: map[intent.PolicyID]*policy.Policy{},
		users: map[intent.PolicyID]int{}, sets: map[intent.PolicyID][]intent.SetID{},
	}
}

// stack is the tiers, by stage, that endpoints with the same policies share.
type stack struct {
	key      string // in Graph.stacks
	enforced intent.Stages
	staged   *intent.Stages // as they would be if staged policies were enforced; nil: no different
	users    int            // groups
}

// group is all endpoints of a stack that have the same profiles.
type group struct {
	*intent.Group
	stack *stack
	users int // endpoints
}

// Flush returns the smallest change since the last Flush.
func (g *Graph) Flush() intent.Batch {
	b := intent.Batch{InSync: g.inSync}
	g.settleFloating()
	goneEndpoints := g.flushEndpoints(&b)
	goneSet, gonePeers := g.reach.Flush(&b)
	goneRoutes := g.routes.Flush(&b)
	gonePolicies := g.flushPolicies(&b)
	goneSets := slices.Concat(g.sets.Flush(&b), g.hostSets.Flush(&b), g.services.Flush(&b), g.flushProxied(&b, goneEndpoints))
	// In the order of a batch's fields; removals are applied in reverse.
	b.Removed = slices.Concat(goneSet, goneSets, gonePolicies, goneEndpoints, goneRoutes, gonePeers)
	g.flushHost(&b)
	return b
}

// flushHost sends the settings of the node if they changed.
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

// flushEndpoints computes dirty endpoints, and marks policies whose users change.
func (g *Graph) flushEndpoints(b *intent.Batch) (gone []intent.Key) {
	for _, key := range slices.Sorted(maps.Keys(g.dirtyLocals)) {
		old, had := g.sent.endpoints[key]
		oldGroup := g.sent.groups[key]
		if item := g.locals.Get(key); item != nil {
			now := g.group(item)
			e := g.endpoint(item.Value, now)
			g.hold(now)
			g.sent.endpoints[key], g.sent.groups[key] = e, now
			g.mark(old, e)
			same := had && sameEndpoint(old, e)
			if m, owner := g.moveOf(item), item.Value.owner(); !same || m != g.sent.moves[key] || !owner.Equal(g.routes.Owner(key)) {
				g.routes.Set(key, owner, routesOf(e, m))
				if g.sent.moves[key] = m; m == intent.Stays {
					delete(g.sent.moves, key)
				}
			}
			if !same {
				b.Endpoints = append(b.Endpoints, e)
			}
		} else if had {
			delete(g.sent.endpoints, key)
			delete(g.sent.moves, key)
			g.mark(old, intent.Endpoint{})
			delete(g.sent.groups, key)
			g.routes.Set(key, route.Owner{}, nil)
			gone = append(gone, old.ID)
		}
		if had {
			g.releaseGroup(oldGroup)
		}
	}
	clear(g.dirtyLocals)
	return gone
}

// mark counts endpoints with a DSCP: with the first, the host must know what is inside the cluster.
func (g *Graph) mark(was, is intent.Endpoint) {
	before := g.sent.marked
	if was.QoS.DSCP != 0 {
		g.sent.marked--
	}
	if is.QoS.DSCP != 0 {
		g.sent.marked++
	}
	g.dirtyHost = g.dirtyHost || (before == 0) != (g.sent.marked == 0)
}

// stack returns the tiers of a local endpoint.
func (g *Graph) stack(item localItem) *stack {
	ids := g.policiesOf(item)
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
	s := &stack{key: string(key), enforced: g.stages(ps, host, false)}
	if policy.Differs(ps) {
		staged := g.stages(ps, host, true)
		s.staged = &staged
	}
	g.stacks[s.key] = s
	return s
}

// stages puts policies in order, as they are enforced, or as they would be if staged ones were.
func (g *Graph) stages(ps []*policy.Policy, host, staged bool) intent.Stages {
	s := intent.Stages{Normal: g.order.Tiers(ps, policy.Normal, staged)}
	if host {
		s.Untracked, s.PreDNAT = g.order.Tiers(ps, policy.Untracked, staged), g.order.Tiers(ps, policy.PreDNAT, staged)
		s.Forward = g.order.Tiers(ps, policy.Forward, staged)
	}
	return s.Summed()
}

// group returns what a local endpoint is asked by: the one value of all that are asked by the same.
func (g *Graph) group(item localItem) *group {
	s, l := g.stack(item), item.Value
	var profiles []intent.PolicyID
	if n := len(l.profiles); n > 0 && !l.shut() {
		profiles = make([]intent.PolicyID, n)
		for i, name := range l.profiles {
			profiles[i] = profileID(name)
		}
	}
	made := intent.NewGroup(s.enforced, s.staged, profiles)
	is := g.groups[made.ID]
	if is == nil {
		return &group{Group: made, stack: s}
	}
	if is.stack != s { // the same policies, put in order anew
		g.holdStack(s)
		g.releaseStack(is.stack)
		is.stack = s
	}
	return is
}

func (g *Graph) hold(x *group) {
	if x.users++; x.users > 1 {
		return
	}
	g.groups[x.ID] = x
	g.count(x.Profiles, 1)
	g.holdStack(x.stack)
}

func (g *Graph) holdStack(s *stack) {
	if s.users++; s.users > 1 {
		return
	}
	g.countAll(s, 1)
	if s.staged != nil {
		g.sent.staged++
		g.dirtyHost = true
	}
}

// releaseGroup drops one endpoint's reference. An unused group or stack is deleted.
func (g *Graph) releaseGroup(x *group) {
	if x.users--; x.users > 0 {
		return
	}
	delete(g.groups, x.ID)
	g.count(x.Profiles, -1)
	g.releaseStack(x.stack)
}

func (g *Graph) releaseStack(s *stack) {
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
	for _, stages := range []*intent.Stages{&s.enforced, s.staged} {
		if stages == nil {
			continue
		}
		for _, tiers := range stages.Lists() {
			for _, t := range tiers {
				g.count(t.Ingress, by)
				g.count(t.Egress, by)
			}
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

// flushPolicies computes the policies that are in use and changed, or newly in use.
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
		for _, s := range used { // after the new ones are counted, so that a set in both keeps its users
			g.counted().Release(s)
		}
	}
	clear(g.dirtyPolicies)
	g.convert.Reset()
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

// State is the full set of intents, in a canonical order: the sum of all batches.
type State struct {
	IPSets    []intent.IPSet
	Policies  []intent.Policy
	Endpoints []intent.Endpoint
	Routes    []intent.Route
	Peers     []intent.TunnelPeer
	Host      intent.HostSettings
}

// Intents returns the full set of intents, as of the last Flush.
func (g *Graph) Intents() State {
	convert := policy.NewConverter(named{})
	set, peers := g.reach.Present()
	s := State{IPSets: slices.Concat(g.sets.Present(), g.hostSets.Present(), g.services.Present(), g.proxies.sent(), set), Routes: g.routes.Sent(), Peers: peers, Host: g.host()}
	for _, id := range sortedIDs(maps.Keys(g.sent.policies)) {
		p, _ := convert.Policy(g.sent.policies[id])
		s.Policies = append(s.Policies, p)
	}
	for _, key := range slices.Sorted(maps.Keys(g.sent.endpoints)) {
		s.Endpoints = append(s.Endpoints, g.sent.endpoints[key])
	}
	return s
}
