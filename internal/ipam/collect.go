package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// What a controller asks that collects what is left over, by itself and all the time.

// Subject is equal for findings of two surveys that are of the same: of an allocation, not only of an address. What else is in its block may
// have changed between.
func (f Finding) Subject() string {
	return strings.Join([]string{f.Kind, f.Address.String(), f.Block, f.Handle, f.Owner, fmt.Sprint(f.Sequence), f.Problem}, "|")
}

// Node is that for which a leaked address was allocated or which has the endpoint, or which has or claims a block; empty: it is not known.
func (f Finding) Node() string {
	if name, ok := strings.CutPrefix(f.Owner, api.OwnerHost+":"); ok && f.Kind == FoundClaim {
		return name
	}
	return f.node
}

// handlesOfEndpoints notes of which handles endpoints have an address, and what is allocated for each sandbox.
func (c *checking) handlesOfEndpoints() {
	for _, b := range c.Blocks {
		for _, l := range Allocations(b) {
			handle := handleOf(l.Attr)
			if coolingDown(l.Attr) || handle == "" {
				continue
			}
			of := sandboxOf(handle, l.Attr.Owner)
			c.siblings[of] = append(c.siblings[of], l.Addr)
			if len(c.users[l.Addr]) > 0 {
				c.shown[handle] = true
			}
		}
	}
}

// PodSays is what Kubernetes says of a pod.
type PodSays struct {
	None        bool         // there is none of that name
	HostNetwork bool         // it has the addresses of its host
	Addrs       []netip.Addr // those that it has; none: nobody knows
}

// pod is what Kubernetes says of the pod for which an address was allocated; of nothing else, and where nobody asked, it says nothing.
func (c *checking) pod(attrs map[string]string) PodSays {
	node, namespace, pod := attrs[api.AttributeNode], attrs[api.AttributeNamespace], attrs[api.AttributePod]
	if c.Pod == nil || node == "" || namespace == "" || pod == "" {
		return PodSays{}
	}
	return c.Pod(node, namespace, pod)
}

// lacks is why a pod that lives is known not to have an address, as after it was made anew under its name; empty: it may have it. Its status may show
// one family alone, and one interface: what is of the same sandbox as one of its addresses is its, too.
func (c *checking) lacks(attrs map[string]string, handle string) string {
	p := c.pod(attrs)
	switch {
	case p.HostNetwork:
		return "is in its host's network"
	case len(p.Addrs) == 0 || handle == "" || slices.ContainsFunc(c.siblings[sandboxOf(handle, attrs)], func(a netip.Addr) bool { return slices.Contains(p.Addrs, a) }):
		return ""
	}
	return fmt.Sprintf("has %v", p.Addrs)
}

// ofService judges the address of a service, which has no endpoint: it is the service's for as long as there is one.
func (c *checking) ofService(attrs map[string]string, handle string) (proof string, proven, holds bool) {
	service := userOf(attrs, handle)
	switch {
	case c.NoService == nil:
		return "it was given to " + service + ", and only Kubernetes knows whether there is one", false, false
	case c.NoService(attrs[api.AttributeNamespace], attrs[api.AttributeService], handle):
		return "it was given to " + service + ", which Kubernetes does not have, or not with a load balancer", true, false
	}
	return "", true, true
}

// whereOf says where to look for the user of an address.
func whereOf(attrs map[string]string) string {
	if attrs[api.AttributeService] != "" {
		return "in Kubernetes"
	}
	return "on " + cmp.Or(attrs[api.AttributeNode], "its host")
}

// containerOf is what may be a container's ID in a handle, NETWORK.CONTAINER or NETWORK.CONTAINER.INTERFACE.
func containerOf(handle string, attrs map[string]string) string {
	if ifname := attrs[api.AttributeInterface]; ifname != "" {
		handle = strings.TrimSuffix(handle, "."+ifname)
	}
	return handle[strings.LastIndex(handle, ".")+1:]
}

// sandboxOf is what all handles of one sandbox have in common, which has one for each interface: the container's ID, or else the handle.
func sandboxOf(handle string, attrs map[string]string) string {
	if id := containerOf(handle, attrs); containerID.MatchString(id) {
		return id
	}
	return handle
}

// containerID is how container runtimes name a pod's container.
var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// replaced returns the container that a pod has now, if it is another than that for which an address was allocated.
func (c *checking) replaced(attrs map[string]string, handle string) string {
	was := containerOf(handle, attrs)
	if c.Pod == nil || attrs[api.AttributePod] == "" || !containerID.MatchString(was) {
		return ""
	}
	now := c.containers[attrs[api.AttributeNamespace]+"/"+attrs[api.AttributePod]]
	if slices.ContainsFunc(now, func(id string) bool { return id == was || !containerID.MatchString(id) }) {
		return ""
	}
	return strings.Join(now, " ")
}

// Nodes are the names of the Nodes that there are, sorted.
func (v *Survey) Nodes() []string { return slices.Sorted(maps.Keys(v.nodes)) }

// Hosts are the nodes that blocks, affinities and allocations name, each once, sorted; those that had a virtual machine are not among them.
func (v *Survey) Hosts() []string {
	names := map[string]bool{}
	add := func(own api.Owner, ok bool) {
		if ok && own.Type == api.OwnerHost {
			names[own.Name] = true
		}
	}
	for _, b := range v.Blocks {
		add(b.Owner())
		for _, l := range Allocations(b) {
			if !coolingDown(l.Attr) && !l.isMachines() {
				names[l.Attr.Owner[api.AttributeNode]] = true
			}
		}
	}
	for _, key := range v.sortedKeys(api.IPAMPrefix) {
		own, _, ok := api.ParseAffinityKey(key)
		add(own, ok)
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// UsedElsewhere returns the addresses that were allocated for a node, and that endpoints of another have: which may be the same under another
// name.
func (v *Survey) UsedElsewhere(node string) (out []netip.Addr) {
	for _, b := range v.Blocks {
		for _, l := range Allocations(b) {
			if l.Attr.Owner[api.AttributeNode] == node && !l.isMachines() && slices.ContainsFunc(v.users[l.Addr], func(u user) bool { return u.node != node }) {
				out = append(out, l.Addr)
			}
		}
	}
	return out
}

// Spare is an empty block of a node that has another one of the same pool.
type Spare struct {
	Owner api.Owner
	CIDR  netip.Prefix
	at    api.Revision
}

// Subject is equal for the same block in two surveys, if nothing was written to it between.
func (s Spare) Subject() string {
	return s.Owner.String() + "|" + s.CIDR.String() + "|" + s.at.String()
}

// Spares are the blocks that nodes could do without: all empty ones, but of each node and pool at least one block stays.
func (v *Survey) Spares() (out []Spare) {
	type share struct {
		owner api.Owner
		pool  netip.Prefix
	}
	have := map[share]int{}
	var empty []share
	for _, b := range v.Blocks {
		own, ok := b.Owner()
		pool, in := v.PoolOf(b.CIDR)
		if !ok || !in || own.Type != api.OwnerHost {
			continue
		}
		s := share{own, pool.CIDR}
		have[s]++
		if v.cools.empty(b) {
			empty = append(empty, s)
			out = append(out, Spare{own, b.CIDR, v.docs[api.BlockKey(b.CIDR)].was.Revision})
		}
	}
	kept := out[:0]
	for i, spare := range out {
		if have[empty[i]] > 1 {
			have[empty[i]]--
			kept = append(kept, spare)
		}
	}
	return kept
}

// InUse: it does not only cool down.
func (l Allocation) InUse() bool { return !coolingDown(l.Attr) }
