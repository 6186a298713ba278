package revoke_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/dataplane"
	"github.com/twillnet/twill/internal/dataplane/nft"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// faulty is a kernel whose transactions fail, or that keeps its caller waiting.
type faulty struct {
	*nftables.Conn
	held sync.Mutex // while a test has it, nothing goes in or out

	mu       sync.Mutex
	fails    bool
	failures int
}

func (f *faulty) Commit(b *nftables.Batch) error {
	f.held.Lock()
	defer f.held.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails {
		f.failures++
		return &nftables.BatchError{Ops: []nftables.OpError{{Op: "transaction", Index: -1, Err: unix.ENOMEM}}}
	}
	return f.Conn.Commit(b)
}

func (f *faulty) List(table string) (*nftables.Ruleset, error) {
	f.held.Lock()
	defer f.held.Unlock()
	return f.Conn.List(table)
}

func (f *faulty) set(fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails, f.failures = fails, 0
}

// failed waits until so many transactions have failed.
func (f *faulty) failed(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d transactions fail", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.failures >= n
	})
}

func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// looped is a pair whose policy and revocation are a loop's, as the agent's are.
type looped struct {
	*pair
	kernel  *faulty
	batches chan intent.Batch
}

func newLooped(t *testing.T, addrs ...string) *looped {
	t.Helper()
	if addrs == nil {
		addrs = []string{"10.65.0.1", "10.65.0.2"}
	}
	p := newPair(t, addrs[0], addrs[1])
	l := &looped{pair: p, kernel: &faulty{Conn: p.conn}, batches: make(chan intent.Batch)}
	policy := nft.New(l.kernel, nft.Config{Recheck: true})
	var events *nftables.Watcher
	var err error
	p.host.Do(func() { events, err = nftables.Watch(p.conn) })
	if err != nil {
		t.Fatal(err)
	}
	loop := dataplane.New(dataplane.Config{Policy: policy, Followers: []dataplane.Follower{p.revoke}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	parts.Go(func() { _ = policy.Run(ctx, events) })
	parts.Go(func() { _ = loop.Run(ctx, l.batches, make(chan []ifmon.Change)) })
	t.Cleanup(func() { cancel(); parts.Wait() })
	p.serve(quiet, func(c net.Conn) { _, _ = io.Copy(c, c) })
	p.serve(allowed, func(c net.Conn) { _, _ = io.Copy(c, c) })
	return l
}

// begin brings a first policy into force.
func (l *looped) begin(b intent.Batch) {
	l.t.Helper()
	l.batches <- l.workloads(b)
	select {
	case <-l.passes: // comes after the transaction
	case <-time.After(patience):
		l.t.Fatal("nothing comes into force")
	}
}

const allowed = 5004 // a port that no policy denies, on which the server answers what it is sent

// passed waits for a pass that found something to revoke.
func (l *looped) passed() {
	l.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case p := <-l.passes:
			if p.Err != nil {
				l.t.Fatal(p.Err)
			}
			if p.Revoked > 0 {
				return
			}
		case <-deadline:
			l.t.Fatal("no flow was ever revoked")
		}
	}
}

func (l *looped) lives(c net.Conn, what string) {
	l.t.Helper()
	if err := netnstest.Exchange(c, time.Now().Add(patience)); err != nil {
		l.t.Errorf("%s: %v", what, err)
	}
}

func (l *looped) dead(c net.Conn, what string) {
	l.t.Helper()
	if err := netnstest.Exchange(c, time.Now().Add(netnstest.Silence)); err == nil {
		l.t.Errorf("%s still carries", what)
	}
}

// TestWhatWasAdmittedBeforeARetrySucceededDies: the transaction that denies a port fails for a while. What is connected to
// the port meanwhile is connected by the old policy, which is in force; when the new one is, it dies.
func TestWhatWasAdmittedBeforeARetrySucceededDies(t *testing.T) {
	l := newLooped(t)
	l.begin(policy())
	before, other := l.dial(quiet), l.dial(allowed)
	l.lives(before, "a flow that is allowed")
	l.kernel.set(true)
	l.batches <- policy(denied(6, quiet))
	l.kernel.failed(t, 1)
	l.batches <- policy(denied(6, quiet), denied(17, quiet)) // news, while the first is not in force
	l.kernel.failed(t, 3)
	during := l.dial(quiet)
	l.lives(during, "a flow that the policy in force allows")
	l.lives(before, "another, though the next policy denies it")
	l.kernel.set(false)
	l.passed()
	l.dead(before, "a flow that was there before the change")
	l.dead(during, "a flow that was admitted before the retry succeeded")
	l.lives(other, "a flow that no policy denies")
}

// TestWhatWasAdmittedWithoutATableDies: somebody removes our table. What connects before it is back dies when it is.
func TestWhatWasAdmittedWithoutATableDies(t *testing.T) {
	for _, command := range [][]string{
		{"delete", "table", "inet", "twill"},
		{"flush", "ruleset"},
		{"flush", "chain", "inet", "twill", "forward-to-workload"}, // leaves a drop, but none where the workload sends
		{"flush", "table", "inet", "twill"},
	} {
		t.Run(fmt.Sprint(command), func(t *testing.T) {
			l := newLooped(t)
			l.begin(policy(denied(6, quiet)))
			other := l.dial(allowed)
			l.kernel.held.Lock()
			l.host.Run("nft", command...)
			// Somebody else's table, which has come back or was there: without one that asks, nothing is tracked.
			l.host.Run("nft", "add table inet other; add chain inet other c { type filter hook forward priority 0; }; add rule inet other c ct state new counter")
			if command[0] == "flush" && command[1] != "ruleset" {
				// Stages that forward are closed without their rules. Whoever is root can do anything in between.
				for _, chain := range []string{"forward-from-workload", "forward-to-workload"} {
					l.host.Run("nft", "insert", "rule", "inet", "twill", chain, "accept")
				}
			}
			during := l.dial(quiet)
			l.lives(during, "a flow while there is no policy")
			l.kernel.held.Unlock()
			l.passed()
			l.dead(during, "a flow that was admitted while there was no policy")
			l.lives(other, "a flow that no policy denies")
		})
	}
}

// TestWhatWasAdmittedBeforeSomebodyPutTheTableBackDies: our table is as it should be when it is read, but was not before.
func TestWhatWasAdmittedBeforeSomebodyPutTheTableBackDies(t *testing.T) {
	l := newLooped(t)
	l.begin(policy(denied(6, quiet)))
	other := l.dial(allowed)
	l.kernel.held.Lock()
	l.host.Run("nft", "insert", "rule", "inet", "twill", "forward-to-workload", "accept")
	during := l.dial(quiet)
	l.lives(during, "a flow while somebody's rule lets it pass")
	first := l.host.Run("nft", "-a", "list", "chain", "inet", "twill", "forward-to-workload")
	l.host.Run("nft", "delete", "rule", "inet", "twill", "forward-to-workload", "handle", handle(t, first))
	l.kernel.held.Unlock()
	l.passed()
	l.dead(during, "a flow that was admitted by somebody's rule, which has gone")
	l.lives(other, "a flow that no policy denies")
}

// handle is that of the first rule in a listing.
func handle(t *testing.T, listing string) string {
	t.Helper()
	for line := range strings.Lines(listing) {
		if rule, h, ok := strings.Cut(strings.TrimSpace(line), " # handle "); ok && !strings.HasPrefix(rule, "chain") {
			return h
		}
	}
	t.Fatalf("no rule in %s", listing)
	return ""
}
