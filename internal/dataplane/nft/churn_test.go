package nft

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// churn changes a table as fast as it can until the test ends, by two transactions that take turns. It returns how many
// there have been.
func churn(t *testing.T, ns *netnstest.NS, turns [2]func(*nftables.Batch)) *atomic.Int64 {
	t.Helper()
	k := connect(t, ns)
	n, stop, stopped := &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			b := nftables.NewBatch()
			turns[i%2](b)
			if err := k.Commit(b); err != nil {
				t.Error(err)
				return
			}
			n.Add(1)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return n
}

// TestOthersTablesMayChangeAllTheTime: changes go in, and what somebody does to our table is repaired, while another table
// changes thousands of times in a second. Ours is large, so that nothing of it is read in one message.
func TestOthersTablesMayChangeAllTheTime(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ns.Run("nft", "add", "table", "inet", "aaa") // before ours in the kernel's list
	k, reader := connect(t, ns), connect(t, ns)
	d := New(k, Config{})
	var events *nftables.Watcher
	var err error
	ns.Do(func() { events, err = nftables.Watch(k.Conn) })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	loop := dataplane.New(dataplane.Config{Policy: d, Log: slog.New(slog.NewTextHandler(&log, nil))})
	batches := make(chan intent.Batch)
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = d.Run(ctx, events) })
	parts.Go(func() { _ = loop.Run(ctx, batches, make(chan []ifmon.Change)) })
	stop := func() { cancel(); parts.Wait() }
	defer stop()

	changes := churn(t, ns, [2]func(*nftables.Batch){
		func(b *nftables.Batch) { b.AddChain(nftables.Chain{Table: "aaa", Name: "c"}) },
		func(b *nftables.Batch) { b.DeleteChain("aaa", "c") },
	})
	b := everything()
	for i := range 200 {
		e := wl(fmt.Sprintf("more-%d", i), fmt.Sprintf("cali-%d", i))
		intenttest.Profiles(&e, b.Endpoints[0].Policies().Profiles...)
		b.Endpoints = append(b.Endpoints, e)
	}
	batches <- b
	fresh := newKernel(t)
	f := New(fresh, Config{})
	f.Merge(b)
	apply(t, f)
	want := fresh.canonical(t)
	is := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(2 * netnstest.Patience); ; {
			got := reader.canonical(t)
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s, after %d changes of the other table:\n%s", what, changes.Load(), lineDiff(want, got))
			}
		}
	}
	is("the first transaction")
	for i := range 3 {
		change := intent.Batch{Policies: []intent.Policy{{ID: np("np-b"), Tier: "default", Egress: []intent.Rule{tcp(intent.Deny, uint16(81+i)), anything}}}}
		batches <- change
		f.Merge(change)
		apply(t, f)
		want = fresh.canonical(t)
		is("a change of policy")
		ns.Run("nft", "flush", "chain", "inet", kernel.TableName, baseForwardIn)
		ns.Run("nft", "add", "chain", "inet", kernel.TableName, "stranger")
		is("a repair")
	}
	stop()
	if bytes.Contains(log.Bytes(), []byte("level=ERROR")) {
		t.Errorf("failures:\n%s", log.String())
	}
	t.Logf("%d changes of the other table", changes.Load())
}

// TestAChangeGoesInThoughOurTableCannotBeRead: somebody changes our own table all the time, so that no read of it holds.
func TestAChangeGoesInThoughOurTableCannotBeRead(t *testing.T) {
	t.Parallel()
	k := newKernel(t)
	conn := &unreadable{kernelConn: k}
	d := New(conn, Config{})
	b := everything()
	d.Merge(b)
	apply(t, d)
	conn.never = true
	d.drift.notified = true
	change := intent.Batch{Policies: []intent.Policy{{ID: np("np-b"), Tier: "default", Egress: []intent.Rule{tcp(intent.Deny, 81), anything}}}}
	d.Merge(change)
	apply(t, d)
	if !d.drift.notified {
		t.Error("it would not look again")
	}
	conn.never = false
	fresh := newKernel(t)
	f := New(fresh, Config{})
	f.Merge(b)
	f.Merge(change)
	apply(t, f)
	if got, want := k.canonical(t), fresh.canonical(t); got != want {
		t.Error(lineDiff(want, got))
	}
}

// unreadable is a kernel whose table never holds still while it is read.
type unreadable struct {
	*kernelConn
	never bool
}

func (u *unreadable) List(table string) (*nftables.Ruleset, error) {
	if u.never {
		return nil, fmt.Errorf("list: %w", nftables.ErrInterrupted)
	}
	return u.kernelConn.List(table)
}
