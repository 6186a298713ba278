package nftables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
)

// TableFlags are a table's flags (enum nft_table_flags of linux/netfilter/nf_tables.h).
type TableFlags uint32

// Flags of tables.
const (
	// TableDormant: packets pass the table by; its base chains are not called.
	TableDormant TableFlags = 1
	// TableOwner (Linux 5.12): only the socket that set it may change the table. To all others, of the same process
	// too, each change is EPERM, and `flush ruleset` skips the table. The flag goes when the socket is closed, and so
	// does the table, unless it has TablePersist.
	TableOwner TableFlags = 2
	// TablePersist (Linux 6.9): the table outlives its owner. Until another socket sets TableOwner again, anybody may
	// change it. A table has this flag from the beginning or never.
	TablePersist TableFlags = 4
)

const attrTableOwner = 7 // netlink port of the owner

// OwnedError means that another socket owns the table, so that this one may only read it. Nothing was applied.
type OwnedError struct {
	Table string
	Port  uint32 // netlink port of the owner, as a rule its process id; zero: it has gone since
	Err   error  // what the kernel refused
}

func (e *OwnedError) Error() string {
	s := "nftables: table inet " + e.Table + " is owned by another process"
	if e.Port != 0 {
		s += fmt.Sprintf(" (netlink port %d)", e.Port)
	}
	return s
}

func (e *OwnedError) Unwrap() error { return e.Err }

// ownedBy turns the refusal of a batch into an OwnedError if that is what it is. Other causes of EPERM, as a lack of
// CAP_NET_ADMIN, refuse the batch as a whole and not its operations.
func (c *Conn) ownedBy(b *Batch, be *BatchError) error {
	for _, o := range be.Ops {
		if o.Index < 0 || !errors.Is(o.Err, unix.EPERM) {
			continue
		}
		rs := Ruleset{}
		name := b.ops[o.Index].table
		if _, err := c.readTable(&rs, name); err != nil {
			return errors.Join(be, err)
		}
		return &OwnedError{Table: name, Port: rs.Table.Owner, Err: be}
	}
	return be
}

// ProbeOwner tests whether the kernel accepts tables with TableOwner and TablePersist, without changing anything. If it does not,
// the error is a kernel.UnsupportedError.
func (c *Conn) ProbeOwner() error {
	b := NewBatch()
	b.AddTable(Table{Name: "twill-probe-owner", Flags: TableOwner | TablePersist})
	err := c.Check(b)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) { // the latter before Linux 5.12
		return &kernel.UnsupportedError{Feature: "nftables tables with an owner that outlive it", Err: err}
	}
	return err
}

// SetTableFlags sets the flags of a table that exists. The kernel lets TableOwner be added to a table with
// TablePersist, and TableDormant be added and taken away; for all else see Remake.
func (b *Batch) SetTableFlags(name string, flags TableFlags) {
	e := b.begin(unix.NFT_MSG_NEWTABLE, 0, op{verb: "set flags of", kind: "table", table: name})
	e.checkName("table", name)
	e.str(unix.NFTA_TABLE_NAME, name)
	e.u32(unix.NFTA_TABLE_FLAGS, uint32(flags))
	e.end()
}

// standbyTable is the table that enforces while Remake replaces another. The kernel deletes it if this process dies.
const standbyTable = "twill-understudy"

// Remake replaces a table by one with other flags and the same content, counters apart: the kernel has no other way to
// set or clear TablePersist. At each moment at least one table with that content is in force, and no other drops what
// it would not. When it fails, the table is as it was.
//
// One transaction that deletes and adds cannot do that. From when the kernel turns to the new generation until it has
// unhooked the chains of the old table, these have no rules, and their policy decides; while rules are still run, the
// verdict maps of a table that is being deleted are already empty, for some 100 µs [tried, 6.18]; and what passed a
// chain of the new table before that turn, which at the same priority is called first, would be judged by neither.
func (c *Conn) Remake(table string, flags TableFlags) error {
	rs, err := c.List(table)
	if err != nil {
		return err
	}
	if !rs.Exists {
		return fmt.Errorf("nftables: make table %s anew: %w", table, unix.ENOENT)
	}
	aside := Table{Name: standbyTable, Flags: TableOwner}
	err = c.each(
		// First the standby table. Its own policies, and those of the old table from now on, let everything through: the
		// rules, which are all there, decide.
		func(b *Batch) { b.PurgeTable(standbyTable); b.copyOf(rs, aside, true); b.policies(rs, true) },
		func(b *Batch) { b.flushBaseChains(rs, table) },
		func(b *Batch) {
			b.DeleteTable(table)
			b.copyOf(rs, Table{Name: table, Comment: rs.Table.Comment, Flags: flags}, false)
		},
	)
	var owned *OwnedError
	if errors.As(err, &owned) {
		return err // the first step, of which nothing was done
	}
	if err != nil {
		err = errors.Join(err, c.each(func(b *Batch) { b.flushBaseChains(rs, table); b.baseRules(rs); b.policies(rs, false) }))
	}
	return errors.Join(err, c.each(func(b *Batch) { b.flushBaseChains(rs, standbyTable) }, func(b *Batch) { b.DeleteTable(standbyTable) }))
}

// Dissolve deletes a table of a family without dropping packets meanwhile: to delete it at once leaves its chains without
// rules for a moment, in which their policy decides, and its verdict maps empty before its rules are gone (see Remake). What is
// refused is an *OwnedError if another owns the table.
func (c *Conn) Dissolve(family Family, table string) error {
	all, err := c.AllChains()
	if err != nil {
		return err
	}
	rs := &Ruleset{}
	for _, ch := range all {
		if ch.Table == table && FamilyOf(ch.Family) == family {
			rs.Chains = append(rs.Chains, ch.Chain)
		}
	}
	return c.each(
		func(b *Batch) { b.Family = family; b.policies(rs, true) },
		func(b *Batch) { b.Family = family; b.flushBaseChains(rs, table) },
		func(b *Batch) { b.Family = family; b.DeleteTable(table) },
	)
}

// each commits transactions one after another, until one fails. After each, no packet is left that passes the chains which were hooked
// before it: one whose processor stood still, as that of a virtual machine does, would go on with those chains alone after their rules had
// gone, and without the new ones.
func (c *Conn) each(steps ...func(*Batch)) error {
	for _, step := range steps {
		b := NewBatch()
		step(b)
		if err := c.Commit(b); err != nil {
			return err
		}
		gracePeriod()
	}
	return nil
}

// gracePeriod waits until all processors have done with what they did when it began: packets pass hooks within one read-side section of RCU
// (nf_hook in include/linux/netfilter.h). It takes some 10 ms, and nothing if the kernel has no way to wait (nohz_full=): see membarrier(2).
func gracePeriod() {
	const global = 1                                          // MEMBARRIER_CMD_GLOBAL
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0) // whoever cannot wait goes on
}

// flushBaseChains removes the rules from the base chains of a table that has those of rs, so that none of its rules is evaluated.
func (b *Batch) flushBaseChains(rs *Ruleset, table string) {
	for _, ch := range rs.Chains {
		if ch.Base != nil {
			b.FlushChain(table, ch.Name)
		}
	}
}

// baseRules adds the base chains' rules again.
func (b *Batch) baseRules(rs *Ruleset) {
	for _, ch := range rs.Chains {
		if ch.Base == nil {
			continue
		}
		for _, r := range rs.ChainRules(ch.Name) {
			b.AddRule(r)
		}
	}
}

// policies sets those of base chains that drop: to accept if open, else back.
func (b *Batch) policies(rs *Ruleset, open bool) {
	for _, ch := range rs.Chains {
		if ch.Base != nil && ch.Base.Policy == VerdictDrop {
			b.AddChain(opened(ch, open))
		}
	}
}

func opened(ch Chain, open bool) Chain {
	if open && ch.Base != nil {
		h := *ch.Base
		h.Policy = VerdictAccept
		ch.Base = &h
	}
	return ch
}

// copyOf makes a table t with all that rs has.
func (b *Batch) copyOf(rs *Ruleset, t Table, open bool) {
	b.AddTable(t)
	elements := func(verdicts bool) {
		for _, s := range rs.Sets {
			s.Table = t.Name
			if (s.Data == TypeVerdict) == verdicts && len(s.Elements) > 0 {
				b.AddElements(s.Set, s.Elements...)
			}
		}
	}
	for _, s := range rs.Sets {
		s.Table = t.Name
		b.AddSet(s.Set)
	}
	for _, ch := range rs.Chains {
		ch.Table = t.Name
		b.AddChain(opened(ch, open))
	}
	elements(false)
	for _, r := range rs.Rules {
		r.Table = t.Name
		b.AddRule(r)
	}
	elements(true) // whose chains have their rules now
}
