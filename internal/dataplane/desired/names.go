package desired

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Names of chains and sets are hashes of the ids of their intents. Should two collide, the first owner
// keeps the name: the other is closed and reported, and tried again when the name is free.

// taken returns an error if another owner has one of these names, and then waits for it.
func (s *State) taken(owner intent.Key, names ...string) error {
	for _, name := range names {
		if is, wanted := s.owners[name]; wanted && is != owner {
			s.waiting.add(name, owner)
			return collision(name, is)
		}
	}
	for _, name := range names {
		s.waiting.remove(name, owner)
	}
	return nil
}

func collision(name string, with intent.Key) error {
	return fmt.Errorf("its name in the kernel, %s, collides with that of %s", name, with)
}

// free gives a name that its owner released to the keys that wait for it.
func (s *State) free(name string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.waiting[name]), intent.CompareKeys) {
		s.waiting.remove(name, key)
		if !s.known(key) {
			continue // it was removed while it waited
		}
		s.touched[key] = struct{}{}
		if id, ok := key.(intent.SetID); ok {
			x := s.sets[id]
			delete(s.faults, key)
			s.claim(x)
			s.noteCollision(x)
		}
		s.markDirty(key)
	}
}

// SetName is the name of a set, to which a backend may add a prefix.
func SetName(id intent.SetID) string { return rules.Name("", string(id), string(id)) }

// place is the key under which the name of a set is claimed: sets of different kinds do not collide.
func (x *set) place() string {
	if x.Kind == intent.SetPorts {
		return "ports " + x.Name
	}
	return "addresses " + x.Name
}

// claim gives a set its name, or has it wait for it.
func (s *State) claim(x *set) {
	if _, taken := s.names[x.place()]; taken {
		s.waiting.add(x.place(), x.ID)
		return
	}
	s.names[x.place()], x.Named = x.ID, true
}

// Named reports whether a set has its name, as [Set] has it in the next Changes.
func (s *State) Named(id intent.SetID) bool { return s.sets[id] != nil && s.sets[id].Named }

// noteCollision fails a set that does not have its name.
func (s *State) noteCollision(x *set) {
	if !x.Named {
		s.fail(x.ID, collision(x.Name, s.names[x.place()]))
	}
}

// release frees the name of a set that was removed.
func (s *State) release(x *set) {
	if !x.Named {
		s.waiting.remove(x.place(), x.ID)
		return
	}
	delete(s.names, x.place())
	s.free(x.place())
}

// policyChains returns the names of all chains that a policy may have.
func policyChains(id intent.PolicyID) []string {
	return []string{rules.PolicyChain(id, intent.Ingress), rules.PolicyChain(id, intent.Egress), rules.SilentChain(id, intent.Egress)}
}

// endpointChains returns the names of all chains that a workload endpoint may have.
func endpointChains(id intent.EndpointID) []string {
	out := []string{rules.SpoofChain(id)}
	for _, dir := range directions {
		out = append(out, rules.EndpointChain(id, dir), rules.LimitChain(id, dir), rules.ConnectionsChain(id, dir))
	}
	return out
}
