package dataplane

import (
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/intent"
)

// Follower acts on the policy that is in force, and on no other: what is merged may come into force never, or much later.
type Follower interface {
	// InForce passes, from the loop's goroutine, what the policy driver has brought into the kernel since the last call:
	// the present state of whatever changed, without routes and peers. Intents that failed alone are in it, too, and closed in the
	// kernel. Lapsed: policy was not in force for a while, because an attempt failed, or another process changed or removed
	// our objects. So any packet may have passed, and every flow must be evaluated. Changes of one set's members may be several, in
	// their order.
	InForce(changed intent.Batch, lapsed bool)
}

// Judging is a [Follower] that looks at established flows, and marks what policy denies.
type Judging interface {
	// WhenJudged has done called, from any goroutine, when all flows that what came into force until now concerns
	// were looked at. It returns at once.
	WhenJudged(done func())
}

// Routed is a [Follower] that knows where addresses are.
type Routed interface {
	// Routes passes, from the loop's goroutine, routes that are wanted from now on, and keys of which some are routes that no longer are. What comes
	// with endpoints comes before Prepare has these.
	Routes(routes []intent.Route, removed []intent.Key)
}

// Preparer is a [Follower] that has something to do before endpoints come into force.
type Preparer interface {
	// Prepare passes, from the loop's goroutine, the endpoints that the policy driver's next turn is to bring into the kernel,
	// and those that it is to remove. It is called again before each attempt, until InForce has them. Endpoints that it
	// returns, with the reason, must not carry traffic yet: they come into force closed, and are tried again like failures of the driver.
	Prepare(endpoints []intent.Endpoint, removed []intent.Key) map[intent.EndpointID]error
}

// backlog is what was merged and is not in force yet: the present state of each key, so that its size is bounded while
// nothing comes into force. Make it with newBacklog.
type backlog struct {
	some      bool
	sets      map[intent.SetID]intent.IPSet
	members   map[intent.SetID]*deltas // of sets that changed after they were sent
	policies  map[intent.PolicyID]intent.Policy
	endpoints map[intent.EndpointID]intent.Endpoint
	removed   map[intent.Key]bool
	host      *intent.HostSettings
	inSync    bool
}

// deltas are the changes of members of one set, in their order. Zero is ready to use.
type deltas struct {
	list []intent.MemberDelta
	size int // of list: changes and members in them
	most int // size from which on they become one change, so that members that come and go do not accumulate
}

func (d *deltas) add(m intent.MemberDelta) {
	d.list = append(d.list, m)
	if d.size += 1 + len(m.Added) + len(m.Removed); d.most > 0 && d.size > d.most {
		d.merge()
	}
	if len(d.list) == 1 {
		d.most = max(4*d.size, 256)
	}
}

// merge makes one change of all.
func (d *deltas) merge() {
	is := make(map[intent.Member]bool, d.size/2)
	for _, m := range d.list {
		for _, x := range m.Removed {
			is[x] = false
		}
		for _, x := range m.Added {
			is[x] = true
		}
	}
	one := intent.MemberDelta{Set: d.list[0].Set}
	for x, in := range is {
		if in {
			one.Added = append(one.Added, x)
		} else {
			one.Removed = append(one.Removed, x)
		}
	}
	d.list, d.size = []intent.MemberDelta{one}, 1+len(is)
}

func newBacklog() *backlog {
	return &backlog{
		sets: map[intent.SetID]intent.IPSet{}, members: map[intent.SetID]*deltas{},
		policies: map[intent.PolicyID]intent.Policy{}, endpoints: map[intent.EndpointID]intent.Endpoint{}, removed: map[intent.Key]bool{},
	}
}

func (l *backlog) add(b intent.Batch) {
	l.some, l.inSync = true, l.inSync || b.InSync
	for _, s := range b.IPSets {
		l.sets[s.ID] = s
		delete(l.members, s.ID)
		delete(l.removed, s.ID)
	}
	for _, m := range b.Members {
		if l.members[m.Set] == nil {
			l.members[m.Set] = &deltas{}
		}
		l.members[m.Set].add(m)
	}
	for _, p := range b.Policies {
		l.policies[p.ID] = p
		delete(l.removed, p.ID)
	}
	for _, e := range b.Endpoints {
		l.endpoints[e.ID] = e
		delete(l.removed, e.ID)
	}
	if b.Host != nil {
		l.host = b.Host
	}
	for _, k := range b.Removed {
		l.remove(k)
	}
}

func (l *backlog) remove(k intent.Key) {
	switch id := k.(type) {
	case intent.SetID:
		delete(l.sets, id)
		delete(l.members, id)
	case intent.PolicyID:
		delete(l.policies, id)
	case intent.EndpointID:
		delete(l.endpoints, id)
	default:
		return
	}
	l.removed[k] = true
}

// shut is an endpoint for which a [Preparer] was not ready.
type shut struct {
	intent.Endpoint // as desired
	err             error
}

// closed returns the endpoint as it is in the kernel instead.
func (s shut) closed() intent.Endpoint {
	e := s.Endpoint
	e.Closed = s.err.Error()
	return e
}

// prepare calls the Preparers with the endpoints of the next turn. Those that they are not ready for come into force closed; those that were closed
// for that are tried again.
func (l *Loop) prepare() {
	for id, s := range l.shut {
		if l.backlog.removed[id] {
			delete(l.shut, id)
		} else if _, newer := l.backlog.endpoints[id]; !newer {
			l.backlog.endpoints[id], l.backlog.some = s.Endpoint, true
		}
	}
	if len(l.backlog.endpoints) == 0 {
		return
	}
	failed := map[intent.EndpointID]error{}
	endpoints, removed := l.backlog.coming()
	for _, f := range l.cfg.Followers {
		if p, ok := f.(Preparer); ok {
			maps.Copy(failed, p.Prepare(endpoints, removed))
		}
	}
	var other []intent.Endpoint // that differ from what the driver has
	for _, e := range endpoints {
		if err := failed[e.ID]; err != nil {
			l.shut[e.ID] = shut{e, err}
			other = append(other, l.shut[e.ID].closed())
		} else if _, was := l.shut[e.ID]; was {
			delete(l.shut, e.ID)
			other = append(other, e)
		}
	}
	if len(other) > 0 {
		l.drivers[0].Merge(intent.Batch{Endpoints: other})
	}
}

// shutOutcomes returns the outcomes of a policy driver, with an error for each endpoint that is closed because a Preparer was not ready.
func (l *Loop) shutOutcomes(of []intent.Outcome) []intent.Outcome {
	if len(l.shut) == 0 {
		return of
	}
	of = slices.DeleteFunc(of, func(o intent.Outcome) bool {
		id, ofEndpoint := o.Key.(intent.EndpointID)
		_, is := l.shut[id]
		return ofEndpoint && is
	})
	for id, s := range l.shut {
		of = append(of, intent.Outcome{Key: id, Err: s.err})
	}
	return of
}

// coming returns the endpoints that are not in force yet, and the keys that are to be removed.
func (l *backlog) coming() ([]intent.Endpoint, []intent.Key) {
	return slices.Collect(maps.Values(l.endpoints)), slices.Collect(maps.Keys(l.removed))
}

// take empties the backlog into one batch.
func (l *backlog) take() intent.Batch {
	b := intent.Batch{
		IPSets: slices.Collect(maps.Values(l.sets)), Policies: slices.Collect(maps.Values(l.policies)),
		Endpoints: slices.Collect(maps.Values(l.endpoints)), Host: l.host, InSync: l.inSync,
	}
	for _, d := range l.members {
		b.Members = append(b.Members, d.list...)
	}
	for _, kind := range []intent.KeyKind{intent.KeyIPSet, intent.KeyPolicy, intent.KeyEndpoint} { // in the order of any batch
		for k := range l.removed {
			if intent.KindOf(k) == kind {
				b.Removed = append(b.Removed, k)
			}
		}
	}
	*l = *newBacklog()
	return b
}
