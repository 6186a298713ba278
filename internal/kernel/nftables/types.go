// Package nftables writes nftables transactions over netlink, and reads tables back.
//
// A Batch collects operations; Conn.Commit sends it as one message and the kernel applies all of it or nothing. What
// fails is named: a BatchError lists each operation with its errno. Conn.List reads a table back into the same values,
// and Ruleset.Canonical gives a text by which two kernel states can be compared.
//
// Nothing else imports netlink for nftables. Messages are encoded here because the usual library lost set elements
// without an error, and forked tools cost 10 to 1,000 times more.
package nftables

import "golang.org/x/sys/unix"

// Family is the address family of a table. The zero value of every field of this type means FamilyINet.
type Family uint8

// Families of tables, and values of MetaNFProto.
const (
	FamilyINet   Family = unix.NFPROTO_INET
	FamilyIPv4   Family = unix.NFPROTO_IPV4
	FamilyARP    Family = unix.NFPROTO_ARP
	FamilyNetdev Family = unix.NFPROTO_NETDEV
	FamilyBridge Family = unix.NFPROTO_BRIDGE
	FamilyIPv6   Family = unix.NFPROTO_IPV6
)

// Table is a table.
type Table struct {
	Name    string
	Comment string
	Flags   TableFlags
	Handle  uint64 // only read
	Owner   uint32 // only read: the netlink port of the socket that owns it; zero: none does
	Mine    bool   // only read: the Conn that read it owns it
}

// HookNum is where in the stack a base chain is called.
type HookNum uint32

// Hooks of the ip, ip6 and inet families.
const (
	HookPrerouting HookNum = iota
	HookInput
	HookForward
	HookOutput
	HookPostrouting
)

// Types of base chains.
const (
	TypeFilter = "filter"
	TypeNAT    = "nat"
	TypeRoute  = "route"
)

// Hook makes a chain a base chain.
type Hook struct {
	Type     string // TypeFilter, TypeNAT, TypeRoute
	Hook     HookNum
	Priority int32
	Policy   VerdictCode // VerdictDrop or VerdictAccept, what happens to packets that reach the end. Zero drops.
}

// Chain is a chain.
type Chain struct {
	Table, Name string
	Base        *Hook // nil: a regular chain, reached by jump, goto or a verdict map
	Comment     string
	Handle      uint64 // only read
}

// Rule is a rule. Its expressions run from left to right; the first one that does not match ends it.
type Rule struct {
	Table, Chain string
	Exprs        []Expr
	Comment      string
	Handle       uint64 // only read, except by ReplaceRule and DeleteRule, which need it
}

// Type is the type of a set's key or data, as nft numbers them. A concatenation is one too: see Concat.
type Type uint32

// Types of keys and data. TypeVerdict is for data only.
const (
	TypeNone          Type = 0
	TypeVerdict       Type = 1
	TypeNFProto       Type = 2
	TypeInteger       Type = 4
	TypeIPv4Addr      Type = 7
	TypeIPv6Addr      Type = 8
	TypeEtherAddr     Type = 9
	TypeInetProto     Type = 12
	TypeInetService   Type = 13
	TypeICMPType      Type = 14
	TypeMark          Type = 19
	TypeIfindex       Type = 20
	TypeClassID       Type = 23
	TypeCTState       Type = 26
	TypeICMPv6Type    Type = 29
	TypeFibAddr       Type = 38
	TypeIfname        Type = 41
	typeBits               = 6
	typeFieldsMaximum      = 5
)

// Set is a set, or, when Data is not TypeNone, a map.
type Set struct {
	Table, Name string
	Key         Type
	// Interval sets hold ranges. With a simple key the kernel keeps a tree, and ranges must not overlap; with a concatenation each
	// field is a range, and they may. One that is new matches nothing until the end of its transaction: see MatchAddrs.
	Interval bool
	Data     Type   // TypeNone: a plain set. TypeVerdict: a verdict map.
	Constant bool   // no element may change after the transaction that made it
	Counter  bool   // each element counts its packets
	Size     uint32 // zero: no limit. Beyond it the whole transaction fails.
	Comment  string
	Handle   uint64 // only read
}

// Element is an element of a set or map. Make keys with KeyPort, … and KeyConcat, or Prefix and Range.
type Element struct {
	Key []byte
	// End is the last key of an interval, itself included; nil when the interval is one key.
	End      []byte
	CatchAll bool     // matches what no other element does; Key is nil
	Verdict  *Verdict // verdict maps
	Data     []byte   // data maps
	Comment  string
	Counter  *Counter // only read
}

// VerdictCode is what becomes of a packet.
type VerdictCode int32

// Verdicts.
const (
	VerdictDrop     VerdictCode = 0
	VerdictAccept   VerdictCode = 1
	VerdictContinue VerdictCode = -1
	VerdictBreak    VerdictCode = -2
	VerdictJump     VerdictCode = -3
	VerdictGoto     VerdictCode = -4
	VerdictReturn   VerdictCode = -5
)

// Verdict is a verdict; as an expression it ends the rule with it.
type Verdict struct {
	Code  VerdictCode
	Chain string // VerdictJump and VerdictGoto
}

// Accept ends the base chain: the packet passed this stage.
func Accept() Verdict { return Verdict{Code: VerdictAccept} }

// Drop drops the packet.
func Drop() Verdict { return Verdict{Code: VerdictDrop} }

// Return goes back to the chain that jumped here.
func Return() Verdict { return Verdict{Code: VerdictReturn} }

// Jump calls a chain.
func Jump(chain string) Verdict { return Verdict{Code: VerdictJump, Chain: chain} }

// Goto continues in a chain without coming back here.
func Goto(chain string) Verdict { return Verdict{Code: VerdictGoto, Chain: chain} }

// Ruleset is a table as read from the kernel.
type Ruleset struct {
	Exists     bool // false: there is no such table, and all else is empty
	Generation uint32
	Table      Table
	Chains     []Chain    // in the kernel's order
	Rules      []Rule     // chain by chain, in the order in which they run
	Sets       []SetState // anonymous sets are not here but in the In expressions of their rules
}

// SetState is a set with its elements, sorted by key.
type SetState struct {
	Set
	Elements []Element
}
