package nft

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// narrow stands for a kernel that refuses some transactions as a whole, and says only why.
type narrow struct {
	*kernelConn
	driver          *Driver
	limit           int        // in bytes: of more it takes nothing, as a socket with so small a buffer; zero: none
	bad             intent.Key // with anything for it, the kernel has no memory
	commits, checks int
	biggest         int
	before          func() // a transaction
}

func (n *narrow) refuse(b *nftables.Batch) error {
	if n.limit > 0 && b.Size() > n.limit {
		return fmt.Errorf("send %d bytes: %w", b.Size(), syscall.EMSGSIZE)
	}
	p := n.driver.trying
	for i := range b.Len() {
		if n.bad != nil && p.owner(i) == n.bad && (p.of == nil || p.of[n.bad]) {
			return &nftables.BatchError{Ops: []nftables.OpError{{Op: "transaction", Index: -1, Err: syscall.ENOMEM}}}
		}
	}
	return nil
}

func (n *narrow) Commit(b *nftables.Batch) error {
	n.commits++
	if err := n.refuse(b); err != nil {
		return err
	}
	n.biggest = max(n.biggest, b.Size())
	if n.before != nil {
		n.before()
	}
	return n.kernelConn.Commit(b)
}

func (n *narrow) Check(b *nftables.Batch) error {
	n.checks++
	if err := n.refuse(b); err != nil {
		return err
	}
	return n.kernelConn.Check(b)
}

func newNarrow(t *testing.T) (*narrow, *Driver) {
	n := &narrow{kernelConn: newKernel(t)}
	n.driver = New(n, Config{})
	n.driver.Merge(intent.Batch{InSync: true})
	apply(t, n.driver)
	n.commits = 0
	return n, n.driver
}

// many is a batch of so many workloads, each with a policy and a set of its own.
func many(policies, members int) intent.Batch {
	b := intent.Batch{InSync: true}
	for i := range policies {
		s := intent.IPSet{ID: intent.SetID(fmt.Sprint("set", i))}
		for j := range members {
			a := netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)})
			s.Members = append(s.Members, intent.Member{Prefix: netip.PrefixFrom(a, 32)})
		}
		p := intent.Policy{ID: np(fmt.Sprint("p", i)), Tier: "t", Ingress: []intent.Rule{{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{s.ID}}}}}
		e := wl(fmt.Sprint("w", i), fmt.Sprint("cali", i))
		intenttest.Normal(&e, tier("t", intent.Deny, []intent.PolicyID{p.ID}, nil))
		b.IPSets, b.Policies, b.Endpoints = append(b.IPSets, s), append(b.Policies, p), append(b.Endpoints, e)
	}
	return b
}

func TestMuchThatIsNewGoesInInParts(t *testing.T) {
	b := many(100, 1000)
	whole := newKernel(t)
	w := New(whole, Config{})
	w.Merge(b)
	apply(t, w)
	for _, tt := range []struct {
		name  string
		limit int
	}{
		{"since it is more than one transaction should hold", 0},
		{"since the kernel takes no more at once", 200 << 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, d := newNarrow(t)
			n.limit = tt.limit
			set := setName("hosts", intent.IPv4, b.IPSets[7].ID)
			n.before = func() {
				if slices.Contains(d.trying.ksets, d.ksets[mapIn]) && !strings.Contains(n.ns.Run("nft", "list set inet twill "+set), "10.7.3.231") {
					t.Error("a workload is open before the set that its policy looks into is full")
				}
			}
			d.Merge(b)
			for _, o := range apply(t, d) {
				if o.Err != nil {
					t.Errorf("%s: %v", o.Key, o.Err)
				}
			}
			most := maxRoom + maxRoom/8 // the last part holds what changes, and no more than that
			if tt.limit > 0 {
				most = tt.limit
			}
			t.Logf("%d transactions, at most %d bytes", n.commits, n.biggest)
			if n.commits < 2 || n.biggest > most {
				t.Errorf("%d transactions, the largest has %d bytes", n.commits, n.biggest)
			}
			if got, want := n.canonical(t), whole.canonical(t); got != want {
				t.Error("the table is not what one transaction makes of it: " + lineDiff(want, got)[:500])
			}
		})
	}
}

// TestChainsThatLookIntoNewTables: what is rewritten is more than a transaction holds, so the new chains go first. Those of a host endpoint
// look into tables, which are new, too: sent before those, they are refused, and the endpoint is closed until it is tried again.
func TestChainsThatLookIntoNewTables(t *testing.T) {
	n, d := newNarrow(t)
	b := many(2, 10)
	b.Policies[1] = huge("p1", maxRoom)
	d.Merge(b)
	apply(t, d)
	n.commits = 0
	e := hep("up0")
	intenttest.Normal(&e, tier("t", intent.Deny, []intent.PolicyID{b.Policies[0].ID}, nil))
	more := huge("p1", maxRoom+maxRoom/4)
	d.Merge(compiledBatch(intent.Batch{Policies: []intent.Policy{more}, Endpoints: []intent.Endpoint{e}}))
	for _, o := range apply(t, d) {
		if o.Err != nil {
			t.Errorf("%s: %v", o.Key, o.Err)
		}
	}
	if n.commits < 2 {
		t.Errorf("%d transactions", n.commits)
	}
	if out, err := d.Differences(t.Context()); err != nil || len(out) > 0 {
		t.Errorf("differences: %v, %v", out, err)
	}
}

// huge is a policy whose chain alone is so many bytes and more.
func huge(name string, size int) intent.Policy {
	p := intent.Policy{ID: np(name), Tier: "t"}
	for i := range size / 200 {
		p.Ingress = append(p.Ingress, intent.Rule{Action: intent.Allow, Protocol: 6, Dst: intent.Peer{Ports: []intent.PortRange{{Min: uint16(i), Max: uint16(i)}}}})
	}
	return p
}

func TestOneThatHasTheWholeTransactionRefusedIsFound(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(n *narrow, b *intent.Batch) intent.Key // makes one guilty
		want error
	}{
		{"a new policy that no transaction can hold", func(n *narrow, b *intent.Batch) intent.Key {
			n.limit = 256 << 10
			b.Policies[17] = huge("p17", 512<<10)
			return np("p17")
		}, syscall.EMSGSIZE},
		{"a policy, for no reason that shows", func(n *narrow, _ *intent.Batch) intent.Key { n.bad = np("p3"); return n.bad }, syscall.ENOMEM},
		{"a set, for no reason that shows", func(n *narrow, b *intent.Batch) intent.Key {
			n.bad = b.IPSets[50].ID
			return n.bad
		}, syscall.ENOMEM},
		{"an endpoint, for no reason that shows", func(n *narrow, b *intent.Batch) intent.Key { n.bad = b.Endpoints[63].ID; return n.bad }, syscall.ENOMEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, d := newNarrow(t)
			good, b := many(64, 3), many(64, 3)
			guilty := tt.set(n, &b)
			d.Merge(b)
			failed := map[intent.Key]error{}
			for _, o := range apply(t, d) {
				if o.Err != nil {
					failed[o.Key] = o.Err
				}
			}
			if !errors.Is(failed[guilty], tt.want) {
				t.Errorf("the guilty one's outcome: %v", failed[guilty])
			}
			for key := range failed {
				if intent.KindOf(key) == intent.KeyEndpoint || key == guilty || intent.KindOf(guilty) == intent.KeyIPSet && intent.KindOf(key) == intent.KeyPolicy {
					continue // who needs it
				}
				t.Errorf("%s fails, too: %v", key, failed[key])
			}
			if len(failed) > 3 {
				t.Errorf("%d intents fail", len(failed))
			}
			t.Logf("%d commits, %d checks", n.commits, n.checks)
			if most := 4 + 2*bits.Len(3*64); n.checks > most || n.commits > 10 {
				t.Errorf("%d commits and %d checks, want at most 10 and %d", n.commits, n.checks, most)
			}
			links := n.ns.Run("nft", "list map inet twill wl-in")
			if got := strings.Count(links, ": goto"); got != 63 {
				t.Errorf("%d workloads are in force, want 63 of 64", got)
			}
			n.bad = nil
			d.Merge(intent.Batch{Policies: good.Policies[17:18]})
			must(t, d.Resync(t.Context()))
			for _, o := range apply(t, d) {
				if o.Err != nil {
					t.Errorf("once it is well: %s: %v", o.Key, o.Err)
				}
			}
		})
	}
}

func TestManyChangesThatAreTooMuchTogetherGoInOneAfterTheOther(t *testing.T) {
	n, d := newNarrow(t)
	b := many(8, 3)
	for i := range b.Policies {
		b.Policies[i] = huge(b.Policies[i].ID.Name, 4<<10)
	}
	d.Merge(b)
	apply(t, d)
	for i := range b.Policies {
		b.Policies[i] = huge(b.Policies[i].ID.Name, 64<<10)
	}
	n.limit = 400 << 10 // of some 8 × 90 KiB
	d.Merge(intent.Batch{Policies: b.Policies})
	for range 8 {
		bad := 0
		for _, o := range apply(t, d) {
			if o.Err != nil {
				bad++
			}
		}
		if bad == 0 {
			return
		}
		must(t, d.Resync(t.Context()))
		d.Retry() // as the loop does before it tries again
	}
	t.Error("some are never in force")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
