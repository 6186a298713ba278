package nftables

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

const ownedFlags = TableOwner | TablePersist

// second opens another socket of the same process in the namespace.
func (n *testNet) second(tb testing.TB) *Conn {
	tb.Helper()
	var c *Conn
	var err error
	n.do(func() { c, err = Open() })
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// refused wants nft to be told that it may not.
func (n *testNet) refused(tb testing.TB, command string) {
	tb.Helper()
	path := machinetest.Program(tb, "nft")
	var out []byte
	var err error
	n.do(func() { out, err = exec.Command(path, command).CombinedOutput() })
	if err == nil || !strings.Contains(string(out), "Operation not permitted") {
		tb.Errorf("nft %s: %v\n%s", command, err, out)
	}
}

func addTable(name string, flags TableFlags) *Batch {
	b := NewBatch()
	b.AddTable(Table{Name: name, Flags: flags})
	return b
}

func addChain(table, chain string) *Batch {
	b := NewBatch()
	b.AddChain(Chain{Table: table, Name: chain})
	return b
}

func ownable(tb testing.TB, n *testNet) {
	tb.Helper()
	err := n.ProbeOwner()
	machinetest.Supported(tb, err)
	if err != nil {
		tb.Fatal(err)
	}
}

func TestAskingWhetherTablesCanBeOwnedChangesNothing(t *testing.T) {
	n := newNet(t)
	before, err := n.GenID()
	if err != nil {
		t.Fatal(err)
	}
	ownable(t, n)
	after, err := n.GenID()
	if err != nil || after != before {
		t.Errorf("generation went from %d to %d, %v", before, after, err)
	}
	if got := n.nft(t, "list", "ruleset"); got != "" {
		t.Errorf("the ruleset is\n%s", got)
	}
}

func TestATableWithAnOwnerIsNobodyElses(t *testing.T) {
	n := newNet(t)
	ownable(t, n)
	owner, other := n.second(t), n.second(t)
	b := addTable("t", ownedFlags)
	b.AddChain(Chain{Table: "t", Name: "c"})
	if err := owner.Commit(b); err != nil {
		t.Fatal(err)
	}
	n.nft(t, "add", "table", "inet", "theirs")
	before := n.mustList(t, "t")
	if got := before.Table; got.Flags != ownedFlags || got.Owner == 0 || got.Mine {
		t.Errorf("another socket reads %+v", got)
	}
	if rs, err := owner.List("t"); err != nil || !rs.Table.Mine {
		t.Errorf("its owner reads %+v, %v", rs.Table, err)
	}

	for _, command := range []string{"delete table inet t", "flush table inet t", "add rule inet t c drop", "add table inet t { flags dormant; }"} {
		n.refused(t, command)
	}
	n.nft(t, "flush", "ruleset") // passes it over
	err := other.Commit(addChain("t", "d"))
	var owned *OwnedError
	if !errors.As(err, &owned) || owned.Table != "t" || owned.Port != before.Table.Owner || !errors.Is(err, unix.EPERM) {
		t.Errorf("another socket of the same process: %v", err)
	} else if !strings.Contains(err.Error(), "table inet t is owned by another process") {
		t.Errorf("it says %q", err)
	}
	if after := n.mustList(t, "t").Canonical(); after != before.Canonical() {
		t.Errorf("was\n%s\nis\n%s", before.Canonical(), after)
	}
	if got := n.nft(t, "list", "tables"); strings.Contains(got, "theirs") {
		t.Errorf("after a flush of the ruleset there is\n%s", got)
	}
	if got := n.nft(t, "list", "table", "inet", "t"); !strings.Contains(got, "flags owner") || !strings.Contains(got, "chain c") {
		t.Errorf("people see\n%s", got)
	}
	if err := owner.Commit(addChain("t", "own")); err != nil {
		t.Errorf("its owner: %v", err)
	}
}

func TestATableOutlivesItsOwnerAndIsTakenOver(t *testing.T) {
	n := newNet(t)
	ownable(t, n)
	old := n.second(t)
	b := addTable("t", ownedFlags)
	b.AddChain(Chain{Table: "t", Name: "c"})
	if err := old.Commit(b); err != nil {
		t.Fatal(err)
	}
	if err := old.Commit(addTable("aside", TableOwner)); err != nil { // as the table of Remake
		t.Fatal(err)
	}
	take := NewBatch()
	take.SetTableFlags("t", ownedFlags)
	var owned *OwnedError
	if err := n.Commit(take); !errors.As(err, &owned) {
		t.Fatalf("taken from an owner that lives: %v", err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if rs := n.mustList(t, "t"); rs.Table.Flags != TablePersist || rs.Table.Owner != 0 || len(rs.Chains) != 1 {
		t.Errorf("after its owner died: %+v", rs)
	}
	if tables, err := n.ListTables(); err != nil || len(tables) != 1 {
		t.Errorf("tables are %v, %v: one with an owner alone goes with it", tables, err)
	}
	sleep := NewBatch()
	sleep.SetTableFlags("t", TablePersist|TableDormant)
	if err := n.second(t).Commit(sleep); err != nil { // anybody may
		t.Fatal(err)
	}
	if rs := n.mustList(t, "t"); rs.Table.Flags != TablePersist|TableDormant {
		t.Errorf("flags are %d", rs.Table.Flags)
	}
	n.mustCommit(t, take) // and wakes it
	if rs := n.mustList(t, "t"); rs.Table.Flags != ownedFlags || !rs.Table.Mine || len(rs.Chains) != 1 {
		t.Errorf("after another took over: %+v", rs)
	}
	n.refused(t, "delete table inet t")
}

// full has one of each thing of which a ruleset is made.
func full(b *Batch) {
	set := Set{Table: "t", Name: "s", Key: TypeIPv4Addr, Interval: true}
	links := Set{Table: "t", Name: "links", Key: TypeIfname, Data: TypeVerdict}
	b.AddSet(set)
	b.AddSet(links)
	b.AddChain(Chain{Table: "t", Name: "fw", Base: &Hook{Type: TypeFilter, Hook: HookForward, Priority: -2, Policy: VerdictDrop}})
	b.AddChain(Chain{Table: "t", Name: "in", Base: &Hook{Type: TypeFilter, Hook: HookInput, Policy: VerdictAccept}, Comment: "a base chain"})
	b.AddChain(Chain{Table: "t", Name: "ep"})
	b.AddElements(set, prefixes("10.0.0.0/24", "10.0.1.0/24")...)
	b.AddRule(Rule{Table: "t", Chain: "fw", Exprs: []Expr{Meta{Key: MetaIIFName}, LookupVerdict{Map: "links"}}})
	b.AddRule(Rule{Table: "t", Chain: "fw", Exprs: append(MatchL4Proto(6), In{Set: Set{Key: TypeIPv4Addr}, Elements: []Element{{Key: addr("1.2.3.4")}}}, Drop())})
	b.AddRule(Rule{Table: "t", Chain: "fw", Exprs: []Expr{Counter{}, Accept()}, Comment: "all else"})
	b.AddRule(Rule{Table: "t", Chain: "ep", Exprs: []Expr{Return()}})
	b.AddElements(links, Element{Key: KeyIfname("eth0"), Verdict: new(Goto("ep"))})
}

func TestARemadeTableHasTheSameContent(t *testing.T) {
	for _, tt := range []struct {
		name     string
		was, now TableFlags
	}{
		{"a plain table gets an owner", 0, ownedFlags},
		{"a table with an owner becomes a plain one", ownedFlags, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNet(t)
			ownable(t, n)
			b := addTable("t", tt.was)
			full(b)
			n.mustCommit(t, b)
			before := n.mustList(t, "t").Canonical()
			if err := n.Remake("t", tt.now); err != nil {
				t.Fatal(err)
			}
			rs := n.mustList(t, "t")
			if rs.Table.Flags != tt.now || rs.Canonical() != before {
				t.Errorf("flags %d\n%s\nwas\n%s", rs.Table.Flags, rs.Canonical(), before)
			}
			if tables, err := n.ListTables(); err != nil || len(tables) != 1 {
				t.Errorf("tables are %v, %v", tables, err)
			}
		})
	}
}

func TestATableThatCannotBeRemadeIsUnchanged(t *testing.T) {
	n := newNet(t)
	ownable(t, n)
	b := addTable("t", 0)
	full(b)
	n.mustCommit(t, b)
	before := n.mustList(t, "t").Canonical()
	if err := n.Remake("t", 1<<30); !errors.Is(err, unix.EOPNOTSUPP) { // no such flag
		t.Errorf("with a flag that does not exist: %v", err)
	}
	if rs := n.mustList(t, "t"); rs.Canonical() != before || rs.Table.Flags != 0 {
		t.Errorf("flags %d\n%s\nwas\n%s", rs.Table.Flags, rs.Canonical(), before)
	}
	if tables, err := n.ListTables(); err != nil || len(tables) != 1 {
		t.Errorf("tables are %v, %v", tables, err)
	}
	if err := n.Remake("absent", ownedFlags); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a table that does not exist: %v", err)
	}
}
