package ipam

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// Machine is a virtual machine of KubeVirt's. Its addresses are its own for as long as it is there, whichever of its pods has them.
type Machine struct{ Namespace, Name string }

// How upstream's plugin makes handles of machines: one that is too long ends with a hash, before which there is a mark.
const (
	machineMark   = ".vmi."
	longestHandle = 128
	hashMark      = "_"
	shortestHash  = 32
)

// Handle is that of its addresses in a network, by which upstream's tools find them, too.
func (m Machine) Handle(network string) string {
	prefix, rest := network+machineMark, m.Namespace+"."+m.Name
	if n := len(prefix) + len(rest); n < longestHandle || n == longestHandle && !strings.HasPrefix(rest, hashMark) {
		return prefix + rest
	}
	sum := sha256.Sum256([]byte(rest))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])
	return prefix + hashMark + hash[:min(len(hash), max(longestHandle-len(prefix)-len(hashMark), shortestHash))]
}

func (m Machine) String() string {
	if m.Name == "" {
		return "a virtual machine"
	}
	return "virtual machine " + m.Namespace + "/" + m.Name
}

// Machine is whose an address is; false: no machine's. It is empty if only the handle says that it is one's, and not whose: upstream's plugin
// takes an owner away when a machine is stopped.
func (l Allocation) Machine() (Machine, bool) {
	for _, owner := range []map[string]string{l.Attr.Owner, l.Attr.Alternate} {
		if name := owner[api.AttributeInstance]; name != "" {
			return Machine{owner[api.AttributeNamespace], name}, true
		}
	}
	if len(l.Attr.Owner)+len(l.Attr.Alternate) > 0 {
		return Machine{}, false
	}
	all := machinesOf(handleOf(l.Attr))
	if len(all) == 0 {
		return Machine{}, false
	}
	return all[len(all)-1], true
}

// machinesOf are the machines that a handle may be of, those with the longest name of a network last: the names of networks and of machines may both have the mark
// in them. An empty one: it does not say which.
func machinesOf(handle string) (all []Machine) {
	for at := 0; ; at++ { // marks may overlap
		next := strings.Index(handle[at:], machineMark)
		if next < 0 {
			break
		}
		at += next
		rest := handle[at+len(machineMark):]
		if namespace, name, whole := strings.Cut(rest, "."); whole {
			all = append(all, Machine{namespace, name})
		} else if len(all) == 0 || strings.HasPrefix(rest, hashMark) {
			all = append(all, Machine{})
		}
	}
	return all
}

// isMachines reports whether an allocation is a machine's.
func (l Allocation) isMachines() bool {
	_, is := l.Machine()
	return is
}

// ofMachines judges the address of a machine that no endpoint has: it is the machine's for as long as there is one, and if its handle may be of several, as long
// as any of them is there.
func (c *checking) ofMachines(l Allocation, m Machine) (proof string, proven, holds bool) {
	others := machinesOf(handleOf(l.Attr))
	if len(l.Attr.Owner)+len(l.Attr.Alternate) > 0 {
		others = nil
	}
	for _, o := range others {
		if proof, proven, holds = c.ofMachine(o); !proven || holds {
			return proof, proven, holds
		}
	}
	return c.ofMachine(m)
}

func (c *checking) ofMachine(m Machine) (proof string, proven, holds bool) {
	switch {
	case m.Name == "":
		return "it was given to " + m.String() + ", and nothing says to which", false, false
	case c.NoMachine == nil:
		return "it was given to " + m.String() + ", and only Kubernetes knows whether there is one", false, false
	case c.NoMachine(m.Namespace, m.Name):
		return "it was given to " + m.String() + ", which Kubernetes does not have, and no WorkloadEndpoint has it", true, false
	}
	return "", true, true
}

// Owners are who has an address: who uses it, and who is to use it when a migration is over. Either may be nobody.
type Owners struct{ Active, Alternate map[string]string }

// SetOwners makes owners of a handle's addresses what a function of the address and its present owners returns, which must not be changed itself.
// Addresses, and which are the handle's, stay as they are; an address whose owners change is another allocation to a [Release] that names the one
// it saw. It is called again after a conflict.
func (a *Allocator) SetOwners(ctx context.Context, handle string, to func(netip.Addr, Owners) Owners) error {
	return a.change(ctx, "change owners of handle "+handle, func(d *txn) error {
		h, err := d.read(ctx, api.HandleKey(handle))
		if err = errors.Join(err, h.fault()); err != nil || h.gone {
			return err
		}
		for _, text := range slices.Sorted(maps.Keys(h.handle.Block)) {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue // it counts addresses of a missing block
			}
			e, err := d.block(ctx, p)
			if err = errors.Join(err, e.fault()); err != nil {
				return err
			}
			if e.gone {
				continue
			}
			for _, ord := range of(e.block, handle) {
				e.setOwners(ord, to)
			}
		}
		return nil
	})
}

// setOwners changes those of one address.
func (e *doc) setOwners(ord int, to func(netip.Addr, Owners) Owners) {
	attr := *e.block.Attribute(ord)
	now := to(e.block.Addr(ord), Owners{attr.Owner, attr.Alternate})
	if maps.Equal(now.Active, attr.Owner) && maps.Equal(now.Alternate, attr.Alternate) {
		return
	}
	e.touch()
	attr.Owner, attr.Alternate = now.Active, now.Alternate
	at := len(e.block.Attributes)
	e.block.Attributes = append(e.block.Attributes, attr)
	e.block.Allocations[ord] = &at
	if e.block.Sequences == nil {
		e.block.Sequences = map[string]uint64{}
	}
	e.block.Sequences[strconv.Itoa(ord)] = e.block.Sequence
	dropAttributes(e.block)
}
