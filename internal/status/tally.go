package status

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Tally follows on which nodes versions of policies are in force, for who goes on watching the datastore. It differs from [RealisedOn] in three ways. It remembers what
// each agent has said of the present version of each policy, so that one that is late does not hide others of its sum. An agent whose report has expired counts as one
// on whose node nothing is in force, by the clock of who watches: clocks are compared only when a report is seen first. And a node counts only while there is a Node.
//
// One goroutine may use it. Use [NewTally].
type Tally struct {
	policies map[string]*counted // by key
	prints   map[uint64]*counted
	sums     [digestBuckets]uint32
	in       [digestBuckets][]*counted
	changed  map[int]bool // buckets in which a policy has changed since counts were made
	free     []int        // places that no policy has
	places   int

	agents map[string]*observed // by the prefix of their keys
	nodes  map[string]bool
}

// counted is a policy.
type counted struct {
	Version
	bucket, place int
}

// observed is what the agent of a node has said.
type observed struct {
	node    string
	summary *Summary
	fresh   bool     // the summary has not been compared
	has     []uint64 // a bit for each place of a policy: its version is in force

	status []byte // nil: there is none
	last   string // when the report was made, as it says
	holds  time.Duration
	since  time.Time // when it changed
	old    bool      // it had expired when it was seen first
}

// NewTally returns one that knows nothing.
func NewTally() *Tally {
	return &Tally{policies: map[string]*counted{}, prints: map[uint64]*counted{}, changed: map[int]bool{}, agents: map[string]*observed{}, nodes: map[string]bool{}}
}

// Node says whether there is a node.
func (t *Tally) Node(name string, is bool) {
	if is {
		t.nodes[name] = true
	} else {
		delete(t.nodes, name)
	}
}

// Policy takes over the present version of a policy.
func (t *Tally) Policy(v Version) {
	c := t.policies[v.Key]
	if c != nil && c.Version == v || c == nil && v.Gone {
		return
	}
	if c != nil {
		t.sums[c.bucket] -= uint32(c.print)
		delete(t.prints, c.print)
		for _, a := range t.agents {
			a.mark(c.place, false)
		}
	}
	switch {
	case v.Gone:
		t.in[c.bucket] = slices.DeleteFunc(t.in[c.bucket], func(o *counted) bool { return o == c })
		t.free = append(t.free, c.place)
		delete(t.policies, v.Key)
	case c == nil:
		c = &counted{Version: v, bucket: bucketOf(v.Key), place: t.place()}
		t.policies[v.Key], t.in[c.bucket] = c, append(t.in[c.bucket], c)
	}
	t.changed[c.bucket] = true
	if !v.Gone {
		c.Version = v
		t.sums[c.bucket] += uint32(v.print)
		t.prints[v.print] = c
	}
}

func (t *Tally) place() int {
	if n := len(t.free); n > 0 {
		place := t.free[n-1]
		t.free = t.free[:n-1]
		return place
	}
	t.places++
	return t.places - 1
}

func (a *observed) mark(place int, has bool) {
	for len(a.has) <= place/64 {
		a.has = append(a.has, 0)
	}
	if a.has[place/64] |= 1 << (place % 64); !has {
		a.has[place/64] &^= 1 << (place % 64)
	}
}

func (a *observed) marked(place int) bool {
	return place/64 < len(a.has) && a.has[place/64]>>(place%64)&1 == 1
}

// Report takes over what an agent wrote, or what of it is gone. Other keys are passed over.
func (t *Tally) Report(u api.Update, now time.Time) {
	rest, ok := strings.CutPrefix(u.Key, api.Root+"felix/v2/")
	parts := strings.Split(rest, "/") // region, host, node, what
	if !ok || len(parts) != 4 || parts[1] != "host" || parts[3] != "status" && parts[3] != "summary" {
		return
	}
	at := strings.TrimSuffix(u.Key, parts[3])
	a := t.agents[at]
	if a == nil {
		a = &observed{}
		a.node, _ = url.PathUnescape(parts[2])
		t.agents[at] = a
	}
	if parts[3] == "status" {
		a.report(u.Value, now)
	} else {
		a.summarise(u.Value)
	}
	if a.status == nil && a.summary == nil {
		delete(t.agents, at)
	}
}

// report takes over when the agent reported.
func (a *observed) report(value []byte, now time.Time) {
	var p Process
	switch {
	case value == nil:
		a.status = nil
		return
	case bytes.Equal(a.status, value) || json.Unmarshal(value, &p) != nil:
		return
	}
	a.old = a.status == nil && !Alive(value, now)
	a.status, a.last, a.since, a.holds = value, p.Time, now, 0
	from, err1 := time.Parse(time.RFC3339, p.Time)
	until, err2 := time.Parse(time.RFC3339, p.Expires)
	if err1 == nil && err2 == nil { // else the key expires
		a.holds = max(until.Sub(from), time.Second)
	}
}

// summarise takes over a summary. What cannot be read says that nothing is in force.
func (a *observed) summarise(value []byte) {
	var s Summary
	if value == nil {
		a.summary, a.has = nil, nil
		return
	}
	if json.Unmarshal(value, &s) != nil {
		s = Summary{}
	}
	a.summary, a.fresh = &s, true
}

// late is how much later than a report expires its agent counts as silent: what it writes takes a while to come.
const late = 5 * time.Second

// silent says why nothing counts that an agent has said; empty: it reports.
func (a *observed) silent(now time.Time) string {
	if a.status != nil && !a.old && (a.holds == 0 || now.Before(a.since.Add(a.holds+late))) {
		return ""
	}
	return "its agent has not reported since " + cmp.Or(a.last, "its start")
}

// compare brings what is in force up to date.
func (t *Tally) compare() {
	for _, a := range t.agents {
		if a.summary == nil || !a.fresh && len(t.changed) == 0 {
			continue
		}
		if a.fresh && len(a.summary.Failed) >= mostFailed { // more may have failed, and are not named
			clear(a.has)
		}
		v := &a.summary.Policies
		for at := range digestBuckets {
			if (a.fresh || t.changed[at]) && v.sums[at] == t.sums[at] {
				for _, c := range t.in[at] {
					a.mark(c.place, true)
				}
			}
		}
		for _, f := range v.last {
			if c := t.prints[f]; c != nil {
				a.mark(c.place, true)
			}
		}
		for key := range a.summary.Failed {
			if c := t.policies[key]; c != nil {
				a.mark(c.place, false)
			}
		}
		a.fresh = false
	}
	clear(t.changed)
}

// Counts is a tally at one time.
type Counts struct {
	Nodes  int // whose agents have ever said what is in force
	Silent int // of them, whose agents do not report

	t      *Tally
	agents []*observed // by node
	silent []string    // why one counts as silent; empty: it does not
	where  []int       // by place
}

// Count counts all nodes. The result holds until the tally changes.
func (t *Tally) Count(now time.Time) *Counts {
	t.compare()
	n := &Counts{t: t, where: make([]int, t.places)}
	for _, a := range t.agents {
		if a.summary != nil && t.nodes[a.node] {
			n.agents = append(n.agents, a)
		}
	}
	slices.SortFunc(n.agents, func(a, b *observed) int { // of two of one node, in regions, the first counts
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(len(a.silent(now)), len(b.silent(now))), b.since.Compare(a.since))
	})
	n.agents = slices.CompactFunc(n.agents, func(a, b *observed) bool { return a.node == b.node })
	n.Nodes, n.silent = len(n.agents), make([]string, len(n.agents))
	for i, a := range n.agents {
		if n.silent[i] = a.silent(now); n.silent[i] != "" {
			n.Silent++
			continue
		}
		for place := range n.where {
			if a.marked(place) {
				n.where[place]++
			}
		}
	}
	return n
}

// On is on how many nodes a policy is in force in its present version.
func (n *Counts) On(key string) int {
	if c := n.t.policies[key]; c != nil {
		return n.where[c.place]
	}
	return 0
}

// mostNamed is how many nodes a text names.
const mostNamed = 3

// Say is On in words, with the first nodes on which the policy is not in force, and why: "realised on 11 of 12 nodes; not on n5".
func (n *Counts) Say(key string) string {
	out := fmt.Sprintf("realised on %d of %d nodes", n.On(key), n.Nodes)
	missing := n.Nodes - n.On(key)
	c := n.t.policies[key]
	if missing == 0 || c == nil {
		return out
	}
	named := 0
	for i, a := range n.agents {
		why := n.silent[i]
		if why == "" && a.marked(c.place) {
			continue
		}
		if named++; named > mostNamed {
			return fmt.Sprintf("%s; and %d more", out, missing-mostNamed)
		}
		out += "; not on " + a.node
		if why = cmp.Or(why, a.summary.Failed[key]); why != "" {
			out += ": " + why
		}
	}
	return out
}
