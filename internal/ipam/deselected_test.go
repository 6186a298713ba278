package ipam

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// TestAnEmptiedBlockIsKeptOnlyForAPoolOfItsNode: a node that moved to another rack gives the blocks of its former rack's pool up.
func TestAnEmptiedBlockIsKeptOnlyForAPoolOfItsNode(t *testing.T) {
	byHandle := func(f *fixture, handle string, _ netip.Addr) error {
		_, err := f.ReleaseByHandle(f.Context(), handle)
		return err
	}
	byAddress := func(f *fixture, _ string, a netip.Addr) error {
		_, err := f.Release(f.Context(), Release{Addr: a})
		return err
	}
	for _, tt := range []struct {
		name, pool, node string
		release          func(*fixture, string, netip.Addr) error
		given            bool // the block is given up
	}{
		{"by handle, of a pool that no longer selects the node", `"nodeSelector":"rack == \"r1\""`, `{"rack":"r2"}`, byHandle, true},
		{"by address, of a pool that no longer selects the node", `"nodeSelector":"rack == \"r1\""`, `{"rack":"r2"}`, byAddress, true},
		{"of a pool that selects the node", `"nodeSelector":"rack == \"r2\""`, `{"rack":"r2"}`, byHandle, false},
		{"of a disabled pool", `"nodeSelector":"rack == \"r1\"","disabled":true`, `{"rack":"r2"}`, byHandle, false},
		{"of a pool whose selector cannot be read", `"nodeSelector":"rack =="`, `{"rack":"r2"}`, byHandle, false},
		{"of a node that is not there", `"nodeSelector":"rack == \"r1\""`, "", byHandle, false},
		{"of a node whose labels cannot be read", `"nodeSelector":"rack == \"r1\""`, `7`, byHandle, false},
	} {
		for _, twoPhase := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				f := newFixture(t)
				f.Allocator = f.allocator(f.store, Config{TwoPhase: twoPhase})
				f.assign("h1", "a", 1)
				f.assign("h1", "b", 1)
				f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,`+tt.pool)
				if tt.node != "" {
					f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":`+tt.node+`},"spec":{}}`)
				}
				for i, handle := range []string{"a", "b"} {
					if err := tt.release(f, handle, lastFor(f, handle)); err != nil {
						t.Fatal(err)
					}
					if gone := f.state() == ""; gone != (tt.given && i == 1) {
						t.Errorf("after %d of two addresses were released: %s", i+1, f.state())
					}
				}
			})
		}
	}
}

// TestANodeThatClaimsABlockGivesUpEmptyOnesOfPoolsThatNoLongerSelectIt: those that were empty when the pool's selector changed.
func TestANodeThatClaimsABlockGivesUpEmptyOnesOfPoolsThatNoLongerSelectIt(t *testing.T) {
	f := newFixture(t)
	f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":{"rack":"r2"}},"spec":{}}`)
	f.put("ippools/r", `"cidr":"10.2.0.0/28","blockSize":30`)
	for handle, pool := range map[string]string{"a": "p", "b": "r"} {
		if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: handle, Num4: 5, Pools4: []string{pool}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, handle := range []string{"a", "b"} {
		addrs, err := f.Addresses(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs[handleKeeps[handle]:] { // one block of p keeps an address
			if _, err := f.Release(t.Context(), Release{Addr: a}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,"nodeSelector":"rack == \"r1\""`)
	f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":30`)
	if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "c", Num4: 1, Pools4: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	state := f.state()
	for prefix, want := range map[string]int{"block 10.0.0.": 1, "block 10.1.0.": 1, "block 10.2.0.": 2} {
		if got := strings.Count(state, prefix); got != want {
			t.Errorf("%d of %q, want %d:\n%s", got, prefix, want, state)
		}
	}
	f.clean()
}

func TestANodeGivesUpAFewBlocksAtATime(t *testing.T) {
	f := newFixture(t)
	f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":{"rack":"r2"}},"spec":{}}`)
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":32`)
	f.assign("h1", "a", mostGivenUp+2)
	if _, err := f.ReleaseByHandle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":32,"nodeSelector":"rack == \"r1\""`)
	f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":32`)
	for i, want := range []int{2, 0} {
		f.assign("h1", "b", 1)
		if got := strings.Count(f.state(), "block 10.0.0."); got != want {
			t.Errorf("after %d blocks were claimed elsewhere: %d, want %d:\n%s", i+1, got, want, f.state())
		}
	}
}

// TestAHandleOfManyBlocksGivesUpAFewAtATime: those that it leaves empty stay the node's until it claims another.
func TestAHandleOfManyBlocksGivesUpAFewAtATime(t *testing.T) {
	f := newFixture(t)
	f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":{"rack":"r2"}},"spec":{}}`)
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":32`)
	f.assign("h1", "a", mostGivenUp+2)
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":32,"nodeSelector":"rack == \"r1\""`)
	if freed, err := f.ReleaseByHandle(t.Context(), "a"); err != nil || len(freed) != mostGivenUp+2 {
		t.Fatal(freed, err)
	}
	if got := strings.Count(f.state(), "block 10.0.0."); got != 2 {
		t.Errorf("%d blocks are left, want 2:\n%s", got, f.state())
	}
	f.clean()
}

// listing counts how often each kind is listed, and each key read.
type listing struct {
	storetest.InMemory
	reads map[string]int
}

func (s listing) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	s.reads[prefix]++
	return s.InMemory.List(ctx, prefix)
}

func (s listing) Get(ctx context.Context, key string) (api.Update, error) {
	s.reads[key]++
	return s.InMemory.Get(ctx, key)
}

// TestAReleaseReadsPoolsAndNodesOnce, however many blocks it empties.
func TestAReleaseReadsPoolsAndNodesOnce(t *testing.T) {
	for name, release := range map[string]func(*Allocator, *fixture, []Release) error{
		"by handle": func(a *Allocator, f *fixture, _ []Release) error {
			_, err := a.ReleaseByHandle(f.Context(), "a")
			return err
		},
		"by address": func(a *Allocator, f *fixture, rs []Release) error {
			_, err := a.Release(f.Context(), rs...)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":{"rack":"r2"}},"spec":{}}`)
			f.assign("h1", "a", 12) // three blocks
			addrs, err := f.Addresses(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			var rs []Release
			for _, a := range addrs {
				rs = append(rs, Release{Addr: a})
			}
			f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,"nodeSelector":"rack == \"r1\""`)
			s := listing{f.store, map[string]int{}}
			if err := release(f.allocator(s, Config{}), f, rs); err != nil {
				t.Fatal(err)
			}
			f.equal("what is left", f.state(), "")
			for _, key := range []string{api.KeyPrefix(api.KindIPPool, ""), api.ResourcesPrefix + "nodes/h1"} {
				if s.reads[key] != 1 {
					t.Errorf("%s is read %d times, want once", key, s.reads[key])
				}
			}
		})
	}
}

// handleKeeps is how many addresses of a handle are not released.
var handleKeeps = map[string]int{"a": 1}
