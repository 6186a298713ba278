package nftables

import (
	"golang.org/x/sys/unix"
)

// Message numbers that x/sys does not have.
const (
	msgDestroyTable   = 26
	msgDestroySetElem = 30
)

// Batch is a transaction in the making. Mistakes that can be seen without the kernel (a name too long, a key of the wrong
// length) are kept, and Commit returns them without sending anything. A Batch may be committed again after a failure.
type Batch struct {
	// Family of all objects in the batch; zero means FamilyINet. Set it before the first operation.
	Family Family
	// GenID, when not zero, makes the commit fail with a GenerationError unless the ruleset is still of that generation.
	GenID uint32

	enc   encoder
	ops   []op
	setID uint32
}

// op describes a message for errors, without the cost of formatting.
type op struct {
	verb, kind  string
	table, name string
	at          int // offset of the message in the buffer
	elements    bool
	destroy     bool
	key         Type
}

func (o op) String() string {
	s := o.verb + " " + o.kind + " " + o.table
	if o.name != "" {
		s += "/" + o.name
	}
	return s
}

// NewBatch returns an empty transaction.
func NewBatch() *Batch { return &Batch{} }

// Len is the number of messages so far.
func (b *Batch) Len() int { return len(b.ops) }

// Size is the length of the messages so far, in bytes.
func (b *Batch) Size() int { return len(b.enc.buf) }

// Cap is the memory that the messages may take without more, in bytes.
func (b *Batch) Cap() int { return cap(b.enc.buf) }

// Err is the first mistake so far.
func (b *Batch) Err() error { return b.enc.err }

// Reset empties the batch, keeping its memory.
func (b *Batch) Reset() {
	b.enc = encoder{buf: b.enc.buf[:0]}
	b.ops = b.ops[:0]
	b.setID, b.GenID = 0, 0
}

func (b *Batch) family() uint8 {
	if b.Family == 0 {
		return uint8(FamilyINet)
	}
	return uint8(b.Family)
}

// begin starts a message. Its sequence number is its index; Commit adds the connection's own count.
func (b *Batch) begin(typ, flags uint16, o op) *encoder {
	o.at = len(b.enc.buf)
	b.enc.begin(unix.NFNL_SUBSYS_NFTABLES<<8|typ, unix.NLM_F_REQUEST|flags, b.family(), 0, uint32(len(b.ops)))
	b.ops = append(b.ops, o)
	return &b.enc
}

// AddTable makes a table unless it exists. Without flags, an existing one keeps its own.
func (b *Batch) AddTable(t Table) {
	e := b.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, op{verb: "add", kind: "table", table: t.Name})
	e.checkName("table", t.Name)
	e.str(unix.NFTA_TABLE_NAME, t.Name)
	e.comment(attrTableUserData, t.Comment)
	if t.Flags != 0 {
		e.u32(unix.NFTA_TABLE_FLAGS, uint32(t.Flags))
	}
	e.end()
}

// DeleteTable deletes a table with all that is in it; it must exist.
func (b *Batch) DeleteTable(name string) {
	e := b.begin(unix.NFT_MSG_DELTABLE, 0, op{verb: "delete", kind: "table", table: name})
	e.checkName("table", name)
	e.str(unix.NFTA_TABLE_NAME, name)
	e.end()
}

// DestroyTable deletes a table if it exists. Commit fails with a kernel.UnsupportedError before Linux 6.3.
func (b *Batch) DestroyTable(name string) {
	e := b.begin(msgDestroyTable, 0, op{verb: "destroy", kind: "table", table: name, destroy: true})
	e.checkName("table", name)
	e.str(unix.NFTA_TABLE_NAME, name)
	e.end()
}

// PurgeTable deletes a table if it exists, on any kernel: it adds, then deletes.
func (b *Batch) PurgeTable(name string) {
	b.AddTable(Table{Name: name})
	b.DeleteTable(name)
}

// AddChain makes a chain unless it exists; an existing base chain takes the new policy.
func (b *Batch) AddChain(c Chain) {
	e := b.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, op{verb: "add", kind: "chain", table: c.Table, name: c.Name})
	e.checkName("table", c.Table)
	e.checkName("chain", c.Name)
	e.str(unix.NFTA_CHAIN_TABLE, c.Table)
	e.str(unix.NFTA_CHAIN_NAME, c.Name)
	if h := c.Base; h != nil {
		if h.Policy != VerdictDrop && h.Policy != VerdictAccept {
			e.fail("chain %s: policy %d is neither drop nor accept", c.Name, h.Policy)
		}
		p := e.nest(unix.NFTA_CHAIN_HOOK)
		e.u32(unix.NFTA_HOOK_HOOKNUM, uint32(h.Hook))
		e.u32(unix.NFTA_HOOK_PRIORITY, uint32(h.Priority))
		e.unnest(p)
		e.u32(unix.NFTA_CHAIN_POLICY, uint32(h.Policy))
		e.str(unix.NFTA_CHAIN_TYPE, h.Type)
	}
	e.comment(attrChainUserData, c.Comment)
	e.end()
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(table, chain string) {
	e := b.begin(unix.NFT_MSG_DELRULE, 0, op{verb: "flush", kind: "chain", table: table, name: chain})
	e.checkName("chain", chain) // without a chain, the kernel would flush the table
	e.str(unix.NFTA_RULE_TABLE, table)
	e.str(unix.NFTA_RULE_CHAIN, chain)
	e.end()
}

// DeleteChain deletes a chain with its rules. No other rule may jump to it.
func (b *Batch) DeleteChain(table, chain string) {
	e := b.begin(unix.NFT_MSG_DELCHAIN, 0, op{verb: "delete", kind: "chain", table: table, name: chain})
	e.checkName("chain", chain)
	e.str(unix.NFTA_CHAIN_TABLE, table)
	e.str(unix.NFTA_CHAIN_NAME, chain)
	e.end()
}

// AddRule appends a rule to its chain.
func (b *Batch) AddRule(r Rule) {
	b.rule(r, "add", unix.NLM_F_CREATE|unix.NLM_F_APPEND, 0, 0)
}

// InsertRule puts a rule at the start of its chain, or before the rule with handle before when that is not zero.
func (b *Batch) InsertRule(r Rule, before uint64) {
	b.rule(r, "insert", unix.NLM_F_CREATE, 0, before)
}

// ReplaceRule puts a rule in the place of the one with r.Handle.
func (b *Batch) ReplaceRule(r Rule) {
	if r.Handle == 0 {
		b.enc.fail("replace rule in chain %s: no handle", r.Chain)
	}
	b.rule(r, "replace", unix.NLM_F_REPLACE, r.Handle, 0)
}

func (b *Batch) rule(r Rule, verb string, flags uint16, handle, before uint64) {
	b.anonymousSets(r)
	e := b.begin(unix.NFT_MSG_NEWRULE, flags, op{verb: verb, kind: "rule in chain", table: r.Table, name: r.Chain})
	e.checkName("table", r.Table)
	e.checkName("chain", r.Chain)
	e.str(unix.NFTA_RULE_TABLE, r.Table)
	e.str(unix.NFTA_RULE_CHAIN, r.Chain)
	if handle != 0 {
		e.u64(unix.NFTA_RULE_HANDLE, handle)
	}
	if before != 0 {
		e.u64(unix.NFTA_RULE_POSITION, before)
	}
	list := e.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, x := range r.Exprs {
		e.expr(unix.NFTA_LIST_ELEM, x)
	}
	e.unnest(list)
	e.comment(unix.NFTA_RULE_USERDATA, r.Comment)
	e.end()
}

// DeleteRule deletes the rule with that handle.
func (b *Batch) DeleteRule(table, chain string, handle uint64) {
	e := b.begin(unix.NFT_MSG_DELRULE, 0, op{verb: "delete", kind: "rule in chain", table: table, name: chain})
	if handle == 0 {
		e.fail("delete rule in chain %s: no handle", chain)
	}
	e.checkName("chain", chain)
	e.str(unix.NFTA_RULE_TABLE, table)
	e.str(unix.NFTA_RULE_CHAIN, chain)
	e.u64(unix.NFTA_RULE_HANDLE, handle)
	e.end()
}
