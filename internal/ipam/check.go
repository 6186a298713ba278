package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// Kinds of findings.
const (
	FoundLeak     = "leak"     // an allocated address without user
	FoundHandle   = "handle"   // a handle's counts differ from the blocks
	FoundBlock    = "block"    // a block contradicts itself, or belongs to no pool
	FoundClaim    = "claim"    // an affinity and its block disagree, or its node is gone
	FoundEndpoint = "endpoint" // an endpoint has an address that is not its own
	FoundBroken   = "broken"   // a value that cannot be read
)

// Finding is one inconsistency.
type Finding struct {
	Kind     string     `json:"kind"`
	Address  netip.Addr `json:"address,omitzero"`
	Block    string     `json:"block,omitempty"`
	Handle   string     `json:"handle,omitempty"`
	Sequence uint64     `json:"sequence,omitempty"`
	Owner    string     `json:"owner,omitempty"`
	Problem  string     `json:"problem"`        // what is wrong
	Proof    string     `json:"proof"`          // the evidence
	Fix      string     `json:"fix,omitempty"`  // what a repair does; empty: nothing, see Kept
	Kept     string     `json:"kept,omitempty"` // why it is not repaired

	node string                  // of a leak: for which it was allocated, or of the endpoint that has it
	note string                  // and what else was kept with it
	seen map[string]api.Revision // revisions of the keys that it follows from
	fix  func(*repair) error
}

// id is equal for the same finding of two surveys.
func (f Finding) id() string {
	return strings.Join([]string{f.Kind, f.Address.String(), f.Block, f.Handle, f.Owner, fmt.Sprint(f.Sequence), fmt.Sprint(f.seen)}, "|")
}

// NoteContainer is kept with an address, as its api.AttributeNote, whose container has a WorkloadEndpoint for as long as it
// has the address: that none has it proves that the address is leaked. Upstream's IPAM, and ours under another main plugin,
// promise no endpoint.
const NoteContainer = "container"

// NoteDocker is that of an address that Docker of its node asked for, and gives back: for a container, or to keep it from containers. While there
// is that node it is nobody's leak.
const NoteDocker = "docker"

// IsContainerOf: it is the leak of an address that was allocated on a node for a container.
func (f Finding) IsContainerOf(node string) bool {
	return f.Kind == FoundLeak && f.node == node && f.note == NoteContainer
}

// CheckOptions say what counts as proven.
type CheckOptions struct {
	Now   time.Time
	Grace time.Duration // an address that was assigned more recently is not reported as a leak
	// Watches: the caller frees only what it sees leaked for long enough by its own clock, so that it may free what nothing says the age of.
	Watches bool
	// Pod is what Kubernetes says of a pod for which addresses were allocated on a node; nil: nobody asked it.
	Pod func(node, namespace, pod string) PodSays
	// NoService reports whether Kubernetes is known to have no such service that has this handle; nil: nobody asked it.
	NoService func(namespace, service, handle string) bool
	// NoMachine reports whether Kubernetes is known to have no such virtual machine; nil: nobody asked it.
	NoMachine func(namespace, name string) bool
}

// Check compares blocks, handles, affinities, endpoints and nodes.
func (v *Survey) Check(o CheckOptions) []Finding {
	c := &checking{
		Survey: v, CheckOptions: o, cools: cooling{o.Now, v.cools.rest},
		have: map[string]map[string]int{}, young: map[string]bool{}, shown: map[string]bool{}, doubtful: map[string]bool{}, siblings: map[string][]netip.Addr{},
	}
	c.broken()
	c.overlaps()
	c.handlesOfEndpoints()
	for _, b := range v.Blocks {
		if p, ok := v.PoolOf(b.CIDR); !ok || p.size != b.CIDR.Bits() {
			c.odd = append(c.odd, b.CIDR)
		}
		c.block(b)
		for _, l := range Allocations(b) {
			c.allocation(l)
		}
	}
	c.handles()
	c.claims()
	c.endpoints()
	return c.found
}

// checking is the state of one check.
type checking struct {
	*Survey
	CheckOptions
	cools    cooling
	have     map[string]map[string]int // allocations by handle and block
	young    map[string]bool           // nodes that are gone, with an endpoint that is not old enough to go
	shown    map[string]bool           // handles with an address that an endpoint has
	siblings map[string][]netip.Addr   // by sandbox: what is allocated for it
	doubtful map[string]bool           // nodes for which an address is allocated of which nothing proves that it is leaked
	odd      []netip.Prefix            // blocks that no pool makes: of another size than its blocks have, or partly outside of it
	found    []Finding
}

// add notes a finding, with the revisions of the keys it is concluded from.
func (c *checking) add(f Finding, keys ...string) {
	f.seen = map[string]api.Revision{}
	for _, k := range keys {
		f.seen[k] = api.Revision{}
		if e := c.docs[k]; e != nil {
			f.seen[k] = e.was.Revision
		}
	}
	c.found = append(c.found, f)
}

func (c *checking) broken() {
	for _, key := range c.sortedKeys("") {
		if e := c.docs[key]; e.bad != nil {
			c.add(Finding{
				Kind: FoundBroken, Problem: key + " cannot be read", Proof: e.bad.Error(),
				Kept: "nobody knows which addresses it has: compare it with a backup, or delete it by hand if nothing uses its addresses",
			}, key)
		}
	}
}

// block compares a block with itself and with pools.
func (c *checking) block(b *api.Block) {
	key := api.BlockKey(b.CIDR)
	if faults := b.Faults(); len(faults) > 0 {
		c.add(Finding{
			Kind: FoundBlock, Block: b.CIDR.String(), Problem: "its list of free addresses is wrong", Proof: strings.Join(first(faults, 3), "; "),
			Fix: "make the list anew from the allocations", fix: func(m *repair) error { return m.freeList(b.CIDR) },
		}, key)
	}
	if _, owned := b.Owner(); !owned && c.cools.empty(b) {
		c.add(Finding{
			Kind: FoundBlock, Block: b.CIDR.String(), Problem: "is nobody's, and nobody has an address of it", Proof: "it has no affinity, and all of it is free",
			Fix: "delete it", fix: func(m *repair) error { return m.dropBlock(b.CIDR) },
		}, key)
		return
	}
	if _, ok := c.PoolOf(b.CIDR); ok {
		return
	}
	f := Finding{Kind: FoundBlock, Block: b.CIDR.String(), Problem: "belongs to no pool", Proof: "no IPPool contains " + b.CIDR.String()}
	if c.cools.empty(b) {
		f.Fix, f.fix = "delete it: nobody has an address of it", func(m *repair) error { return m.dropBlock(b.CIDR) }
	} else {
		cold, _ := c.cools.count(b)
		f.Kept = count(used(b)+cold, "address") + " of it are in use or cool down; it goes with the last of them, or make a pool for it"
	}
	c.add(f, key)
}

// overlaps finds blocks that have addresses in common, which two could be given.
func (c *checking) overlaps() {
	var last *api.Block // that reaches furthest
	for _, b := range c.Blocks {
		if last != nil && last.CIDR.Overlaps(b.CIDR) {
			c.add(Finding{
				Kind: FoundBlock, Block: b.CIDR.String(), Problem: "overlaps another block",
				Proof: fmt.Sprintf("%s and %s have addresses in common", last.CIDR, b.CIDR), Kept: "release what is in one of them; it goes with its last address and its affinity",
			}, api.BlockKey(b.CIDR), api.BlockKey(last.CIDR))
			continue
		}
		last = b
	}
}

func first(list []string, n int) []string {
	if len(list) > n {
		return append(slices.Clone(list[:n]), "…")
	}
	return list
}

// allocation checks whether an address has a user.
func (c *checking) allocation(l Allocation) {
	if coolingDown(l.Attr) {
		return // released by its user
	}
	handle, block := handleOf(l.Attr), l.Block.CIDR.String()
	if handle == windows {
		return
	}
	if c.have[handle] == nil {
		c.have[handle] = map[string]int{}
	}
	c.have[handle][block]++
	if c.orphans(l, handle) || len(c.users[l.Addr]) > 0 {
		return
	}
	machine, isMachines := l.Machine()
	proof, proven, holds := c.ofMachines(l, machine)
	if !isMachines {
		proof, proven, holds = c.orphan(l, handle)
	}
	if holds {
		return
	}
	f := Finding{
		Kind: FoundLeak, Address: l.Addr, Block: block, Handle: handle, Sequence: l.Block.SequenceOf(l.ord), Owner: describe(l.Attr.Owner),
		Problem: "is allocated, and nobody has it", Proof: proof, node: l.Attr.Owner[api.AttributeNode], note: l.Attr.Owner[api.AttributeNote],
	}
	where, who := whereOf(l.Attr.Owner), userOf(l.Attr.Owner, handle)
	if isMachines { // which no node takes with it, and which is no pod's
		where, who, f.node = "in Kubernetes", machine.String(), ""
	}
	switch age, known := c.age(l.Attr); {
	case !proven:
		c.doubtful[l.Attr.Owner[api.AttributeNode]] = true
		f.Problem = "is allocated, and no endpoint has it"
		f.Kept = fmt.Sprintf("nothing proves that it is leaked: look %s whether %s is still there; `twill ipam release --ip=%s` frees it", where, who, l.Addr)
	case !known && !isMachines && !c.Watches:
		f.Kept = "nothing says how old it is; `twill ipam release --ip=" + l.Addr.String() + "` frees it"
	case known && age < c.Grace:
		f.Kept = fmt.Sprintf("it is %s old, and its endpoint may be on its way (--grace %s)", max(age, 0).Truncate(time.Second), c.Grace)
	default:
		f.Fix = "free it"
		f.fix = func(m *repair) error { return m.freeAddress(l.Addr, l.Block.CIDR, handle, f.Sequence) }
	}
	c.add(f, api.BlockKey(l.Block.CIDR), api.HandleKey(handle))
}

// orphan looks for the owner of an address that no endpoint has. It proves that
// there is none, or that there is one, or neither.
func (c *checking) orphan(l Allocation, handle string) (proof string, proven, holds bool) {
	attrs := l.Attr.Owner
	node := attrs[api.AttributeNode]
	gone := c.absent(node)
	if attrs[api.AttributeService] != "" {
		return c.ofService(attrs, handle)
	}
	if typ := attrs[api.AttributeType]; typ != "" {
		if gone {
			return fmt.Sprintf("it is the %s of node %s, which does not exist", typ, node), true, false
		}
		has, known := tunnelOf(c.nodes[node], typ)
		switch {
		case !known:
			return fmt.Sprintf("it is the %s of node %s, of which nothing is known", typ, node), false, false
		case has == l.Addr.String():
			return "", true, true
		case has == "":
			return fmt.Sprintf("it is the %s of node %s, which has none", typ, node), true, false
		}
		return fmt.Sprintf("it is the %s of node %s, which has %s", typ, node, has), true, false
	}
	user := userOf(attrs, handle)
	switch {
	case gone && (l.IsPods() || c.dead(node)):
		return fmt.Sprintf("it was given to %s of node %s, which does not exist, and no WorkloadEndpoint has it", user, node), true, false
	case c.pod(attrs).None:
		return "it was given to " + user + ", which Kubernetes does not have, and no WorkloadEndpoint has it", true, false
	case c.replaced(attrs, handle) != "":
		return "it was given to a container of " + user + ", which has another container now, " + c.replaced(attrs, handle), true, false
	case attrs[api.AttributeNote] == NoteContainer && l.IsPods() && c.shown[handle]:
		// Kubernetes' status of a pod may have one family alone.
		return "it was given to " + user + ", an endpoint has another address of the same handle, and may not show all of them", false, false
	case attrs[api.AttributeNote] == NoteContainer:
		return "it was given to " + user + ", which was to have a WorkloadEndpoint, and none has it", true, false
	case c.lacks(attrs, handle) != "":
		return "it was given to " + user + ", which " + c.lacks(attrs, handle) + ", and no WorkloadEndpoint has it", true, false
	case gone:
		return fmt.Sprintf("it was given to %s of node %s, which does not exist, and nothing says whether that host lives", user, node), false, false
	case attrs[api.AttributeNote] == NoteDocker:
		return "", true, true
	}
	// The absence of an endpoint proves something only of who was promised one: under another main plugin a container that
	// runs has none. Nor does that of a handle, which somebody may have deleted.
	return "no WorkloadEndpoint has it, and nothing says that " + user + " was to have one", false, false
}

// userOf describes the user of an address, as far as it is known.
func userOf(attrs map[string]string, handle string) string {
	pod, namespace := attrs[api.AttributePod], attrs[api.AttributeNamespace]
	switch {
	case attrs[api.AttributeService] != "":
		return "service " + namespace + "/" + attrs[api.AttributeService]
	case pod != "" && namespace != "":
		return namespace + "/" + pod
	case handle != "":
		return "the container of handle " + handle
	}
	return "its user"
}

// age is how long ago an address was given out, where that was written down.
func (c *checking) age(attr *api.BlockAttribute) (time.Duration, bool) {
	text, _, _ := strings.Cut(attr.Owner[api.AttributeTimestamp], " m=") // Go's monotonic clock
	for _, layout := range []string{"2006-01-02 15:04:05.999999999 -0700 MST", time.RFC3339Nano} {
		if t, err := time.Parse(layout, text); err == nil {
			return c.Now.Sub(t), true
		}
	}
	return 0, false
}

func describe(owner map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(owner)) {
		if k != api.AttributeTimestamp {
			out = append(out, k+"="+owner[k])
		}
	}
	return strings.Join(out, " ")
}

// handles compares what handles count with what blocks have.
func (c *checking) handles() {
	ids := map[string]bool{}
	for _, key := range c.sortedKeys(api.HandlePrefix) {
		if id, ok := api.ParseHandleKey(key); ok && c.docs[key].handle != nil && c.docs[key].bad == nil {
			ids[id] = true
		}
	}
	for id := range c.have {
		if id != "" && (c.docs[api.HandleKey(id)] == nil || c.docs[api.HandleKey(id)].bad == nil) {
			ids[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		c.handle(id)
	}
}

func (c *checking) handle(id string) {
	counts := map[string]int{}
	e := c.docs[api.HandleKey(id)]
	if e != nil {
		counts = e.handle.Block
	}
	keys := []string{api.HandleKey(id)}
	var wrong []string
	both := maps.Clone(counts)
	maps.Copy(both, c.have[id])
	for _, block := range slices.Sorted(maps.Keys(both)) {
		p, err := netip.ParsePrefix(block)
		if err == nil {
			if b := c.docs[api.BlockKey(p)]; b != nil && b.bad != nil {
				return // the block cannot be read, and the handle may be right
			}
			keys = append(keys, api.BlockKey(p))
		}
		if counts[block] != c.have[id][block] {
			wrong = append(wrong, fmt.Sprintf("it counts %d of %s, which has %d", counts[block], block, c.have[id][block]))
		}
	}
	if len(wrong) == 0 && (e == nil || len(e.handle.Block) > 0) {
		return
	}
	f := Finding{Kind: FoundHandle, Handle: id, Problem: "counts other than blocks have", Proof: strings.Join(first(wrong, 3), "; "), Fix: "count anew"}
	switch {
	case e == nil:
		f.Problem, f.Fix = "does not exist, and addresses are its", "make it, with its count"
	case len(c.have[id]) == 0:
		f.Problem, f.Fix = "has no address", "delete it"
		if len(wrong) == 0 {
			f.Proof = "it counts none, and no block has one"
		}
	}
	have := maps.Clone(c.have[id])
	f.fix = func(m *repair) error { return m.recount(id, have) }
	c.add(f, keys...)
}

// claims compares affinities with blocks and nodes.
func (c *checking) claims() {
	for _, key := range c.sortedKeys(api.IPAMPrefix) {
		own, p, ok := api.ParseAffinityKey(key)
		if !ok {
			continue
		}
		f := Finding{Kind: FoundClaim, Block: p.String(), Owner: own.String()}
		e := c.docs[api.BlockKey(p)]
		if e != nil && e.bad != nil {
			continue
		}
		state := ""
		if a := c.docs[key].affinity; a != nil && c.docs[key].bad == nil {
			state = a.State
		}
		switch has, owned := claimant(e); {
		case e == nil || !owned || has != own:
			f.Problem, f.Proof = "is claimed, and is not its", fmt.Sprintf("the block is %s's", has.Name)
			if e == nil {
				f.Proof = "the block does not exist"
			} else if !owned {
				f.Proof = "the block is nobody's"
			}
			f.Fix, f.fix = "delete the claim", func(m *repair) error { return m.dropClaim(own, p) }
		case state != api.AffinityConfirmed && state != "":
			f.Problem, f.Proof = "is claimed, and not confirmed", fmt.Sprintf("its state is %s, and the block is its", state)
			f.Fix, f.fix = "confirm it", func(m *repair) error { return m.confirm(own, p) }
		default:
			continue
		}
		c.add(f, key, api.BlockKey(p))
	}
	for _, b := range c.Blocks {
		c.owner(b)
	}
}

func claimant(e *doc) (api.Owner, bool) {
	if e == nil {
		return api.Owner{}, false
	}
	return Owner(e.block)
}

// owner checks whether a block's owner exists and has an affinity to it.
func (c *checking) owner(b *api.Block) {
	own, ok := b.Owner()
	if !ok {
		return
	}
	key := api.AffinityKey(own, b.CIDR)
	f := Finding{Kind: FoundClaim, Block: b.CIDR.String(), Owner: own.String()}
	switch {
	case c.lost(own):
		f.Problem, f.Proof = "is a block of a node that is gone", fmt.Sprintf("the datastore has no node %s, and no endpoint on it", own.Name)
		if c.dead(own.Name) {
			f.Proof = fmt.Sprintf("the datastore has no node %s, and its last report has expired", own.Name)
		}
		f.Fix, f.fix = "give it up", func(m *repair) error { return m.giveUp(own, b.CIDR) }
	case c.docs[key] == nil:
		f.Problem, f.Proof = "is its, and not claimed", key+" does not exist"
		f.Fix, f.fix = "write the claim", func(m *repair) error { return m.confirm(own, b.CIDR) }
	default:
		return
	}
	c.add(f, key, api.BlockKey(b.CIDR))
}

// endpoints finds addresses of two endpoints, and addresses that are not allocated.
func (c *checking) endpoints() {
	for _, a := range slices.SortedFunc(maps.Keys(c.users), netip.Addr.Compare) {
		us := c.users[a]
		if len(us) > 1 {
			c.add(Finding{
				Kind: FoundEndpoint, Address: a, Owner: us[0].ref.String(), Problem: "is the address of several endpoints",
				Proof: fmt.Sprintf("%s and %s have it", us[0].ref, us[1].ref), Kept: "delete the endpoint that is not there any more",
			})
		}
		c.unallocated(a, us[0])
	}
}

// unallocated finds an endpoint's address that the blocks do not know as used. One that is reserved is given to nobody.
func (c *checking) unallocated(a netip.Addr, u user) {
	pool, ok := c.PoolOf(netip.PrefixFrom(a, a.BitLen()))
	if !ok || slices.ContainsFunc(c.reserved, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return
	}
	block, err := a.Prefix(pool.size)
	risk := fmt.Sprintf("pool %s may give it to another", pool.Name)
	for _, b := range c.odd {
		if b.Contains(a) { // the pool makes no block that overlaps this one
			block, risk = b, fmt.Sprintf("whoever asks for this very address gets it: it is free in block %s of a former pool", b)
		}
	}
	e := c.docs[api.BlockKey(block)]
	if err != nil || e != nil && e.bad != nil {
		return
	}
	if e != nil && e.block != nil {
		if ord, ok := e.block.Ordinal(a); ok && e.block.Attribute(ord) != nil && !coolingDown(e.block.Attribute(ord)) {
			return
		}
	}
	c.add(Finding{
		Kind: FoundEndpoint, Address: a, Block: block.String(), Owner: u.ref.String(), Problem: "is an endpoint's, and not allocated",
		Proof: fmt.Sprintf("%s has it, and %s", u.ref, risk),
		Kept:  "make the endpoint anew, or keep its address from being given out with an IPReservation",
	}, api.BlockKey(block))
}
