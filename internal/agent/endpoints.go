package agent

import (
	"slices"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/status"
)

// tracker knows how each local endpoint is: from what calc asked for, and what
// the dataplane says became of it. An endpoint is up when all of it is in
// force, its routes included.
type tracker struct {
	endpoints map[intent.EndpointID]*tracked
	links     map[string]intent.EndpointID
	routes    map[intent.RouteID]string // the link of each
	fates     map[intent.Key]intent.Outcome
	others    map[intent.Key]bool                // policies and sets, to count them
	reach     map[string]map[intent.RouteID]bool // by link
	changed   map[intent.EndpointID]bool

	sent   [][]intent.Key      // by batch that the dataplane has not taken over: its endpoints, its routes, and what it removes
	coming map[intent.Key]int  // in how many of these an intent is: what is said of it meanwhile is of what was asked for before
	asked  map[intent.Key]bool // endpoints and routes of which the dataplane has not said what became of what was asked for last
}

type tracked struct {
	label, link, closed string
	state               status.Endpoint
	since               time.Time
}

func newTracker() *tracker {
	return &tracker{
		endpoints: map[intent.EndpointID]*tracked{}, links: map[string]intent.EndpointID{},
		routes: map[intent.RouteID]string{}, fates: map[intent.Key]intent.Outcome{}, others: map[intent.Key]bool{},
		reach: map[string]map[intent.RouteID]bool{}, changed: map[intent.EndpointID]bool{}, coming: map[intent.Key]int{}, asked: map[intent.Key]bool{},
	}
}

// wanted takes over what calc asks for, which is about to be sent to the dataplane; it returns endpoints that are no more.
func (t *tracker) wanted(b intent.Batch) (gone []intent.EndpointID) {
	t.send(b)
	for _, k := range b.Removed {
		delete(t.asked, k)
		delete(t.fates, k)
		delete(t.others, k)
		switch id := k.(type) {
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
		old.label, old.link, old.closed = e.Label, e.Link, e.Closed
		t.asked[e.ID] = true
		t.links[e.Link] = e.ID
		t.changed[e.ID] = true
	}
	for _, r := range b.Routes {
		dst := r.ID()
		t.unroute(dst)
		t.routes[dst] = r.Link
		t.asked[dst] = true
		if t.reach[r.Link] == nil {
			t.reach[r.Link] = map[intent.RouteID]bool{}
		}
		t.reach[r.Link][dst] = true
		t.touch(r.Link)
	}
	return gone
}

// send notes of which intents the dataplane is about to hear. It says what became of each endpoint and route after it has; of what
// is removed it says no more.
func (t *tracker) send(b intent.Batch) {
	keys := slices.Clone(b.Removed)
	for _, e := range b.Endpoints {
		keys = append(keys, e.ID)
	}
	for _, r := range b.Routes {
		keys = append(keys, r.ID())
	}
	for _, k := range keys {
		t.coming[k]++
	}
	t.sent = append(t.sent, keys)
}

// merged takes note that the dataplane has taken over the next batch.
func (t *tracker) merged() {
	if len(t.sent) == 0 {
		return
	}
	for _, k := range t.sent[0] {
		if t.coming[k]--; t.coming[k] == 0 {
			delete(t.coming, k)
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
	link, ok := t.routes[dst]
	if !ok {
		return
	}
	delete(t.routes, dst)
	if delete(t.reach[link], dst); len(t.reach[link]) == 0 {
		delete(t.reach, link)
	}
	t.touch(link)
}

func (t *tracker) touch(link string) {
	if id, ok := t.links[link]; ok {
		t.changed[id] = true
	}
}

// became takes over what the dataplane says, and returns what of it is new.
func (t *tracker) became(os []intent.Outcome) (changed []intent.Outcome) {
	for _, o := range os {
		if t.coming[o.Key] > 0 {
			continue
		}
		delete(t.asked, o.Key)
		if old, known := t.fates[o.Key]; !known || stateOf(old) != stateOf(o) {
			changed = append(changed, o)
		}
		t.fates[o.Key] = o
		switch id := o.Key.(type) {
		case intent.EndpointID:
			if t.endpoints[id] != nil {
				t.changed[id] = true
			}
		case intent.RouteID:
			t.touch(t.routes[id])
		}
	}
	return changed
}

// news returns the states that have changed since it was last asked.
func (t *tracker) news(now time.Time) map[intent.EndpointID]status.Endpoint {
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
	fate, known := t.fates[id]
	if !known {
		return status.Endpoint{Status: status.Down, Reason: notYet}
	}
	worst := stateOf(fate)
	for dst := range t.reach[e.link] {
		route, known := t.fates[dst]
		if !known {
			route.Reason = "route " + dst.String() + " is " + notYet
		}
		if s := stateOf(route); rank[s.Status] > rank[worst.Status] {
			worst = s
		}
	}
	return worst
}

// inForce is how an endpoint is now; false: of what was asked for last, its routes included, something is still on its way.
func (t *tracker) inForce(id intent.EndpointID) (status.Endpoint, bool) {
	e := t.endpoints[id]
	if e == nil {
		return status.Endpoint{Status: status.Down, Reason: notYet}, false
	}
	answered := !t.asked[id]
	for dst := range t.reach[e.link] {
		answered = answered && !t.asked[dst]
	}
	return t.state(id, e), answered
}

var rank = map[string]int{status.Up: 0, status.Down: 1, status.Error: 2}

func stateOf(o intent.Outcome) status.Endpoint {
	switch {
	case o.Err != nil:
		return status.Endpoint{Status: status.Error, Reason: o.Err.Error()}
	case o.Reason != "":
		return status.Endpoint{Status: status.Down, Reason: o.Reason}
	}
	return status.Endpoint{Status: status.Up}
}

// failed is what is not in force and belongs to no endpoint: a policy, the route of a block.
func (t *tracker) failed() []string {
	var out []string
	for k, o := range t.fates {
		if o.Err == nil || intent.KindOf(k) == intent.KeyEndpoint {
			continue
		}
		if id, ofRoute := k.(intent.RouteID); ofRoute {
			if _, ofEndpoint := t.links[t.routes[id]]; ofEndpoint {
				continue
			}
		}
		out = append(out, k.String()+": "+o.Err.Error())
	}
	return out
}

// counts says how much there is of everything.
func (t *tracker) counts() (states map[string]int, policies, sets int) {
	states = map[string]int{status.Up: 0, status.Down: 0, status.Error: 0}
	for _, e := range t.endpoints {
		states[e.state.Status]++
	}
	for k := range t.others {
		if intent.KindOf(k) == intent.KeyPolicy {
			policies++
		} else {
			sets++
		}
	}
	return states, policies, sets
}
