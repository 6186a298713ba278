// Package sim is an in-memory node: what tests of calc apply batches to.
//
// In: [intent.Batch], as drivers get them.
// Out: what a node would have in force, and an error for whatever a driver without transactions could not do: a batch
// that refers to something it has not made yet, or removes what is still in use.
//
// A batch is applied in the order of its fields, Removed last and reversed. [Node.Fail] makes one intent fail, as
// a kernel may.
//
// A [Dataplane] applies the desired state of the same batches in memory, and evaluates packets by it.
package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Node is a simulated node. One goroutine may use it. Make it with New.
type Node struct {
	State
	InSync bool // a batch with InSync was applied

	queue   []intent.Batch
	failing map[intent.Key]error
	refused []error
}

// State is what is in force. Equal states are equal under reflect.DeepEqual.
type State struct {
	Sets      map[intent.SetID]Set
	Policies  map[intent.PolicyID]intent.Policy
	Endpoints map[intent.EndpointID]intent.Endpoint
	Routes    map[string]intent.Route
	Peers     map[intent.PeerID]intent.TunnelPeer
	Host      intent.HostSettings
}

// Set is a set with its members.
type Set struct {
	Kind    intent.SetKind
	Comment string
	Members map[intent.Member]bool
}

// New returns an empty node.
func New() *Node {
	return &Node{
		State: State{
			Sets: map[intent.SetID]Set{}, Policies: map[intent.PolicyID]intent.Policy{}, Endpoints: map[intent.EndpointID]intent.Endpoint{},
			Routes: map[string]intent.Route{}, Peers: map[intent.PeerID]intent.TunnelPeer{},
		},
		failing: map[intent.Key]error{},
	}
}

// Fail makes an intent fail with err from now on; nil ends that.
func (n *Node) Fail(key intent.Key, err error) {
	if err == nil {
		delete(n.failing, key)
		return
	}
	n.failing[key] = err
}

// Refused returns the errors in batches so far; nil: calc made none.
func (n *Node) Refused() error { return errors.Join(n.refused...) }

// Merge queues a batch.
func (n *Node) Merge(b intent.Batch) { n.queue = append(n.queue, b) }

// Apply applies what was merged. While an intent fails, everything that was merged with it and after it waits, so that
// the order holds; its outcome has the error.
func (n *Node) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []intent.Outcome
	for len(n.queue) > 0 {
		b := n.queue[0]
		keys := keysOf(b)
		for _, k := range keys {
			if err := n.failing[k]; err != nil {
				return append(out, intent.Outcome{Key: k, Err: err}), nil
			}
		}
		n.queue = n.queue[1:]
		n.carryOut(b)
		for _, k := range keys {
			out = append(out, intent.Outcome{Key: k})
		}
	}
	return out, nil
}

// keysOf returns the intents that a batch changes.
func keysOf(b intent.Batch) []intent.Key {
	var keys []intent.Key
	add := func(k intent.Key) { keys = append(keys, k) }
	for _, s := range b.IPSets {
		add(s.ID)
	}
	for _, m := range b.Members {
		add(m.Set)
	}
	for _, p := range b.Policies {
		add(p.ID)
	}
	for _, e := range b.Endpoints {
		add(e.ID)
	}
	for _, r := range b.Routes {
		add(r.ID())
	}
	for _, p := range b.Peers {
		add(p.ID())
	}
	if b.Host != nil {
		add(intent.HostID(""))
	}
	return keys
}

func (n *Node) refuse(format string, args ...any) {
	n.refused = append(n.refused, fmt.Errorf(format, args...))
}

func (n *Node) carryOut(b intent.Batch) {
	for _, s := range b.IPSets {
		n.addSet(s)
	}
	for _, m := range b.Members {
		n.addMembers(m)
	}
	for _, p := range b.Policies {
		for _, id := range rules.Sets(p) {
			if _, ok := n.Sets[id]; !ok {
				n.refuse("policy %s asks for set %s, which is not there", p.ID, id)
			}
		}
		n.Policies[p.ID] = p
	}
	for _, e := range b.Endpoints {
		for _, id := range e.Policies().IDs() {
			if _, ok := n.Policies[id]; !ok {
				n.refuse("endpoint %s asks for policy %s, which is not there", e.ID, id)
			}
		}
		n.Endpoints[e.ID] = e
	}
	for _, r := range b.Routes {
		n.Routes[r.Dst.String()] = r
	}
	for _, p := range b.Peers {
		n.Peers[p.ID()] = p
	}
	if b.Host != nil {
		n.Host = *b.Host
	}
	for _, k := range slices.Backward(b.Removed) {
		n.remove(k)
	}
	n.InSync = n.InSync || b.InSync
}

func (n *Node) addSet(s intent.IPSet) {
	set := Set{Kind: s.Kind, Comment: s.Comment, Members: map[intent.Member]bool{}}
	for _, m := range s.Members {
		if set.Members[m] {
			n.refuse("set %s has member %v twice", s.ID, m)
		}
		set.Members[m] = true
	}
	n.Sets[s.ID] = set
}

func (n *Node) addMembers(d intent.MemberDelta) {
	set, ok := n.Sets[d.Set]
	if !ok {
		n.refuse("members of set %s, which is not there", d.Set)
		return
	}
	for _, m := range d.Removed {
		if !set.Members[m] {
			n.refuse("set %s loses member %v, which it does not have", d.Set, m)
		}
		delete(set.Members, m)
	}
	for _, m := range d.Added {
		if set.Members[m] {
			n.refuse("set %s gains member %v, which it has", d.Set, m)
		}
		set.Members[m] = true
	}
}

// remove removes an intent, or returns an error if another still refers to it.
func (n *Node) remove(k intent.Key) {
	there := false
	switch id := k.(type) {
	case intent.SetID:
		_, there = n.Sets[id]
		for p, policy := range n.Policies {
			if slices.Contains(rules.Sets(policy), id) {
				n.refuse("set %s goes, while policy %s asks for it", id, p)
			}
		}
		delete(n.Sets, id)
	case intent.PolicyID:
		for e, endpoint := range n.Endpoints {
			if slices.Contains(endpoint.Policies().IDs(), id) {
				n.refuse("policy %s goes, while endpoint %s asks for it", id, e)
			}
		}
		_, there = n.Policies[id]
		delete(n.Policies, id)
	case intent.EndpointID:
		_, there = n.Endpoints[id]
		delete(n.Endpoints, id)
	case intent.RouteID:
		_, there = n.Routes[id.String()]
		delete(n.Routes, id.String())
	case intent.PeerID:
		_, there = n.Peers[id]
		delete(n.Peers, id)
	}
	if !there {
		n.refuse("%v goes, which is not there", k)
	}
}
