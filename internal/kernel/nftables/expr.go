package nftables

// Expr is one expression of a rule. The types of this package are the only ones.
type Expr interface {
	// String is the canonical text: equal texts are equal expressions, apart from counters.
	String() string
	kernelName() string
	encode(*encoder)
}

// Reg is a register, counted in words of 4 bytes: an IPv6 address takes four of them. The zero value is the first.
type Reg uint32

// The four registers of 16 bytes. For the fields of a concatenation use R1, R1+n/4, … (each field takes whole words).
const (
	R1 Reg = 0
	R2 Reg = 4
	R3 Reg = 8
	R4 Reg = 12
)

// MetaKey is a fact about a packet that is not in its bytes.
type MetaKey uint32

// Meta keys. Values are in host byte order, names are padded to 16 bytes: see U32 and Ifname.
const (
	MetaLen      MetaKey = 0
	MetaProtocol MetaKey = 1
	MetaPriority MetaKey = 2
	MetaMark     MetaKey = 3
	MetaIIF      MetaKey = 4
	MetaOIF      MetaKey = 5
	MetaIIFName  MetaKey = 6
	MetaOIFName  MetaKey = 7
	MetaSKUID    MetaKey = 10
	MetaSKGID    MetaKey = 11
	MetaNFTrace  MetaKey = 13
	MetaNFProto  MetaKey = 15
	MetaL4Proto  MetaKey = 16
	MetaPktType  MetaKey = 19
)

// Meta loads a fact about the packet.
type Meta struct {
	Key MetaKey
	Reg Reg
}

// SetMeta sets a fact about the packet (MetaMark, MetaPriority, …) from a register.
type SetMeta struct {
	Key MetaKey
	Reg Reg
}

// PayloadBase is where an offset counts from.
type PayloadBase uint32

// Bases.
const (
	LinkHeader      PayloadBase = 0
	NetworkHeader   PayloadBase = 1
	TransportHeader PayloadBase = 2
)

// Payload loads bytes of the packet; a packet too short does not match.
type Payload struct {
	Base        PayloadBase
	Offset, Len uint32
	Reg         Reg
}

// Write puts a register into the packet.
type Write struct {
	Base        PayloadBase
	Offset, Len uint32
	Reg         Reg
	Checksum    bool // keep that of the IPv4 header right
}

// Op is a comparison.
type Op uint32

// Comparisons. Ordering is that of bytes, so only big-endian values compare well.
const (
	Eq Op = iota
	Neq
	Lt
	Lte
	Gt
	Gte
)

// Cmp compares a register with a constant; the length of Data says how much of it.
type Cmp struct {
	Op   Op
	Data []byte
	Reg  Reg
}

// Range matches if a register is within From and To, both included (or, with Not, outside).
type Range struct {
	Not      bool
	From, To []byte
	Reg      Reg
}

// Bitwise computes Dst = (Reg & Mask) ^ Xor.
type Bitwise struct {
	Mask, Xor []byte
	Reg, Dst  Reg
}

// Lookup matches if a register is in a set of the same table.
type Lookup struct {
	Set string
	Not bool
	Reg Reg
}

// LookupVerdict ends the rule with the verdict that a verdict map has for the register, if any.
type LookupVerdict struct {
	Map string
	Reg Reg
}

// LookupData loads what a map has for the register; it does not match if there is nothing.
type LookupData struct {
	Map      string
	Reg, Dst Reg
}

// In is a lookup in an anonymous set, which exists as long as its rule. Only Key, Interval and Data of Set are used. One with Interval
// matches nothing for a moment after its rule is in force: see MatchAddrs.
// With Set.Data TypeVerdict it is a verdict map; with other data it loads Dst.
type In struct {
	Set      Set
	Elements []Element
	Not      bool
	Reg, Dst Reg
}

// Load puts a constant into a register.
type Load struct {
	Data []byte
	Reg  Reg
}

// Counter counts packets and bytes.
type Counter struct {
	Packets, Bytes uint64
}

// CTKey is a fact about the connection of a packet.
type CTKey uint32

// Conntrack keys.
const (
	CTState     CTKey = 0
	CTDirection CTKey = 1
	CTStatus    CTKey = 2
	CTMark      CTKey = 3
	CTL3Proto   CTKey = 7
	CTProtocol  CTKey = 10
	CTProtoSrc  CTKey = 11
	CTProtoDst  CTKey = 12
	CTSrcIPv4   CTKey = 19
	CTDstIPv4   CTKey = 20
	CTSrcIPv6   CTKey = 21
	CTDstIPv6   CTKey = 22
)

// Values of CTState, of CTStatus and of CTDirection.
const (
	StateInvalid     uint32 = 1
	StateEstablished uint32 = 2
	StateRelated     uint32 = 4
	StateNew         uint32 = 8
	StateUntracked   uint32 = 64

	StatusExpected uint32 = 1 // another connection announced this one

	StatusSNAT uint32 = 1 << 4
	StatusDNAT uint32 = 1 << 5

	DirOriginal uint8 = 0
	DirReply    uint8 = 1
)

// CT loads a fact about the packet's connection.
type CT struct {
	Key CTKey
	Dir *uint8 // needed by addresses and ports: DirOriginal or DirReply
	Reg Reg
}

// SetCT sets a fact about the packet's connection (CTMark) from a register.
type SetCT struct {
	Key CTKey
	Reg Reg
}

// FibFlags choose what a route lookup starts from.
type FibFlags uint32

// Flags of Fib.
const (
	FibSaddr   FibFlags = 1
	FibDaddr   FibFlags = 2
	FibMark    FibFlags = 4
	FibIIF     FibFlags = 8
	FibOIF     FibFlags = 16
	FibPresent FibFlags = 32 // the result is U32(1) or U32(0): whether there is a route
)

// FibResult selects the result of a route lookup.
type FibResult uint32

// Results of Fib.
const (
	FibResultOIF      FibResult = 1
	FibResultOIFName  FibResult = 2
	FibResultAddrType FibResult = 3 // RTN_LOCAL = 2, RTN_UNICAST = 1, …
)

// Fib loads the result of a route lookup.
type Fib struct {
	Flags  FibFlags
	Result FibResult
	Reg    Reg
}

// NFLog sends a copy of the packet to a netlink group.
type NFLog struct {
	Group     uint16
	Prefix    string // at most 127 bytes
	Snaplen   uint32 // bytes of the packet to copy; zero: all
	Threshold uint16
}

// Limit matches while the rate is not exceeded (or, with Over, only when it is).
type Limit struct {
	Rate  uint64 // packets (or bytes) in PerSeconds
	Per   uint64 // seconds; zero means 1
	Burst uint32
	Bytes bool
	Over  bool
}

// ConnLimit matches packets of connections as long as this rule has seen no more than Count that still are in conntrack (or, with Over, only of
// those that are more). It counts the connection of the packet, if that is new; a rule that is made again begins at none.
type ConnLimit struct {
	Count uint32
	Over  bool
}

// Kinds of Reject.
const (
	RejectICMP  uint32 = 0
	RejectReset uint32 = 1
	RejectICMPX uint32 = 2
)

// Codes of RejectICMPX, which say in both families: port unreachable, and administratively prohibited (enum nft_reject_inet_code of
// linux/netfilter/nf_tables.h).
const (
	PortICMPX       uint8 = 1
	ProhibitedICMPX uint8 = 3
)

// Reject drops the packet and notifies the sender. The kernel takes it in chains that only prerouting, input, forward and
// output lead to.
type Reject struct {
	Type uint32
	Code uint8
}

// Flags of Masq and NAT.
const (
	NATRandom      uint32 = 1 << 2
	NATPersistent  uint32 = 1 << 3
	NATFullyRandom uint32 = 1 << 4
)

// Masq sets the source address to that of the outgoing interface; the registers, when given, hold the range of ports.
type Masq struct {
	Flags              uint32
	ProtoMin, ProtoMax *Reg
}

// NAT rewrites the destination (or, with Source, the source) from registers.
type NAT struct {
	Source             bool
	Family             Family // FamilyIPv4 or FamilyIPv6
	AddrMin, AddrMax   *Reg
	ProtoMin, ProtoMax *Reg
	Flags              uint32
}

// Redirect sends the packet to the host itself.
type Redirect struct {
	ProtoMin, ProtoMax *Reg
	Flags              uint32
}

// NoTrack keeps the packet out of conntrack.
type NoTrack struct{}

// Raw is an expression that this package reads but does not understand: its attributes as the kernel gave them.
type Raw struct {
	Name string
	Data []byte
}
