// Package reference is a dataplane driver without a kernel: it keeps what a node should be in memory.
//
// In: an agent's stream of the protocol of api/dataplanepb. Out: its answers, as a driver must give them; a commit that is out of order is refused with the
// reason. docs/remote-dataplane.md is the contract. Whoever writes a driver runs an agent against this one first, and then against theirs.
package reference

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/remote"
	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
)

// Node is a [remote.Target] in memory. Its zero value has nothing in force.
type Node struct {
	Interfaces []desired.Addrs                    // the host's, with their addresses
	Committed  func(agent string, b intent.Batch) // called after each commit that is in force; nil: not called

	mu      sync.Mutex
	inForce *sim.Dataplane // nil: nothing was ever committed
}

// session is an agent's.
type session struct {
	*Node
	agent  string
	strict *sim.Node
	next   *sim.Dataplane
}

// Begin implements [remote.Target].
func (n *Node) Begin(_ context.Context, agent string, _ func(intent.Outcome)) (remote.Session, error) {
	s := &session{n, agent, sim.New(), sim.NewDataplane(desired.Config{})}
	s.next.Links(n.Interfaces)
	return s, nil
}

// Commit implements [remote.Session].
func (s *session) Commit(ctx context.Context, b intent.Batch) ([]intent.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strict.Merge(b)
	if _, err := s.strict.Apply(ctx); err != nil {
		return nil, err
	}
	if err := s.strict.Refused(); err != nil {
		return nil, fmt.Errorf("out of order: %w", err)
	}
	s.next.Merge(b)
	outcomes, err := s.next.Apply(ctx)
	if err != nil {
		return nil, err
	}
	s.inForce = s.next
	if s.Committed != nil {
		s.Committed(s.agent, b)
	}
	return slices.DeleteFunc(outcomes, func(o intent.Outcome) bool { return o.Err == nil && o.Reason == "" }), nil
}

// Failed implements [remote.Session].
func (s *session) Failed() <-chan struct{} { return nil }

// End implements [remote.Session].
func (s *session) End() {}

// Dataplane is what is in force; nil: nothing was ever committed.
func (n *Node) Dataplane() *sim.Dataplane {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inForce
}
