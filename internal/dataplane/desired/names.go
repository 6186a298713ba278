package desired

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Names of chains and sets are hashes of what they are for, so no two intents have one name by chance. Should two have it all
// the same, whoever came first keeps it: the other is closed and reported, and looked at again when the name is free.

// taken says whose name each of these chains has, if it is another's than the owner's.
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

// free gives a name that its owner has let go of to who waits for it.
func (s *State) free(name string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.waiting[name]), intent.CompareKeys) {
		s.waiting.remove(name, key)
		if !s.known(key) {
			continue // it has gone while it waited
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

// SetName is the name of a set, which a backend may put more before.
func SetName(id intent.SetID) string { return rules.Name("", string(id), string(id)) }

// place is where the name of a set is claimed: those of two kinds never meet.
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

// Named reports whether a set has its name, as [Set] says with the next Changes.
func (s *State) Named(id intent.SetID) bool { return s.sets[id] != nil && s.sets[id].Named }

// noteCollision closes a set that has not got its name.
func (s *State) noteCollision(x *set) {
	if !x.Named {
		s.fail(x.ID, collision(x.Name, s.names[x.place()]))
	}
}

// release ends what a set that has gone claims.
func (s *State) release(x *set) {
	if !x.Named {
		s.waiting.remove(x.place(), x.ID)
		return
	}
	delete(s.names, x.place())
	s.free(x.place())
}

// policyChains are the names of all chains that a policy may have.
func policyChains(id intent.PolicyID) []string {
	return []string{rules.PolicyChain(id, intent.Ingress), rules.PolicyChain(id, intent.Egress), rules.SilentChain(id, intent.Egress)}
}

// endpointChains are the names of all chains that a workload's endpoint may have.
func endpointChains(id intent.EndpointID) []string {
	return []string{rules.EndpointChain(id, intent.Ingress), rules.EndpointChain(id, intent.Egress), rules.SpoofChain(id)}
}
