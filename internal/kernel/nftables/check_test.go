package nftables

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestACheckSaysWhatACommitWouldAndChangesNothing(t *testing.T) {
	n := newNet(t)
	base := Chain{Table: "t", Name: "out", Base: &Hook{Type: TypeFilter, Hook: HookPostrouting, Policy: VerdictAccept}}
	for _, tt := range []struct {
		name  string
		fill  func(b *Batch)
		want  error
		whole bool // no operation is named
	}{
		{"what is well", func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "out", Exprs: []Expr{Accept()}}) }, nil, false},
		{"an operation that is wrong", func(b *Batch) { b.AddRule(Rule{Table: "t", Chain: "out", Exprs: []Expr{Jump("gone")}}) }, unix.ENOENT, false},
		{"a mistake that needs no kernel", func(b *Batch) { b.AddChain(Chain{Table: "t"}) }, errName, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBatch()
			b.AddTable(Table{Name: "t"})
			b.AddChain(base)
			tt.fill(b)
			before, err := n.GenID()
			if err != nil {
				t.Fatal(err)
			}
			err = n.Check(b)
			if !errors.Is(err, tt.want) {
				t.Errorf("check: %v, want %v", err, tt.want)
			}
			if after, err := n.GenID(); err != nil || after != before {
				t.Errorf("generation %d after %d, %v", after, before, err)
			}
			if rs := n.mustList(t, "t"); rs.Exists {
				t.Error("the table was made")
			}
			var be *BatchError
			if named := errors.As(err, &be) && be.Ops[0].Index >= 0; tt.want != nil && named == tt.whole {
				t.Errorf("an operation is named: %v, in %v", named, err)
			}
			got := n.Commit(b)
			if (got == nil) != (err == nil) || got != nil && got.Error() != err.Error() {
				t.Errorf("commit: %v, check: %v", got, err)
			}
			if got == nil {
				b = NewBatch()
				b.DeleteTable("t")
				n.mustCommit(t, b)
			}
		})
	}
}
