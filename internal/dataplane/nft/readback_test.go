package nft

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// slowReader reads when it may.
type slowReader struct {
	Reader
	may chan error
}

func (r *slowReader) List(table string) (*nftables.Ruleset, error) {
	if err := <-r.may; err != nil {
		return nil, err
	}
	return r.Reader.List(table)
}

// readBack has the driver read back; meanwhile is what happens before the reading is done, which ends in err.
func readBack(t *testing.T, d *Driver, r *slowReader, meanwhile func(), err error) {
	t.Helper()
	var got error
	done := false
	if !d.ReadBack(t.Context(), func(_ time.Duration, err error) { got, done = err, true }) {
		t.Fatal("it cannot be read back meanwhile")
	}
	meanwhile()
	r.may <- err
	note := <-d.Drift()
	note()
	if !done || !errors.Is(got, err) {
		t.Fatalf("done: %v, with %v, want %v", done, got, err)
	}
}

// TestWhatIsReadBackHoldsNothingUp: while the table is read, changes go in; a reading that a change overtook changes
// nothing, the next one finds what somebody else did and no event announced.
func TestWhatIsReadBackHoldsNothingUp(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	k := connect(t, ns)
	r := &slowReader{Reader: connect(t, ns), may: make(chan error)}
	d := New(k, Config{Reader: r})
	d.Merge(node(20, 9))
	apply(t, d)
	want := k.canonical(t)

	// Commit through the driver's own connection, since others may not: no notification comes.
	b := nftables.NewBatch()
	b.FlushChain(kernel.TableName, baseForwardIn)
	if err := k.Commit(b); err != nil {
		t.Fatal(err)
	}
	change := func(add bool) func() {
		return func() {
			m := intent.MemberDelta{Set: sid(0), Added: []intent.Member{host(9_000_000)}}
			if !add {
				m.Added, m.Removed = nil, m.Added
			}
			d.Merge(intent.Batch{Members: []intent.MemberDelta{m}})
			before := d.commits
			apply(t, d)
			if d.commits == before {
				t.Error("a change waits for what is read back")
			}
		}
	}
	readBack(t, d, r, change(true), nil)
	readBack(t, d, r, change(false), nil)
	if apply(t, d); k.canonical(t) == want {
		t.Fatal("a reading with a commit in it was taken over, or nothing was changed at all")
	}
	nothing := func() {}
	readBack(t, d, r, nothing, nftables.ErrInterrupted)
	readBack(t, d, r, nothing, nil)
	apply(t, d)
	if got := k.canonical(t); got != want {
		t.Errorf("after a repair:\n%s\nwant\n%s", got, want)
	}
	var whats []string
	for _, x := range d.Repairs() {
		whats = append(whats, x.What+" by "+string(x.Cause))
	}
	if got := strings.Join(whats, ", "); got != "chain "+baseForwardIn+" by read-back" {
		t.Errorf("repaired %q", got)
	}
	commits := d.commits
	readBack(t, d, r, nothing, nil)
	if apply(t, d); d.commits != commits {
		t.Error("a right table was changed")
	}
}

func TestAfterDiscardedReadingsApplyReadsFirst(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	k := connect(t, ns)
	r := &slowReader{Reader: k, may: make(chan error)}
	d := New(k, Config{Reader: r})
	d.Merge(intent.Batch{InSync: true})
	apply(t, d)
	for i := range maxDiscarded {
		if !d.table.read {
			t.Fatalf("after %d readings the driver gave up", i)
		}
		readBack(t, d, r, func() {}, nftables.ErrInterrupted)
	}
	if d.table.read {
		t.Error("the table was never read, and nobody minds")
	}
	apply(t, d)
	readBack(t, d, r, func() {}, errors.ErrUnsupported)
	if d.table.read {
		t.Error("the table cannot be read, and nobody minds")
	}
}
