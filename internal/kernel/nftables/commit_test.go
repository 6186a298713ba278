package nftables

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func TestFailedTransactionChangesNothingAndNamesWhatFailed(t *testing.T) {
	n := newNet(t)
	hash := Set{Table: "t", Name: "hash", Key: TypeIPv4Addr}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddSet(hash)
	b.AddElements(hash, host(1), host(2))
	n.mustCommit(t, b)
	before := n.mustList(t, "t")

	b = NewBatch()
	b.AddChain(Chain{Table: "t", Name: "fine"})
	b.AddRule(Rule{Table: "t", Chain: "absent", Exprs: one(Accept())})
	b.DeleteElements(hash, host(1), host(9), host(2))
	b.AddRule(Rule{Table: "t", Chain: "fine", Exprs: one(Meta{Key: MetaL4Proto}, Lookup{Set: "nosuch"})})
	err := n.Commit(b)
	var be *BatchError
	if !errors.As(err, &be) || !errors.Is(err, unix.ENOENT) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"rule in chain t/absent", "elements of set t/hash", "element 10.0.0.9", "rule in chain t/fine"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if len(be.Ops) != 3 || be.Ops[0].Index != 1 || be.Ops[0].Offset == 0 {
		t.Errorf("operations: %+v", be.Ops)
	}
	after := n.mustList(t, "t")
	if before.Canonical() != after.Canonical() || before.Generation != after.Generation {
		t.Errorf("the table changed from\n%s\nto\n%s", before.Canonical(), after.Canonical())
	}
	// The connection is as good as before, and a batch that failed can be sent again.
	n.nft(t, "add chain inet t absent; add set inet t nosuch { type inet_proto; }; add element inet t hash { 10.0.0.9 }")
	n.mustCommit(t, b)
	if st, err := n.ListSet("t", "hash"); err != nil || len(st.Elements) != 0 {
		t.Errorf("the second time: %v, %v", st.Elements, err)
	}
}

func TestBatchThatGrowsAfterACommitIsCommittedAgain(t *testing.T) {
	n := newNet(t)
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	n.mustCommit(t, b)
	b.AddChain(Chain{Table: "t", Name: "c"})
	n.mustCommit(t, b)
	b.Reset()
	if err := n.Commit(b); err != nil || b.Len() != 0 {
		t.Errorf("an empty batch: %v", err)
	}
	if _, ok := n.mustList(t, "t").Chain("c"); !ok {
		t.Error("no chain")
	}
}

func TestStaleGenerationIsRefused(t *testing.T) {
	n := newNet(t)
	gen, err := n.GenID()
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.GenID = gen
	n.mustCommit(t, b)
	err = n.Commit(b)
	var ge *GenerationError
	if !errors.As(err, &ge) || ge.Want != gen || !errors.Is(err, unix.ERESTART) {
		t.Fatalf("error is %v", err)
	}
	now, err := n.GenID()
	if err != nil || now != gen+1 {
		t.Errorf("generation %d after %d, %v", now, gen, err)
	}
}

func TestDestroyAndPurgeNeedNothingToBeThere(t *testing.T) {
	n := newNet(t)
	hash := Set{Table: "t", Name: "hash", Key: TypeIPv4Addr}
	b := NewBatch()
	b.PurgeTable("t")
	b.PurgeTable("t")
	b.AddTable(Table{Name: "t"})
	b.AddSet(hash)
	n.mustCommit(t, b)
	b = NewBatch()
	b.DestroyElements(hash, host(1))
	b.DestroyTable("t")
	b.DestroyTable("t")
	err := n.Commit(b)
	machinetest.Supported(t, err)
	if err != nil {
		t.Fatal(err)
	}
	if rs := n.mustList(t, "t"); rs.Exists || rs.Canonical() != "" {
		t.Errorf("the table is there: %+v", rs)
	}
	if names, err := n.ListTables(); err != nil || len(names) != 0 {
		t.Errorf("tables %v, %v", names, err)
	}
}

func TestDestroyThatTheKernelDoesNotKnowIsUnsupported(t *testing.T) {
	b := NewBatch()
	b.DestroyTable("t")
	var a outcome
	body := append(U32(^uint32(unix.EINVAL)+1), make([]byte, headerLen)...)
	a.answer(b, message{typ: unix.NLMSG_ERROR, body: body}, 0)
	err := &BatchError{Ops: a.errs}
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("error is %v", err)
	}
}

func TestMistakesAreFoundBeforeTheKernelIsAsked(t *testing.T) {
	hash := Set{Table: "t", Name: "s", Key: TypeIPv4Addr}
	tree := Set{Table: "t", Name: "s", Key: TypeIPv4Addr, Interval: true}
	vmap := Set{Table: "t", Name: "s", Key: TypeIPv4Addr, Data: TypeVerdict}
	long := strings.Repeat("x", 300)
	cases := map[string]func(*Batch){
		"name too long":     func(b *Batch) { b.AddTable(Table{Name: long}) },
		"flush of no chain": func(b *Batch) { b.FlushChain("t", "") },
		"flush of no set":   func(b *Batch) { b.FlushSet("t", "") },
		"comment too long":  func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Comment: long}) },
		"prefix too long":   func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(NFLog{Prefix: long})}) },
		"nil expression":    func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(nil)}) },
		"raw expression":    func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(Raw{Name: "xt"})}) },
		"no such register":  func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(Meta{Reg: 16})}) },
		"lengths of a mask": func(b *Batch) {
			b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(Bitwise{Mask: U32(1), Xor: []byte{1}})})
		},
		"rule of more than 64 KB":    func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: manyDrops()}) },
		"replace without handle":     func(b *Batch) { b.ReplaceRule(Rule{Table: "t", Chain: "c"}) },
		"delete rule without handle": func(b *Batch) { b.DeleteRule("t", "c", 0) },
		"key too short":              func(b *Batch) { b.AddElements(hash, Element{Key: []byte{1}}) },
		"interface name too long": func(b *Batch) {
			b.AddElements(Set{Table: "t", Name: "s", Key: TypeIfname}, Element{Key: KeyIfname(long)})
		},
		"interval in a hash":         func(b *Batch) { b.AddElements(hash, prefixes("10.0.0.0/8")...) },
		"interval backwards":         func(b *Batch) { b.AddElements(tree, Element{Key: addr("10.0.0.2"), End: addr("10.0.0.1")}) },
		"no verdict":                 func(b *Batch) { b.AddElements(vmap, host(1)) },
		"verdict in a set":           func(b *Batch) { b.AddElements(hash, Element{Key: addr("10.0.0.2"), Verdict: new(Drop())}) },
		"key type of unknown length": func(b *Batch) { b.AddSet(Set{Table: "t", Name: "s", Key: TypeInteger}) },
		"six fields":                 func(b *Batch) { b.AddSet(Set{Table: "t", Name: "s", Key: Concat(1, 2, 3, 4, 5, 6)}) },
		"intervals of host order":    func(b *Batch) { b.AddSet(Set{Table: "t", Name: "s", Key: TypeMark, Interval: true}) },
		"anonymous set without keys": func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(In{Set: Set{Key: TypeMark}})}) },
		"policy that is neither": func(b *Batch) {
			b.AddChain(Chain{Table: "t", Name: "c", Base: &Hook{Type: TypeFilter, Policy: VerdictReturn}})
		},
		"verdict with chain, not one": func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(Verdict{Chain: "x"})}) },
		"jump to nowhere":             func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "c", Exprs: one(Jump(""))}) },
	}
	closed, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			b := NewBatch()
			f(b)
			if b.Err() == nil {
				t.Error("no error")
			}
			if err := closed.Commit(b); err == nil || errors.Is(err, unix.EBADF) {
				t.Errorf("commit says %v", err)
			}
		})
	}
}

func TestRulesAreInsertedReplacedAndDeletedByHandle(t *testing.T) {
	n := newNet(t)
	rule := func(c string) Rule { return Rule{Table: "t", Chain: "c", Exprs: one(Accept()), Comment: c} }
	order := func() string {
		s := ""
		for _, r := range n.mustList(t, "t").ChainRules("c") {
			s += r.Comment
		}
		return s
	}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddChain(Chain{Table: "t", Name: "c"})
	b.AddRule(rule("b"))
	b.AddRule(rule("d"))
	b.InsertRule(rule("a"), 0)
	n.mustCommit(t, b)
	rules := n.mustList(t, "t").ChainRules("c")
	if order() != "abd" {
		t.Fatal(order())
	}
	b = NewBatch()
	b.InsertRule(rule("c"), rules[2].Handle)
	e := rule("e")
	e.Handle = rules[0].Handle
	b.ReplaceRule(e)
	b.DeleteRule("t", "c", rules[1].Handle)
	n.mustCommit(t, b)
	if order() != "ecd" {
		t.Fatal(order())
	}
}

func TestLostAnswersAreDistinguishedFromFailures(t *testing.T) {
	if err := lostOutcome(7, 8); err != nil {
		t.Errorf("one more generation: %v", err)
	}
	if err := lostOutcome(7, 7); !errors.Is(err, unix.ENOBUFS) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("no new generation: %v", err)
	}
	if err := lostOutcome(7, 9); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("two new generations: %v", err)
	}
}

func TestMoreErrorsThanTheReceiveBufferHoldsAreStillAFailure(t *testing.T) {
	n := newNet(t)
	if err := unix.SetsockoptInt(n.sock.FD(), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4096); err != nil {
		t.Fatal(err)
	}
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	for range 5000 {
		b.FlushChain("t", "missing")
	}
	err := n.Commit(b)
	var be *BatchError
	if !errors.As(err, &be) || len(be.Ops) >= 5000 {
		t.Fatalf("error is %.200v", err)
	}
	b = NewBatch()
	b.AddTable(Table{Name: "t"})
	n.mustCommit(t, b)
}

func TestLargeBatchesNeedNoLargerBuffersThanTheyMake(t *testing.T) {
	n := newNet(t)
	b := NewBatch()
	b.AddTable(Table{Name: "t"})
	b.AddChain(Chain{Table: "t", Name: "c"})
	for range 30_000 {
		b.AddRule(Rule{Table: "t", Chain: "c", Exprs: join(MatchSrc(prefix("10.0.0.0/9"), false), one(Counter{}, Drop()))})
	}
	if b.Size() < sendBuffer {
		t.Fatalf("%d bytes are no test", b.Size())
	}
	n.mustCommit(t, b)
	if got := len(n.mustList(t, "t").Rules); got != 30_000 {
		t.Errorf("%d rules", got)
	}
}

func manyDrops() []Expr {
	exprs := make([]Expr, 3000)
	for i := range exprs {
		exprs[i] = Drop()
	}
	return exprs
}
