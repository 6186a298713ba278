package nftables

import "net/netip"

type encoder struct{}

// Conn is a netlink socket, bound for life to the network namespace in which it was opened. It may be used by many
// goroutines.
type Conn struct{}

// Open opens a socket in the network namespace of the calling thread.
func Open() (*Conn, error) { return nil, nil }

// Close closes the socket.
func (c *Conn) Close() error { return nil }

// GenID is the generation of the ruleset: every committed transaction of anyone adds one.
func (c *Conn) GenID() (uint32, error) { return 0, nil }

// Commit applies a batch, all of it or nothing.
func (c *Conn) Commit(b *Batch) error { return nil }

// List reads a table of the inet family.
func (c *Conn) List(table string) (*Ruleset, error) { return nil, nil }

// Outline is List without the elements of named sets, which may be many.
func (c *Conn) Outline(table string) (*Ruleset, error) { return nil, nil }

// ListSet reads one set with its elements; a set that does not exist is ENOENT.
func (c *Conn) ListSet(table, set string) (SetState, error) { return SetState{}, nil }

// ListTables names the tables of the inet family.
func (c *Conn) ListTables() ([]string, error) { return nil, nil }

// Canonical is a text that is equal for equal rulesets: sorted, without handles and counters, anonymous sets inlined.
// Rules keep their order within a chain, because order is meaning.
func (r *Ruleset) Canonical() string { return "" }

// Rule chain helpers.

// ChainRules are the rules of one chain, in order.
func (r *Ruleset) ChainRules(chain string) []Rule { return nil }

// Set finds a set by name.
func (r *Ruleset) Set(name string) (SetState, bool) { return SetState{}, false }

// Concat is the type of a concatenation; at most five fields.
func Concat(fields ...Type) Type { return 0 }

// Fields are the fields of a concatenation, or the type itself.
func (t Type) Fields() []Type { return nil }

// Len is the length of a value in bytes; fields of concatenations are padded to four. Zero: unknown.
func (t Type) Len() int { return 0 }

// KeyAddr … encode keys and constants.
func KeyAddr(a netip.Addr) []byte { return nil }

// KeyPort is an inet_service.
func KeyPort(p uint16) []byte { return nil }

// KeyProto is an inet_proto, nf_proto or ICMP type: one byte.
func KeyProto(p uint8) []byte { return nil }

// KeyIfname is an interface name, padded to 16 bytes.
func KeyIfname(name string) []byte { return nil }

// U32 is a mark, an interface index, a conntrack state: four bytes in host order.
func U32(v uint32) []byte { return nil }

// KeyConcat joins the fields of a concatenation, each padded to four bytes.
func KeyConcat(fields ...[]byte) []byte { return nil }

// PrefixElement is the interval of a prefix.
func PrefixElement(p netip.Prefix) Element { return Element{} }

// RangeElement is the interval from first to last, both included.
func RangeElement(first, last []byte) Element { return Element{} }

// MergeIntervals joins intervals of a simple key that overlap, which the kernel refuses; adjacent ones stay apart.
// It is for sets: data and verdicts are not looked at.
func MergeIntervals(els []Element) []Element { return nil }

// PrefixElements are the intervals of prefixes of one family, merged where one contains the other.
func PrefixElements(ps []netip.Prefix) []Element { return nil }

// BatchError lists the operations of a batch that failed; nothing of the batch was applied.
type BatchError struct{ Ops []OpError }

// OpError is one operation that failed.
type OpError struct {
	Op     string // "add rule to chain twill/fw"
	Err    error  // the errno
	Detail string // what the kernel said beyond that
	Offset uint32 // of the attribute that it disliked, within the message
}

func (e *BatchError) Error() string { return "" }

// Unwrap makes errors.Is find each errno.
func (e *BatchError) Unwrap() []error { return nil }

// GenerationError: the ruleset was no longer of the generation that the batch asked for.
type GenerationError struct{ Want uint32 }

func (e *GenerationError) Error() string { return "" }

// Helpers that make the usual sequences.

// IPv4Src … load header fields into R1.
func IPv4Src() Payload  { return Payload{} }
func IPv4Dst() Payload  { return Payload{} }
func IPv6Src() Payload  { return Payload{} }
func IPv6Dst() Payload  { return Payload{} }
func SrcPort() Payload  { return Payload{} }
func DstPort() Payload  { return Payload{} }
func ICMPType() Payload { return Payload{} }
func ICMPCode() Payload { return Payload{} }

// In returns p loading into another register.
func (p Payload) In(r Reg) Payload { p.Reg = r; return p }

// MatchNFProto … are the usual conjunctions.
func MatchNFProto(f Family) []Expr             { return nil }
func MatchL4Proto(p uint8) []Expr              { return nil }
func MatchIIFName(name string) []Expr          { return nil }
func MatchOIFName(name string) []Expr          { return nil }
func MatchMark(value, mask uint32) []Expr      { return nil }
func MatchCTMark(value, mask uint32) []Expr    { return nil }
func MatchCTState(states uint32) []Expr        { return nil }
func MatchSrc(p netip.Prefix, not bool) []Expr { return nil }
func MatchDst(p netip.Prefix, not bool) []Expr { return nil }
func SetMarkBits(set, clear uint32) []Expr     { return nil }
func SetCTMarkBits(set, clear uint32) []Expr   { return nil }

func (Meta) String() string     { return "" }
func (Meta) kernelName() string { return "meta" }
func (Meta) encode(*encoder)    {}
