package api

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Prefixes of the datastore's keys of address management. Unlike resources,
// these values have no kind, version or metadata.
const (
	IPAMPrefix    = Root + "ipam/v2/"
	IPAMConfigKey = IPAMPrefix + "config"
	HandlePrefix  = IPAMPrefix + "handle/"
	BlockPrefix   = IPAMPrefix + "assignment/"
)

// maxBlockBits bounds how many addresses a block is believed to have.
const maxBlockBits = 16

// Block is a range of addresses of one pool, and who has which. An allocation is
// the index of its attributes, or nil if the address is free.
type Block struct {
	CIDR        netip.Prefix     `json:"cidr"`
	Affinity    *string          `json:"affinity"`                      // an Owner; nil: nobody's
	ClaimTime   string           `json:"affinity_claim_time,omitempty"` // RFC 3339; old blocks have none
	Allocations []*int           `json:"allocations"`
	Unallocated []int            `json:"unallocated"` // free ordinals; the first was free longest
	Attributes  []BlockAttribute `json:"attributes"`
	// Sequence grows with every write. What is allocated keeps the number of that time, so that
	// a release that comes late does not hit the address's next owner.
	Sequence  uint64            `json:"sequenceNumber"`
	Sequences map[string]uint64 `json:"sequenceNumberForAllocation"` // by ordinal
	Deleted   bool              `json:"deleted"`                     // Kubernetes' stores alone set it
	// HostAffinity is how old versions wrote an affinity.
	HostAffinity *string `json:"hostAffinity,omitempty"`

	extra []member // what another version wrote and we do not know
}

// BlockAttribute is what is known of one or more allocations.
type BlockAttribute struct {
	Handle     *string           `json:"handle_id,omitempty"`
	Owner      map[string]string `json:"secondary,omitempty"` // pod, namespace, node, type, timestamp
	Alternate  map[string]string `json:"alternate,omitempty"` // the other end of a live migration
	ReleasedAt string            `json:"releasedAt,omitempty"`

	extra []member
}

// Keys of a BlockAttribute's Owner.
const (
	AttributePod       = "pod"
	AttributeNamespace = "namespace"
	AttributeNode      = "node"
	AttributeType      = "type"
	AttributeService   = "service"
	AttributeTimestamp = "timestamp"
	AttributeNote      = "note"
	// Of an address of a virtual machine of KubeVirt's: its VirtualMachineInstance, the VirtualMachine that owns that, and the migration
	// for which a pod was made.
	AttributeInstance    = "vmi-name"
	AttributeInstanceUID = "vmi-uid"
	AttributeMachineUID  = "vm-uid"
	AttributeMigration   = "vmim-uid"
	// AttributeNetwork and AttributeInterface say for which attachment of a container an address is: the network's name, and the interface in
	// the container. Upstream writes neither.
	AttributeNetwork   = "network"
	AttributeInterface = "interface"
)

// Handle counts the addresses of one user, by block.
type Handle struct {
	Block   map[string]int `json:"block"`
	Deleted bool           `json:"deleted"`

	extra []member
}

// States of an affinity. Old versions wrote none.
const (
	AffinityConfirmed       = "confirmed"
	AffinityPending         = "pending"
	AffinityPendingDeletion = "pendingDeletion"
)

// Affinity says how far a claim to a block has come. Whose it is, is in its key.
type Affinity struct {
	State   string `json:"state"`
	Deleted bool   `json:"deleted"`

	extra []member
}

// IPAMConfig is the cluster's address management.
type IPAMConfig struct {
	StrictAffinity     bool `json:"strict_affinity,omitempty"`      // no borrowing
	AutoAllocateBlocks bool `json:"auto_allocate_blocks,omitempty"` // hosts may claim blocks
	MaxBlocksPerHost   int  `json:"maxBlocksPerHost,omitempty"`     // of one family; zero: the allocator's own limit
	CooldownSeconds    int  `json:"ipCooldownSeconds,omitempty"`    // for which a released address rests
	// MachinePersistence says whether virtual machines of KubeVirt's keep their addresses: PersistenceEnabled, also if it is empty, or
	// PersistenceDisabled.
	MachinePersistence string `json:"kubeVirtVMAddressPersistence,omitempty"`

	extra []member
}

// Values of kubeVirtVMAddressPersistence.
const (
	PersistenceEnabled  = "Enabled"
	PersistenceDisabled = "Disabled"
)

// KeepsMachineAddresses reports whether a virtual machine of KubeVirt's keeps its addresses over its pods.
func (c IPAMConfig) KeepsMachineAddresses() bool { return c.MachinePersistence != PersistenceDisabled }

// DefaultIPAMConfig is what holds when nothing is stored.
func DefaultIPAMConfig() IPAMConfig { return IPAMConfig{AutoAllocateBlocks: true} }

// UnmarshalJSON is part of json.Unmarshaler; likewise below.
func (b *Block) UnmarshalJSON(raw []byte) (err error) {
	type plain Block
	b.extra, err = unmarshalKeeping(raw, (*plain)(b), "cidr", "affinity", "affinity_claim_time", "allocations", "unallocated",
		"attributes", "sequenceNumber", "sequenceNumberForAllocation", "deleted", "hostAffinity")
	return err
}

// MarshalJSON is part of json.Marshaler; likewise below.
func (b Block) MarshalJSON() ([]byte, error) {
	type plain Block
	return marshalWith(plain(b), b.extra)
}

// UnmarshalJSON keeps what it does not know.
func (a *BlockAttribute) UnmarshalJSON(raw []byte) (err error) {
	type plain BlockAttribute
	a.extra, err = unmarshalKeeping(raw, (*plain)(a), "handle_id", "secondary", "alternate", "releasedAt")
	return err
}

// MarshalJSON writes what was kept, too.
func (a BlockAttribute) MarshalJSON() ([]byte, error) {
	type plain BlockAttribute
	return marshalWith(plain(a), a.extra)
}

// UnmarshalJSON keeps what it does not know.
func (h *Handle) UnmarshalJSON(raw []byte) (err error) {
	type plain Handle
	h.extra, err = unmarshalKeeping(raw, (*plain)(h), "block", "deleted")
	return err
}

// MarshalJSON writes what was kept, too.
func (h Handle) MarshalJSON() ([]byte, error) {
	type plain Handle
	return marshalWith(plain(h), h.extra)
}

// UnmarshalJSON keeps what it does not know.
func (a *Affinity) UnmarshalJSON(raw []byte) (err error) {
	type plain Affinity
	a.extra, err = unmarshalKeeping(raw, (*plain)(a), "state", "deleted")
	return err
}

// MarshalJSON writes what was kept, too.
func (a Affinity) MarshalJSON() ([]byte, error) {
	type plain Affinity
	return marshalWith(plain(a), a.extra)
}

// UnmarshalJSON keeps what it does not know.
func (c *IPAMConfig) UnmarshalJSON(raw []byte) (err error) {
	type plain IPAMConfig
	c.extra, err = unmarshalKeeping(raw, (*plain)(c), "strict_affinity", "auto_allocate_blocks", "maxBlocksPerHost", "ipCooldownSeconds", "kubeVirtVMAddressPersistence")
	return err
}

// MarshalJSON writes what was kept, too.
func (c IPAMConfig) MarshalJSON() ([]byte, error) {
	type plain IPAMConfig
	return marshalWith(plain(c), c.extra)
}

func unmarshalKeeping(raw []byte, into any, known ...string) ([]member, error) {
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, err
	}
	ms, _ := members(raw) // null has none
	return slices.DeleteFunc(ms, func(m member) bool { return slices.Contains(known, m.name) }), nil
}

func marshalWith(v any, extra []member) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil || len(extra) == 0 {
		return raw, err
	}
	sep := ","
	if raw = raw[:len(raw)-1]; len(raw) == 1 {
		sep = ""
	}
	for _, m := range extra {
		raw = fmt.Appendf(raw, "%s%s:%s", sep, quoted(m.name), m.value)
		sep = ","
	}
	return append(raw, '}'), nil
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // text always encodes
	return b
}

// DecodeBlock reads a block whose allocations can be trusted to be within it.
// What is amiss beyond that, [Block.Faults] tells.
func DecodeBlock(u Update) (*Block, error) {
	b, err := decodeBlock(u)
	if err == nil {
		err = b.wrong(u.Key)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// decodeBlock reads a block, of which allocations may be wrong.
func decodeBlock(u Update) (*Block, error) {
	key, ok := ParseBlockKey(u.Key)
	if !ok {
		return nil, fmt.Errorf("%s: not the key of a block", u.Key)
	}
	b := &Block{}
	if err := decodeValue(u, b); err != nil {
		return nil, err
	}
	switch {
	case b.CIDR != key:
		return nil, fmt.Errorf("%s: is the block %s", u.Key, b.CIDR)
	case b.CIDR.Addr().BitLen()-b.CIDR.Bits() > maxBlockBits:
		return nil, fmt.Errorf("%s: more than 2^%d addresses are no block", u.Key, maxBlockBits)
	}
	if b.Affinity == nil && b.HostAffinity != nil {
		own := Owner{OwnerHost, *b.HostAffinity}.String()
		b.Affinity, b.HostAffinity = &own, nil
	}
	return b, nil
}

// wrong returns what is wrong with a block's allocations.
func (b *Block) wrong(key string) error {
	if len(b.Allocations) != b.Size() {
		return fmt.Errorf("%s: has %d allocations, want %d", key, len(b.Allocations), b.Size())
	}
	for ord, at := range b.Allocations {
		if at != nil && (*at < 0 || *at >= len(b.Attributes)) {
			return fmt.Errorf("%s: allocation %d refers to attributes %d of %d", key, ord, *at, len(b.Attributes))
		}
	}
	return nil
}

// BlockOwner reads only whose a block is: false if it is nobody's. Those who route
// need no more, and a block changes with each of its addresses.
func BlockOwner(u Update) (netip.Prefix, Owner, bool, error) {
	p, ok := ParseBlockKey(u.Key)
	if !ok {
		return netip.Prefix{}, Owner{}, false, fmt.Errorf("%s: not the key of a block", u.Key)
	}
	var b struct {
		CIDR         netip.Prefix `json:"cidr"`
		Affinity     *string      `json:"affinity"`
		HostAffinity *string      `json:"hostAffinity"`
	}
	if err := decodeValue(u, &b); err != nil {
		return p, Owner{}, false, err
	}
	switch {
	case b.CIDR != p:
		return p, Owner{}, false, fmt.Errorf("%s: is the block %s", u.Key, b.CIDR)
	case b.Affinity != nil:
		own, ok := ParseOwner(*b.Affinity)
		if !ok && *b.Affinity != "" && (own.Name == "" || own.Type == "") {
			return p, Owner{}, false, fmt.Errorf("%s: affinity is %q: want the kind of an owner and its name, as in host:NODE", u.Key, clip(*b.Affinity))
		}
		return p, own, ok, nil
	case b.HostAffinity != nil:
		return p, Owner{OwnerHost, *b.HostAffinity}, true, nil
	}
	return p, Owner{}, false, nil
}

// DecodeHandle reads a handle.
func DecodeHandle(u Update) (*Handle, error) {
	h := &Handle{}
	err := decodeValue(u, h)
	if h.Block == nil {
		h.Block = map[string]int{}
	}
	return h, err
}

// DecodeAffinity reads the state of a claim. One without a value is of an old
// version, which knew no states.
func DecodeAffinity(u Update) (*Affinity, error) {
	a := &Affinity{}
	if len(u.Value) == 0 {
		return a, nil
	}
	return a, decodeValue(u, a)
}

// DecodeIPAMConfig reads the configuration.
func DecodeIPAMConfig(u Update) (IPAMConfig, error) {
	c := IPAMConfig{}
	return c, decodeValue(u, &c)
}

func decodeValue(u Update, into any) error {
	if u.Value == nil {
		return fmt.Errorf("%s: no value", u.Key)
	}
	if len(u.Value) > MaxValue {
		return fmt.Errorf("%s: has %d bytes: at most %d are read", u.Key, len(u.Value), MaxValue)
	}
	if err := json.Unmarshal(u.Value, into); err != nil {
		return fmt.Errorf("%s: %w", u.Key, err)
	}
	return nil
}

// Size is how many addresses the block has.
func (b *Block) Size() int { return 1 << (b.CIDR.Addr().BitLen() - b.CIDR.Bits()) }

// Owner is who has the block; false if nobody has.
func (b *Block) Owner() (Owner, bool) {
	if b.Affinity == nil {
		return Owner{}, false
	}
	return ParseOwner(*b.Affinity)
}

// Attribute returns what is known of an allocation; nil if the address is free.
func (b *Block) Attribute(ord int) *BlockAttribute {
	if at := b.Allocations[ord]; at != nil {
		return &b.Attributes[*at]
	}
	return nil
}

// SequenceOf is the block's sequence number at the time of an allocation.
func (b *Block) SequenceOf(ord int) uint64 { return b.Sequences[strconv.Itoa(ord)] }

// Addr returns the address of an ordinal.
func (b *Block) Addr(ord int) netip.Addr {
	raw := b.CIDR.Addr().AsSlice()
	for i := len(raw) - 1; ord > 0; i-- { // a block is aligned, so nothing carries
		raw[i] |= byte(ord)
		ord >>= 8
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// Ordinal returns where in the block an address is.
func (b *Block) Ordinal(a netip.Addr) (int, bool) {
	if !b.CIDR.Contains(a) {
		return 0, false
	}
	raw, base := a.AsSlice(), b.CIDR.Addr().AsSlice()
	ord := 0
	for i := range raw {
		ord = ord<<8 | int(raw[i]^base[i])
	}
	return ord, true
}

// Faults are contradictions within the block.
func (b *Block) Faults() []string {
	var out []string
	seen := map[int]bool{}
	for _, ord := range b.Unallocated {
		switch {
		case ord < 0 || ord >= len(b.Allocations):
			out = append(out, fmt.Sprintf("free list has %d, which is not in the block", ord))
		case seen[ord]:
			out = append(out, fmt.Sprintf("free list has %s twice", b.Addr(ord)))
		case b.Allocations[ord] != nil:
			out = append(out, fmt.Sprintf("%s is allocated and in the free list", b.Addr(ord)))
		}
		seen[ord] = true
	}
	for ord, at := range b.Allocations {
		if at == nil && !seen[ord] {
			out = append(out, fmt.Sprintf("%s is neither allocated nor in the free list", b.Addr(ord)))
		}
	}
	return out
}

// Types of owners.
const (
	OwnerHost    = "host"
	OwnerVirtual = "virtual" // a controller that gives addresses to load balancers
)

// Owner is who can have blocks: a host, or something that stands for one.
type Owner struct{ Type, Name string }

// String is how a block names its owner: host:h1.
func (o Owner) String() string { return o.Type + ":" + o.Name }

// ParseOwner reads what String writes.
func ParseOwner(s string) (Owner, bool) {
	typ, name, ok := strings.Cut(s, ":")
	return Owner{typ, name}, ok && name != "" && (typ == OwnerHost || typ == OwnerVirtual)
}

// BlockKey is the datastore key of a block.
func BlockKey(p netip.Prefix) string { return BlockPrefix + family(p.Addr()) + "/block/" + cidrName(p) }

// BlocksPrefix is that of all blocks of the address's family.
func BlocksPrefix(a netip.Addr) string { return BlockPrefix + family(a) + "/block/" }

// ParseBlockKey reads the key of a block.
func ParseBlockKey(key string) (netip.Prefix, bool) {
	rest, ok := strings.CutPrefix(key, BlockPrefix)
	return parseFamily(rest, ok)
}

// AffinityKey is the datastore key of an owner's claim to a block.
func AffinityKey(o Owner, p netip.Prefix) string {
	return AffinitiesPrefix(o) + family(p.Addr()) + "/block/" + cidrName(p)
}

// AffinitiesPrefix is that of all claims of an owner.
func AffinitiesPrefix(o Owner) string { return IPAMPrefix + o.Type + "/" + o.Name + "/" }

// ParseAffinityKey reads the key of a claim.
func ParseAffinityKey(key string) (Owner, netip.Prefix, bool) {
	rest, ok := strings.CutPrefix(key, IPAMPrefix)
	typ, rest, ok1 := strings.Cut(rest, "/")
	name, rest, ok2 := strings.Cut(rest, "/")
	p, ok3 := parseFamily(rest, ok && ok1 && ok2)
	return Owner{typ, name}, p, ok3 && name != "" && (typ == OwnerHost || typ == OwnerVirtual)
}

// HandleKey is the datastore key of a handle.
func HandleKey(id string) string { return HandlePrefix + id }

// ParseHandleKey reads the key of a handle.
func ParseHandleKey(key string) (id string, ok bool) {
	id, ok = strings.CutPrefix(key, HandlePrefix)
	return id, ok && id != "" && !strings.Contains(id, "/")
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

// cidrName is a prefix as keys have it: 10.65.0.0-26.
func cidrName(p netip.Prefix) string { return strings.Replace(p.String(), "/", "-", 1) }

// parseFamily reads ipv4/block/10.65.0.0-26.
func parseFamily(rest string, ok bool) (netip.Prefix, bool) {
	fam, name, ok1 := strings.Cut(rest, "/block/")
	p, err := netip.ParsePrefix(strings.Replace(name, "-", "/", 1))
	return p, ok && ok1 && err == nil && p == p.Masked() && fam == family(p.Addr())
}
