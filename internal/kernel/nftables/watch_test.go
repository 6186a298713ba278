package nftables_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// watched is a namespace, a connection into it, and a watch for all that does not come through that.
func watched(t *testing.T) (ns *netnstest.NS, own *nftables.Conn, w *nftables.Watcher) {
	t.Helper()
	ns = netnstest.New(t)
	var err error
	ns.Do(func() {
		if own, err = nftables.Open(); err == nil {
			t.Cleanup(func() { _ = own.Close() })
			w, err = nftables.Watch(own)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return ns, own, w
}

func TestWatchReceivesChangesOfOthersAlone(t *testing.T) {
	ns, own, w := watched(t)
	b := nftables.NewBatch()
	b.AddTable(nftables.Table{Name: "ours"})
	b.AddChain(nftables.Chain{Table: "ours", Name: "c"})
	if err := own.Commit(b); err != nil {
		t.Fatal(err)
	}
	// Had it been received, our own change would come first.
	for _, step := range []struct{ nft, table string }{
		{"add table inet theirs", "theirs"},
		{"add rule inet ours c counter", "ours"},
		{"flush chain inet ours c", "ours"},
		{"delete table inet ours", "ours"},
	} {
		ns.Run("nft", step.nft)
		for {
			tables, err := w.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if len(tables) == 0 {
				continue // only the end of a transaction
			}
			if !slices.Equal(tables, []string{step.table}) {
				t.Errorf("after %q: tables %v, want %s", step.nft, tables, step.table)
			}
			break
		}
	}
	done := make(chan error)
	go func() {
		var err error
		for err == nil { // the end of the last transaction may still come
			_, err = w.Receive()
		}
		done <- err
	}()
	_ = w.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, os.ErrClosed)
	}
}

func TestWhatHappensDuringALargeTransactionIsNotMissed(t *testing.T) {
	ns, own, w := watched(t)
	large := func(name string) *nftables.Batch {
		b := nftables.NewBatch()
		b.AddTable(nftables.Table{Name: name})
		for i := range 500 {
			b.AddChain(nftables.Chain{Table: name, Name: fmt.Sprintf("c%d", i)})
		}
		return b
	}
	ns.Run("nft", "add table inet theirs")
	receive := func(want ...string) {
		t.Helper()
		for {
			tables, err := w.Receive()
			if errors.Is(err, nftables.ErrOverrun) {
				tables = []string{"overrun"}
			} else if err != nil {
				t.Fatal(err)
			}
			if len(tables) == 0 {
				continue
			}
			if !slices.Equal(tables, want) {
				t.Errorf("received %v, want %v", tables, want)
			}
			return
		}
	}
	receive("theirs")
	if err := own.CommitWith(large("alone"), func() {}); err != nil {
		t.Fatal(err)
	}
	ns.Run("nft", "add table inet after")
	receive("after") // and no overrun: nobody came between
	if err := own.CommitWith(large("ours"), func() { ns.Run("nft", "add table inet between") }); err != nil {
		t.Fatal(err)
	}
	receive("overrun")
	broken := large("broken")
	broken.DeleteTable("nonexistent")
	if err := own.CommitWith(broken, func() {}); err == nil {
		t.Fatal("a transaction that cannot be was made")
	}
	ns.Run("nft", "add table inet last")
	receive("last")
}

// backlog is a receiver with changes that have been announced already.
type backlog struct {
	tables []string
	closed chan struct{}
}

func (b *backlog) Receive() ([]string, error) {
	if len(b.tables) == 0 {
		<-b.closed
		return nil, os.ErrClosed
	}
	next := b.tables[0]
	b.tables = b.tables[1:]
	return []string{next}, nil
}

func (b *backlog) Close() error { close(b.closed); return nil }

// TestPendingChangesAreOneNote: who is slow reads the tables once for all that was announced meanwhile, and not once for each.
func TestPendingChangesAreOneNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		notes, ended, n := make(chan func()), make(chan error), 0
		r := &backlog{slices.Repeat([]string{"other", "ours"}, 100), make(chan struct{})}
		go func() {
			ended <- nftables.Follow(ctx, r, func(table string) bool { return table == "ours" }, notes, func() { n++ })
		}()
		synctest.Wait()
		for received := true; received; synctest.Wait() {
			select {
			case note := <-notes:
				note()
			default:
				received = false
			}
		}
		if n != 1 {
			t.Errorf("%d notes, want one", n)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}
