package nft

import (
	"fmt"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Names of chains and sets are hashes of what they are for, so no two intents have one name by chance. Should two have it all
// the same, whoever came first keeps it: the other is closed and reported, and looked at again when the name is free.

// taken says whose name each of these chains has, if it is another's than the owner's.
func (d *Driver) taken(owner intent.Key, names ...string) error {
	for _, name := range names {
		if c := d.chains[name]; c != nil && c.wanted && c.owner != owner {
			d.waiting.add(name, owner)
			return collision(name, c.owner)
		}
	}
	for _, name := range names {
		d.waiting.remove(name, owner)
	}
	return nil
}

func collision(name string, with intent.Key) error {
	return fmt.Errorf("its name in the kernel, %s, collides with that of %s", name, with.ID)
}

// free gives a name that its owner has let go of to who waits for it.
func (d *Driver) free(name string) {
	for key := range d.waiting[name] {
		d.waiting.remove(name, key)
		if !d.wanted(key) {
			continue // it has gone while it waited
		}
		d.touched[key] = struct{}{}
		if s := d.sets[intent.SetID(key.ID)]; key.Kind == intent.KeyIPSet && s != nil {
			d.adopt(s)
		}
		d.markDirty(key)
	}
}

// adopt registers those kernel sets of a set that were apart, and whose names are free by now.
func (d *Driver) adopt(s *ipset) {
	delete(d.faults, s.key())
	for i := range families {
		for _, at := range []**kset{&s.exact[i], &s.ranges[i]} {
			if old := *at; old != nil && old.apart {
				*at = d.kset(old.spec, old.owner)
				for id, value := range old.elems.All() {
					(*at).elems.Desire(id, value)
				}
			}
		}
	}
	d.noteCollision(s)
}

// noteCollision closes a set that has not got all of its names.
func (d *Driver) noteCollision(s *ipset) {
	for i := range families {
		for _, k := range []*kset{s.exact[i], s.ranges[i]} {
			if k != nil && k.apart {
				d.fail(s.key(), collision(k.spec.Name, d.ksets[k.spec.Name].owner))
				return
			}
		}
	}
}

// policyChains are the names of all chains that a policy may have.
func policyChains(id intent.PolicyID) []string {
	return []string{rules.PolicyChain(id, intent.Ingress), rules.PolicyChain(id, intent.Egress), rules.SilentChain(id, intent.Egress)}
}

// endpointChains are the names of all chains that a workload's endpoint may have.
func endpointChains(id intent.EndpointID) []string {
	return []string{rules.EndpointChain(id, intent.Ingress), rules.EndpointChain(id, intent.Egress), rules.SpoofChain(id)}
}
