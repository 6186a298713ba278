package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	return fmt.Errorf("its name in the kernel, %s, collides with that of %s", name, with.ID)
}

// free gives a name that its owner has let go of to who waits for it.
func (s *State) free(name string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.waiting[name]), compareKeys) {
		s.waiting.remove(name, key)
		if !s.known(key) {
			continue // it has gone while it waited
		}
		s.touched[key] = struct{}{}
		if x := s.sets[intent.SetID(key.ID)]; key.Kind == intent.KeyIPSet && x != nil {
			delete(s.faults, key)
			s.claim(x)
			s.noteCollision(x)
		}
		s.markDirty(key)
	}
}

func compareKeys(a, b intent.Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
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
		s.waiting.add(x.place(), setKey(x.ID))
		return
	}
	s.names[x.place()], x.Named = x.ID, true
}

// Named reports whether a set has its name, as [Set] says with the next Changes.
func (s *State) Named(id intent.SetID) bool { return s.sets[id] != nil && s.sets[id].Named }

// noteCollision closes a set that has not got its name.
func (s *State) noteCollision(x *set) {
	if !x.Named {
		s.fail(setKey(x.ID), collision(x.Name, setKey(s.names[x.place()])))
	}
}

// release ends what a set that has gone claims.
func (s *State) release(x *set) {
	if !x.Named {
		s.waiting.remove(x.place(), setKey(x.ID))
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
