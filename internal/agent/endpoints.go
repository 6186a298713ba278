package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/status"
)

// tracker keeps the state of each local endpoint, from calc's batches and
// the dataplane's outcomes. An endpoint is up when all of it is in
// force, its routes included.
type tracker struct {
	endpoints map[intent.EndpointID]*tracked
	links     map[string]intent.EndpointID
	routes    map[intent.RouteID][]string // the links of each: of several endpoints that claim its destination
	outcomes  map[intent.Key]intent.Outcome
	others    map[intent.Key]bool                // policies and sets, to count them
	reach     map[string]map[intent.RouteID]bool // by link
	changed   map[intent.EndpointID]bool

	sent        [][]intent.Key      // by batch that the dataplane has not merged: its endpoints, its routes, and what it removes
	queued      map[intent.Key]int  // in how many of these an intent is: outcomes until then are of its former version
	unconfirmed map[intent.Key]bool // endpoints and routes without an outcome of their last version yet
	refused     map[string]string   // policies that are not in force, with the reason, by the keys of their resources
	refusedNews bool                // refused has changed since failedPolicies
}

type tracked struct {
	label, link, closed string
	group               intent.GroupID
	state               status.Endpoint
	since               time.Time
}

func newTracker() *tracker {
	return &tracker{
		endpoints: map[intent.EndpointID]*tracked{}, links: map[string]intent.EndpointID{},
		routes: map[intent.RouteID][]string{}, outcomes: map[intent.Key]intent.Outcome{}, others: map[intent.Key]bool{},
		reach: map[string]map[intent.RouteID]bool{}, changed: map[intent.EndpointID]bool{}, queued: map[intent.Key]int{}, unconfirmed: map[intent.Key]bool{},
		refused: map[string]string{},
	}
}

// onBatch takes over a batch that is about to be sent to the dataplane; it returns deleted endpoints.
func (t *tracker) onBatch(b intent.Batch) (gone []intent.EndpointID) {
	t.send(b)
	for _, k := range b.Removed {
		delete(t.unconfirmed, k)
		delete(t.outcomes, k)
		delete(t.others, k)
		switch id := k.(type) {
		case intent.PolicyID:
			t.refuse(id, nil)
		case intent.EndpointID:
			if t.endpoints[id] != nil {
				t.drop(id)
				gone = append(gone, id)
			}
		case intent.RouteID:
			t.unroute(id)
		}
	}
	for _, s := range b.IPSets {
		t.others[s.ID] = true
	}
	for _, p := range b.Policies {
		t.others[p.ID] = true
	}
	for _, e := range b.Endpoints {
		old := t.endpoints[e.ID]
		if old == nil {
			old = &tracked{since: time.Now(), state: status.Endpoint{Status: status.Down, Reason: notYet}}
			t.endpoints[e.ID] = old
		} else if t.links[old.link] == e.ID {
			delete(t.links, old.link)
		}
		old.label, old.link, old.closed, old.group = e.Label, e.Link, e.Closed, e.Policies().ID
		t.unconfirmed[e.ID] = true
		t.links[e.Link] = e.ID
		t.changed[e.ID] = true
	}
	for _, r := range b.Routes {
		dst := r.ID()
		t.unroute(dst)
		t.routes[dst] = r.Links()
		t.unconfirmed[dst] = true
		for _, link := range t.routes[dst] {
			if t.reach[link] == nil {
				t.reach[link] = map[intent.RouteID]bool{}
			}
			t.reach[link][dst] = true
			t.touch(link)
		}
	}
	return gone
}

// send notes which intents the batch has. The dataplane reports an outcome of each endpoint and route after it merged the batch; of what
// is removed it reports nothing.
func (t *tracker) send(b intent.Batch) {
	keys := slices.Clone(b.Removed)
	for _, e := range b.Endpoints {
		keys = append(keys, e.ID)
	}
	for _, r := range b.Routes {
		keys = append(keys, r.ID())
	}
	for _, k := range keys {
		t.queued[k]++
	}
	t.sent = append(t.sent, keys)
}

// merged notes that the dataplane has merged the next batch.
func (t *tracker) merged() {
	if len(t.sent) == 0 {
		return
	}
	for _, k := range t.sent[0] {
		if t.queued[k]--; t.queued[k] == 0 {
			delete(t.queued, k)
		}
	}
	t.sent = t.sent[1:]
}

const notYet = "not yet in force"

func (t *tracker) drop(id intent.EndpointID) {
	e := t.endpoints[id]
	if t.links[e.link] == id {
		delete(t.links, e.link)
	}
	delete(t.endpoints, id)
	delete(t.changed, id)
}

func (t *tracker) unroute(dst intent.RouteID) {
	links := t.routes[dst]
	delete(t.routes, dst)
	for _, link := range links {
		if delete(t.reach[link], dst); len(t.reach[link]) == 0 {
			delete(t.reach, link)
		}
		t.touch(link)
	}
}

func (t *tracker) touch(link string) {
	if id, ok := t.links[link]; ok {
		t.changed[id] = true
	}
}

// update takes over outcomes, and returns those that changed.
func (t *tracker) update(os []intent.Outcome) (changed []intent.Outcome) {
	for _, o := range os {
		if t.queued[o.Key] > 0 {
			continue
		}
		delete(t.unconfirmed, o.Key)
		if old, known := t.outcomes[o.Key]; !known || stateOf(old) != stateOf(o) {
			changed = append(changed, o)
		}
		t.outcomes[o.Key] = o
		switch id := o.Key.(type) {
		case intent.EndpointID:
			if t.endpoints[id] != nil {
				t.changed[id] = true
			}
		case intent.RouteID:
			for _, link := range t.routes[id] {
				t.touch(link)
			}
		case intent.PolicyID:
			t.refuse(id, o.Err)
		}
	}
	return changed
}

// changedStates returns the states that have changed since the last call.
func (t *tracker) changedStates(now time.Time) map[intent.EndpointID]status.Endpoint {
	out := map[intent.EndpointID]status.Endpoint{}
	for id := range t.changed {
		e := t.endpoints[id]
		if state := t.state(id, e); state != e.state {
			if state.Status != e.state.Status {
				e.since = now
			}
			e.state = state
			out[id] = state
		}
	}
	clear(t.changed)
	return out
}

func (t *tracker) state(id intent.EndpointID, e *tracked) status.Endpoint {
	if e.closed != "" {
		return status.Endpoint{Status: status.Error, Reason: e.closed}
	}
	fate, known := t.outcomes[id]
	if !known {
		return status.Endpoint{Status: status.Down, Reason: notYet}
	}
	worst := stateOf(fate)
	for dst := range t.reach[e.link] {
		route, known := t.outcomes[dst]
		if !known {
			route.Reason = "route " + dst.String() + " is " + notYet
		}
		if s := stateOf(route); rank[s.Status] > rank[worst.Status] || worst.Status == status.Up && s.Note != "" {
			worst = s
		}
	}
	worst.Chains = fate.Chains
	return worst
}

// inForce returns an endpoint's state; false: an outcome of its last version, or of its routes, is still missing.
func (t *tracker) inForce(id intent.EndpointID) (status.Endpoint, bool) {
	e := t.endpoints[id]
	if e == nil {
		return status.Endpoint{Status: status.Down, Reason: notYet}, false
	}
	answered := !t.unconfirmed[id]
	for dst := range t.reach[e.link] {
		answered = answered && !t.unconfirmed[dst]
	}
	return t.state(id, e), answered
}

var rank = map[string]int{status.Up: 0, status.Down: 1, status.Error: 2}

func stateOf(o intent.Outcome) status.Endpoint {
	switch {
	case o.Err != nil:
		return status.Endpoint{Status: status.Error, Reason: o.Err.Error(), Chains: o.Chains}
	case o.Reason != "":
		return status.Endpoint{Status: status.Down, Reason: o.Reason, Chains: o.Chains}
	}
	return status.Endpoint{Status: status.Up, Chains: o.Chains, Note: o.Note}
}

// failed returns what is not in force and belongs to no endpoint: a policy, the route of a block.
func (t *tracker) failed() []string {
	var out []string
	for k, o := range t.outcomes {
		if o.Err == nil || intent.KindOf(k) == intent.KeyEndpoint {
			continue
		}
		if id, ofRoute := k.(intent.RouteID); ofRoute {
			if slices.ContainsFunc(t.routes[id], func(link string) bool { _, ofEndpoint := t.links[link]; return ofEndpoint }) {
				continue
			}
		}
		out = append(out, k.String()+": "+o.Err.Error())
	}
	return out
}

// refuse notes why a policy is not in force; nil: it is, or it has gone.
func (t *tracker) refuse(id intent.PolicyID, why error) {
	key, err := (api.Ref{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}).Key()
	if err != nil {
		return
	}
	was, is := t.refused[key]
	delete(t.refused, key)
	if why != nil {
		t.refused[key] = why.Error()
	}
	now, still := t.refused[key]
	t.refusedNews = t.refusedNews || is != still || was != now
}

// failedPolicies returns why policies are not in force, by their resources' keys, and whether that has changed since the last call.
func (t *tracker) failedPolicies() (failed map[string]string, changed bool) {
	if !t.refusedNews {
		return nil, false
	}
	t.refusedNews = false
	return maps.Clone(t.refused), true
}

// counts returns the numbers of objects.
func (t *tracker) counts() Counts {
	c := Counts{Endpoints: map[string]int{status.Up: 0, status.Down: 0, status.Error: 0}, Routes: len(t.routes)}
	byChains := map[intent.GroupID]bool{}
	for _, e := range t.endpoints {
		c.Endpoints[e.state.Status]++
		if e.state.Chains != "" {
			byChains[e.group] = true
		}
	}
	c.ByChains = len(byChains)
	for k := range t.others {
		if intent.KindOf(k) == intent.KeyPolicy {
			c.Policies++
		} else {
			c.Sets++
		}
	}
	return c
}
