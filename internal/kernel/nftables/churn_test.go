package nftables

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// churn changes another table as fast as it can until the test ends. That table was there first, and its chains come and
// go before those of later tables in the kernel's list. It returns how many transactions there have been.
func churn(t *testing.T, n *testNet, table string) *atomic.Int64 {
	t.Helper()
	var other *Conn
	var err error
	n.do(func() { other, err = Open() })
	if err != nil {
		t.Fatal(err)
	}
	changes, stop, stopped := &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			b := NewBatch()
			if name := "c"; i%2 == 0 {
				b.AddChain(Chain{Table: table, Name: name})
			} else {
				b.DeleteChain(table, name)
			}
			if err := other.Commit(b); err != nil {
				t.Error(err)
				return
			}
			changes.Add(1)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped; _ = other.Close() })
	return changes
}

// largeTable is a table of which each kind of thing fills many messages.
func largeTable(name string) *Batch {
	b := NewBatch()
	b.AddTable(Table{Name: name})
	for i := range 1000 {
		b.AddChain(Chain{Table: name, Name: fmt.Sprintf("chain-with-a-name-of-some-length-%d", i), Comment: "for the length of it"})
	}
	for i := range 1000 {
		b.AddRule(Rule{Table: name, Chain: fmt.Sprintf("chain-with-a-name-of-some-length-%d", i), Exprs: join(MatchL4Proto(6),
			MatchPorts(DstPort(), [][2]uint16{{443, 443}, {80, 90}}, false)[0], one(Counter{}, Accept())), Comment: "web"})
	}
	for i := range 50 {
		s := Set{Table: name, Name: fmt.Sprintf("s%d", i), Key: TypeIPv4Addr}
		b.AddSet(s)
		for j := range 100 {
			b.AddElements(s, host(j))
		}
	}
	return b
}

func TestATableIsReadWhileAnotherChangesAllTheTime(t *testing.T) {
	n := newNet(t)
	b := NewBatch()
	b.AddTable(Table{Name: "other"})
	n.mustCommit(t, b)
	n.mustCommit(t, largeTable("t"))
	want := n.mustList(t, "t").Canonical()
	changes := churn(t, n, "other")
	for i := range 5 {
		before := changes.Load()
		rs, err := n.List("t")
		if err != nil {
			t.Fatalf("read %d, among %d changes of another table: %v", i, changes.Load()-before, err)
		}
		if rs.Canonical() != want {
			t.Fatalf("read %d: %d chains, %d rules, %d sets, want what is there", i, len(rs.Chains), len(rs.Rules), len(rs.Sets))
		}
	}
	if rs, err := n.List("absent"); err != nil || rs.Exists {
		t.Errorf("a table that is not there: %+v, %v", rs, err)
	}
	if _, err := n.AllChains(); err != nil {
		t.Error(err)
	}
	if names, err := n.ListTables(); err != nil || len(names) != 2 {
		t.Errorf("tables %v, %v", names, err)
	}
	if st, err := n.ListSet("t", "s7"); err != nil || len(st.Elements) != 100 {
		t.Errorf("a set: %d elements, %v", len(st.Elements), err)
	}
	t.Logf("%d changes of the other table", changes.Load())
}
