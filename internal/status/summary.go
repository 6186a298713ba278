package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
)

// Summary is what an agent says of its node in one small value, however much is on it: which policies are in force, and, where an endpoint's state
// has no key of its own, what is up. Nothing in it changes unless something else does.
type Summary struct {
	Policies Versions          `json:"policies"`         // in force
	Failed   map[string]string `json:"failed,omitempty"` // by key, why a policy is not: the first 20
	// Endpoints are numbers of endpoints by state, and NotUp those that are not up, or are asked by chains, the first 100 by key (EndpointKey). Where
	// each endpoint has a key of its own, or none is reported, both are empty.
	Endpoints map[string]int      `json:"endpoints,omitempty"`
	NotUp     map[string]Endpoint `json:"notUp,omitempty"`
}

const (
	mostFailed     = 20
	mostNotUp      = 100
	writesOfAll    = 100         // of summaries of all nodes together, in a second
	minSummaryWait = time.Second // between two of one node
)

// InForce notes versions of policies that are in force now.
func (r *Reporter) InForce(vs []Version) {
	r.change(func() (news bool) {
		for _, v := range vs {
			news = r.versions.Set(v) || news
		}
		return news
	})
}

// IsInForce reports whether a version was said to be in force, and no other one since.
func (r *Reporter) IsInForce(v Version) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions.Has(v)
}

// Fail says which policies are not in force, by key, with the reason.
func (r *Reporter) Fail(failed map[string]string) {
	r.change(func() bool {
		changed := !maps.Equal(r.failed, failed)
		r.failed = failed
		return changed
	})
}

// Nodes says how many nodes there are: the more, the longer each waits between two summaries, so that the datastore has 100 of them to
// write in a second at most.
func (r *Reporter) Nodes(n int) {
	r.change(func() bool {
		changed := r.nodes != n
		r.nodes = n
		return changed
	})
}

// inSummary reports whether endpoints' states are in the summary: a datastore that makes endpoints of something else, such as pods, is one in which
// a value for each is too much.
func (c Config) inSummary() bool {
	_, derives := c.Store.(datastore.Deriving)
	return derives
}

// summary is the present one, as it is stored.
func (r *Reporter) summary(at place) string {
	s := Summary{Policies: r.versions.Without(r.failed), Failed: first(r.failed, mostFailed)}
	if r.cfg.inSummary() && r.settings.Endpoints {
		s.Endpoints, s.NotUp = map[string]int{}, map[string]Endpoint{}
		for id, e := range r.endpoints {
			s.Endpoints[e.Status]++
			if key, ok := at.endpoint(id); ok && (e.Status != Up || e.Chains != "") {
				s.NotUp[key] = e
			}
		}
		s.NotUp = first(s.NotUp, mostNotUp)
	}
	text, _ := json.Marshal(s)
	return string(text)
}

// first are the first n by key.
func first[V any](all map[string]V, n int) map[string]V {
	if len(all) <= n {
		return all
	}
	out := map[string]V{}
	for _, key := range slices.Sorted(maps.Keys(all))[:n] {
		out[key] = all[key]
	}
	return out
}

// endpointsApart are the endpoints whose state has a key of its own.
func (r *Reporter) endpointsApart() map[intent.EndpointID]Endpoint {
	if r.cfg.inSummary() || !r.settings.Endpoints {
		return nil
	}
	return r.endpoints
}

// due is when a key that differs is written.
func (w *writer) due(key string) time.Time {
	if key == w.at.summary() {
		return later(w.since[key].Add(turn(w.at.node, w.nodes)), w.summaryAt)
	}
	return w.since[key].Add(w.settings.Delay)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// turn is how long a node waits with what all have to say at the same time, such as that one policy has changed: each its own part of the time in which all may write.
func turn(node string, nodes int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	return time.Duration(float64(h.Sum32()) / (1 << 32) * float64(nodes) / writesOfAll * float64(time.Second))
}

// wroteSummary notes when the next may be written.
func (w *writer) wroteSummary(now time.Time) {
	w.summaryAt = now.Add(max(minSummaryWait, time.Duration(w.nodes)*time.Second/writesOfAll))
}

// Realised says of one policy on how many nodes it is in force as it is now.
type Realised struct {
	Nodes int               // whose agents say what is in force
	Where int               // on how many it is
	Not   map[string]string // the others, with the reason; empty: not known to be yet
}

// String is WHERE/NODES, and up to three nodes on which it is not.
func (r Realised) String() string {
	out := fmt.Sprintf("%d/%d", r.Where, r.Nodes)
	if len(r.Not) == 0 {
		return out
	}
	names := slices.Sorted(maps.Keys(r.Not))
	if len(names) > 3 {
		return out + ", not " + strings.Join(names[:3], " ") + " …"
	}
	return out + ", not " + strings.Join(names, " ")
}

// RealisedOn says for each policy on which nodes it is in force in the version given. There must be all policies of their kinds. A node of which no agent ever
// said what is in force does not count; of one whose agent has not reported for long, nothing is said to be in force.
func RealisedOn(nodes []NodeStatus, policies []Version) map[string]Realised {
	d, found := digestOf(policies), make([]Realised, len(policies))
	for _, n := range nodes {
		if n.Summary == nil {
			continue
		}
		for i, has := range n.Summary.Policies.have(d) {
			r := &found[i]
			if r.Nodes++; has && n.Alive {
				r.Where++
				continue
			}
			if r.Not == nil {
				r.Not = map[string]string{}
			}
			r.Not[n.Node] = cmp.Or(n.Summary.Failed[policies[i].Key], silence(n))
		}
	}
	out := make(map[string]Realised, len(policies))
	for i, u := range policies {
		out[u.Key] = found[i]
	}
	return out
}

// silence is why nothing new may come from a node; empty: its agent lives.
func silence(n NodeStatus) string {
	if n.Alive {
		return ""
	}
	return "its agent has not reported since " + cmp.Or(n.Last.Time, "its start")
}
