package ipam

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func TestWhatWasReadIsGoodForAWhile(t *testing.T) {
	f := newFixture(t)
	f.Allocator = f.allocator(f.store, Config{Reuse: time.Second})
	f.assign("h1", "a", 1)
	f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,"disabled":true`)
	f.assign("h1", "a", 1) // as if it had begun before
	f.now = f.now.Add(time.Second)
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "pool p 10.0.0.0/28 is disabled")
	f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":30`)
	if got := f.assign("h1", "a", 1); !strings.HasPrefix(got, "10.1.0.") {
		t.Errorf("a pool that was just made gives %s", got)
	}
}

func TestWhatWasWrittenIsNotReadAgainForAWhile(t *testing.T) {
	f := newFixture(t)
	var calls []string
	a := f.through(func(verb, _ string) fault { calls = append(calls, verb); return works }, false, func() error { return nil })
	assign := func(handle string, want ...string) {
		t.Helper()
		calls = nil
		if _, err := a.Assign(t.Context(), AutoArgs{Node: "h1", Handle: handle, Num4: 1, Num6: 1}); err != nil {
			t.Fatal(err)
		}
		if f.sound(handle, false); !slices.Equal(calls, want) {
			t.Errorf("%s: the store was asked to %v, want %v", handle, calls, want)
		}
	}
	first, err := a.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 1, Num6: 1})
	if err != nil {
		t.Fatal(err)
	}
	assign("b", "transact")
	if _, err := a.ReleaseByHandle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	assign("c", "transact")
	f.raw(api.AffinityKey(ownerOf("h1", UseWorkload), first[0].Block), `{"state":"pendingDeletion"}`)
	assign("d", "transact", "list", "get", "get", "get", "transact") // claims; block, handle, block
	if _, err := f.ReleaseByHandle(t.Context(), "b"); err != nil {   // by somebody else
		t.Fatal(err)
	}
	assign("e", "transact", "list", "get", "get", "get", "transact")
	f.now = f.now.Add(time.Second)
	assign("f", "list", "list", "get", "get", "list", "get", "get", "get", "transact") // pools, reservations, configuration, node; then all
}

func TestAStaleCacheIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Allocator = f.allocator(f.store, Config{Reuse: time.Second})
		f.assign("h1", "a", 1)
		f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,"disabled":true`)
		f.now = f.now.Add(600 * time.Millisecond)
		f.assign("h1", "a", 1) // does not wait for it
		synctest.Wait()
		f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "pool p 10.0.0.0/28 is disabled")
	})
}

func TestAnAddressIsABlockAHandleAndAnAffinityInOneChange(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30`)
	before := f.store.Revision()
	got, err := f.Assign(t.Context(), AutoArgs{
		Node: "h1", Handle: "net.c1", Num4: 1, Num6: 1, Attributes: map[string]string{"pod": "web", "namespace": "prod", "node": "h1"},
	})
	if err != nil || len(got) != 2 || got[0].Addr != addr("10.0.0.0") || !got[1].Addr.Is6() || got[0].Pool != "p" {
		t.Fatalf("got %v, %v", got, err)
	}
	if after := f.store.Revision(); after != before+1 && !storetest.IsPoor() {
		t.Errorf("%d revisions, want one transaction", after-before)
	}
	// As upstream has it, byte for byte.
	f.equal("block", f.get("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30"), `{"cidr":"10.0.0.0/30","affinity":"host:h1","affinity_claim_time":"2026-11-21T08:00:00Z",`+
		`"allocations":[0,null,null,null],"unallocated":[1,2,3],"attributes":[{"handle_id":"net.c1","secondary":{"namespace":"prod","node":"h1","pod":"web"}}],`+
		`"sequenceNumber":1795248000000000000,"sequenceNumberForAllocation":{"0":1795248000000000000},"deleted":false}`)
	f.equal("handle", f.get("/calico/ipam/v2/handle/net.c1"), `{"block":{"10.0.0.0/30":1,"`+got[1].Block.String()+`":1},"deleted":false}`)
	f.equal("affinity", f.get("/calico/ipam/v2/host/h1/ipv4/block/10.0.0.0-30"), `{"state":"confirmed","deleted":false}`)
}

func TestANodeUsesItsOwnBlocksThenNewOnesThenOthers(t *testing.T) {
	f := newFixture(t)
	seen := map[string]bool{}
	for range 2 {
		got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 2})
		if err != nil {
			t.Fatal(err)
		}
		seen[got[0].Block.String()] = true
	}
	if len(seen) != 1 {
		t.Errorf("four addresses are of %v, want one block", seen)
	}
	f.assign("h1", "a", 1) // a second block
	f.assign("h2", "b", 8) // the other two
	f.assign("h2", "b", 3) // of h1's second
	if s := f.state(); !strings.Contains(s, `handle b {"block":{`) || strings.Count(s, "block 10.") != 4 {
		t.Errorf("state:\n%s", s)
	}
	f.refused(AutoArgs{Node: "h2", Handle: "b", Num4: 1}, "assign 1 IPv4 address on h2: no address is left for h2", "pool p 10.0.0.0/28 has too few left: 16 in use in 4 blocks", "twill ipam check")
	f.clean()
}

func TestBothFamiliesOrNone(t *testing.T) {
	f := newFixture(t)
	f.assign("h2", "b", 16)
	before := f.state()
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num6: 3, Num4: 1}, "1 IPv4 address wanted")
	f.equal("state", f.state(), before)
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num6: 17}, "17 IPv6 addresses wanted")
	f.equal("state", f.state(), before)
}

func TestStrictAffinityForbidsBorrowing(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true})
	f.assign("h1", "a", 13) // all four blocks, three addresses left
	f.refused(AutoArgs{Node: "h2", Handle: "b", Num4: 1}, "3 free in blocks of others", "strictAffinity forbids borrowing")
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: freeOf(f), Node: "h2", Handle: "b"}); !errors.Is(err, ErrAffinity) {
		t.Errorf("explicit: %v", err)
	}
	f.configure(api.DefaultIPAMConfig())
	f.assign("h2", "b", 3)
	f.clean()
}

// freeOf is an address of pool p that nobody has.
func freeOf(f *fixture) (free netip.Addr) {
	v, err := f.ReadSurvey(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range v.Blocks {
		if len(b.Unallocated) > 0 && b.CIDR.Addr().Is4() {
			return b.Addr(b.Unallocated[0])
		}
	}
	f.Fatal("nothing is free")
	return free
}

func TestHowManyBlocksANodeMayHave(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 2})
	f.assign("h1", "a", 8)
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "h1 has 2 blocks already, which is the most it may have (maxBlocksPerHost)")
	f.configure(api.IPAMConfig{StrictAffinity: true})
	f.refused(AutoArgs{Node: "h3", Handle: "c", Num4: 1}, "autoAllocateBlocks is false")
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, MaxBlocksPerHost: 1})
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":30`)
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "h1 has 2 blocks already")
}

func TestANodeThatHasAllTheBlocksItMayHaveBorrows(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, MaxBlocksPerHost: 1})
	f.assign("h2", "b", 1)
	f.assign("h1", "a", 4)
	got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "c", Num4: 1})
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	v, err := f.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range v.Blocks {
		if owner, _ := b.Owner(); b.CIDR.Contains(got[0].Addr) && owner.Name != "h2" {
			t.Errorf("%s is of block %s of %q, want one of h2", got[0].Addr, b.CIDR, owner.Name)
		}
	}
	if len(v.Blocks) != 2 {
		t.Errorf("%d blocks, and two were free to be had", len(v.Blocks))
	}
}

func TestAChangeIsBegunAHundredTimesAtMost(t *testing.T) {
	f := newFixture(t)
	tries := 0
	f.store.Fail(func(op memstore.Op) error {
		if op.Verb == "transact" {
			tries++
			return datastore.ErrConflict
		}
		return nil
	})
	a := f.allocator(f.store, Config{Pause: func(context.Context, int) error { return nil }})
	if _, err := a.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 1}); !errors.Is(err, datastore.ErrConflict) || tries != 100 {
		t.Errorf("%d tries, %v; want 100", tries, err)
	}
}

// TestAPoolThatIsStoredWithoutASizeHasUpstreamsBlocks: 64 addresses each.
func TestAPoolThatIsStoredWithoutASizeHasUpstreamsBlocks(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/16"`)
	f.put("ippools/p6", `"cidr":"fd65::/64"`)
	got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 1, Num6: 1})
	if err != nil || len(got) != 2 || got[0].Block.Bits() != 26 || got[1].Block.Bits() != 122 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestOfTwentyBlocksAtMost(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":32`)
	f.assign("h1", "a", 20)
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "h1 has 20 blocks already")
}

func TestReservedAddressesAreNotGivenOutUnasked(t *testing.T) {
	f := newFixture(t)
	f.put("ipreservations/r", `"reservedCIDRs":["10.0.0.0/29","10.0.0.8","10.0.0.12/31"]`)
	got := f.assign("h1", "a", 5)
	for _, a := range []string{"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.14", "10.0.0.15"} {
		if !strings.Contains(got, a) {
			t.Errorf("%s is missing in %s", a, got)
		}
	}
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "3 ranges reserved")
	if s := f.state(); strings.Count(s, "block 10.") != 2 {
		t.Errorf("blocks that are reserved whole were claimed:\n%s", s)
	}
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.8"), Node: "h1", Handle: "a"}); err != nil {
		t.Errorf("asked for by name: %v", err)
	}
	f.clean()
}

func TestAReservationOfMostOfALargePoolIsStrodeOver(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p6", `"cidr":"fd66::/32","blockSize":122`)
	f.put("ipreservations/r", `"reservedCIDRs":["fd66::/33","fd66:0:8000::/34","fd66:0:c000::/35"]`)
	got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num6: 1})
	if err != nil || !strings.HasPrefix(got[0].Addr.String(), "fd66:0:") {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPoolsAreChosenByWhoAsks(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30,"disabled":true`)
	f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":30,"nodeSelector":"rack == \"r1\""`)
	f.put("ippools/r", `"cidr":"10.2.0.0/28","blockSize":30,"allowedUses":["Tunnel"]`)
	f.put("ippools/s", `"cidr":"10.3.0.0/28","blockSize":30,"assignmentMode":"Manual"`)
	f.put("ippools/t", `"cidr":"10.4.0.0/28","blockSize":30,"namespaceSelector":"team == \"red\"","allowedUses":["Workload"]`)
	f.put("ippools/u", `"cidr":"10.5.0.0/28","blockSize":30,"allowedUses":["LoadBalancer"]`)
	f.put("ippools/v", `"cidr":"10.6.0.0/28","blockSize":26,"disabled":true`) // smaller than a block
	f.raw(api.ResourcesPrefix+"ippools/w", `{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{"cidr":"10.7.0.0/28","blockSize":30}}`)
	f.raw(api.ResourcesPrefix+"nodes/h1", `{"metadata":{"labels":{"rack":"r1"}},"spec":{}}`)
	f.put("profiles/kns.prod", `"labelsToApply":{"pcns.team":"red"}`)
	f.refused(AutoArgs{Node: "h9", Handle: "a", Num4: 1, Namespace: "other"},
		"pool p 10.0.0.0/28 is disabled", `pool q 10.1.0.0/28 its nodeSelector rack == "r1" does not match, and the datastore has no node h9`,
		"pool r 10.2.0.0/28 is for Tunnel only (allowedUses), not for Workload", "pool s 10.3.0.0/28 gives addresses only to those who ask for it by name",
		`pool t 10.4.0.0/28 its namespaceSelector team == "red" does not match`, "pool v 10.6.0.0/28 is disabled", "pool w 10.7.0.0/28 is being deleted")
	for _, tt := range []struct {
		name, want string
		args       AutoArgs
	}{
		{"by its node", "10.1.0.", AutoArgs{Node: "h1"}},
		{"by its namespace", "10.4.0.", AutoArgs{Node: "h9", Namespace: "prod"}},
		{"by its use", "10.2.0.", AutoArgs{Node: "h9", Use: UseTunnel}},
		{"by name, whatever selectors say", "10.1.0.", AutoArgs{Node: "h9", Pools4: []string{"q"}}},
		{"by name, whatever its namespaceSelector says", "10.4.0.", AutoArgs{Node: "h9", Namespace: "other", Pools4: []string{"t"}}},
		{"by CIDR, although it is manual", "10.3.0.", AutoArgs{Node: "h9", Pools4: []string{"10.3.0.0/28"}}},
		{"for load balancers", "10.5.0.", AutoArgs{Node: "h9", Use: UseLoadBalancer}},
		{"in the order asked for", "10.3.0.", AutoArgs{Node: "h8", Pools4: []string{"s", "q"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.args.Handle, tt.args.Num4 = "a", 1
			if got, err := f.Assign(t.Context(), tt.args); err != nil || !strings.HasPrefix(addrs(got), tt.want) {
				t.Errorf("got %s, %v", addrs(got), err)
			}
		})
	}
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1, Pools4: []string{"p"}}, "is disabled", "is not one of those asked for")
	f.put("ippools/six", `"cidr":"fd67::/124","blockSize":126,"assignmentMode":"Manual"`)
	if got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 1, Num6: 1, Pools4: []string{"q"}, Pools6: []string{"six"}}); err != nil || len(got) != 2 || !strings.HasPrefix(addrs(got[1:]), "fd67::") {
		t.Errorf("of both families, by name: %s, %v", addrs(got), err)
	}
	if s := f.state(); !strings.Contains(s, `virtual/load-balancer/ipv4/block/10.5.0.`) {
		t.Errorf("state:\n%s", s)
	}
	v, err := f.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lb := slices.IndexFunc(v.Blocks, func(b *api.Block) bool { return netip.MustParsePrefix("10.5.0.0/28").Contains(b.CIDR.Addr()) })
	if lb < 0 || *v.Blocks[lb].Affinity != "virtual:load-balancer" {
		t.Errorf("the load balancers' block: %+v", v.Blocks)
	}
}

// TestPoolsOfOneFamilySayNothingOfTheOther, and one that is not there is an error, not a wish for fewer.
func TestPoolsOfOneFamilySayNothingOfTheOther(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/q", `"cidr":"10.1.0.0/28","blockSize":30`)
	if got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 1, Num6: 1, Pools4: []string{"10.1.0.1/28"}}); err != nil || !strings.HasPrefix(addrs(got), "10.1.0.") || !strings.Contains(addrs(got), " fd65::") {
		t.Errorf("of one IPv4 pool, and of any of IPv6: %s, %v", addrs(got), err)
	}
	before := f.state()
	f.refused(AutoArgs{Node: "h1", Handle: "b", Num4: 1, Num6: 1, Pools6: []string{"p6", "q"}}, `"q" is neither name nor prefix of a pool of IPv6`)
	f.refused(AutoArgs{Node: "h1", Handle: "b", Num4: 1, Pools4: []string{"q", "10.9.0.0/28"}}, `"10.9.0.0/28" is neither name nor prefix of a pool of IPv4`)
	f.equal("after refusals", f.state(), before)
}

// TestEachHostBeginsAtAPlaceOfItsOwn: by its name, so that hosts that start together want different blocks; and at the same in each
// cluster, from which it goes on in order.
func TestEachHostBeginsAtAPlaceOfItsOwn(t *testing.T) {
	blocks := func(host string) (out []netip.Prefix) {
		f := newFixture(t)
		f.put("ippools/p", `"cidr":"10.0.0.0/24","blockSize":30`)
		for range 3 {
			got, err := f.Assign(t.Context(), AutoArgs{Node: host, Handle: "a", Num4: 4})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, got[0].Block)
		}
		return out
	}
	const hosts = 12
	begun := map[netip.Prefix]bool{}
	for i := range hosts {
		host := "host-" + strconv.Itoa(i)
		first, again := blocks(host), blocks(host)
		if !slices.Equal(first, again) {
			t.Errorf("%s takes %v, and in another cluster %v", host, first, again)
		}
		begun[first[0]] = true
	}
	if len(begun) < hosts/2 {
		t.Errorf("of 64 blocks, %d hosts begin at %d: %v", hosts, len(begun), begun)
	}
}

func TestAnEmptyBlockIsTakenFromItsOwnerWhenItIsOld(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{StrictAffinity: true, AutoAllocateBlocks: true})
	f.assign("h1", "a", 16)
	if _, err := f.ReleaseByHandle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	f.refused(AutoArgs{Node: "h2", Handle: "b", Num4: 1}, "16 free in blocks of others")
	f.now = f.now.Add(minIdleAge)
	f.assign("h2", "b", 1)
	s := f.state()
	if strings.Count(s, "host/h1/") != 3 || strings.Count(s, "host/h2/") != 1 || strings.Count(s, "block 10.") != 4 {
		t.Errorf("state:\n%s", s)
	}
	f.clean()
}

func TestBlocksOfAFormerPoolAreNotOverlapped(t *testing.T) {
	for _, size := range []string{"28", "31"} { // larger and smaller than the blocks that are there
		f := newFixture(t)
		for i, a := range []string{"10.0.0.1", "10.0.0.9"} {
			if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr(a), Node: "h1", Handle: string(rune('a' + i))}); err != nil {
				t.Fatal(err)
			}
		}
		f.put("ippools/p", `"cidr":"10.0.0.0/27","blockSize":`+size)
		got, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.2"), Node: "h1", Handle: "c"})
		if err != nil || got.Block.String() != "10.0.0.0/30" {
			t.Errorf("/%s: by name, within a former block: %+v, %v", size, got, err)
		}
		if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.5"), Node: "h1", Handle: "c"}); (err != nil) != (size == "28") {
			t.Errorf("/%s: by name, beside a former block: %v", size, err)
		}
		var last error
		for i := 0; last == nil; i++ {
			_, last = f.Assign(t.Context(), AutoArgs{Node: "h2", Handle: "x", Num4: 1})
			if i > 40 {
				t.Fatal("there is no end of addresses")
			}
		}
		f.clean() // nothing overlaps
		f.raw("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29", `{"cidr":"10.0.0.0/29","affinity":"host:h1","allocations":[null,null,null,null,null,null,null,null],`+
			`"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}`)
		if found := f.check(0); !strings.Contains(found[0].words(), "10.0.0.0/29 and 10.0.0.0/30 have addresses in common") {
			t.Errorf("/%s: an overlap was not found: %s", size, found[0].words())
		}
	}
}

func TestAnAddressByName(t *testing.T) {
	f := newFixture(t)
	got, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.5"), Node: "h1", Handle: "a"})
	if err != nil || got.Block.String() != "10.0.0.4/30" || got.Pool != "p" || got.Sequence == 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	var taken *AssignedError
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.5"), Node: "h1", Handle: "b"}); !errors.As(err, &taken) || taken.Handle != "a" || !errors.Is(err, ErrAssigned) {
		t.Errorf("again: %v", err)
	}
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.9.0.5"), Node: "h1", Handle: "b"}); !errors.Is(err, ErrNoPool) {
		t.Errorf("of no pool: %v", err)
	}
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.6"), Node: "h2", Handle: "b"}); err != nil {
		t.Errorf("borrowed: %v", err)
	}
	f.equal("state", f.state(), `block 10.0.0.4/30 of "h1": 2 used`+"\n"+`handle a {"block":{"10.0.0.4/30":1},"deleted":false}`+"\n"+
		`handle b {"block":{"10.0.0.4/30":1},"deleted":false}`+"\n"+`host/h1/ipv4/block/10.0.0.4-30 {"state":"confirmed","deleted":false}`)
	f.clean()
}

func TestNamesThatKeysCannotHaveAreRefused(t *testing.T) {
	f := newFixture(t)
	for _, args := range []AutoArgs{{Node: "", Handle: "a"}, {Node: "a/b", Handle: "a"}, {Node: "h1"}, {Node: "h1", Handle: "a/b"}} {
		if _, err := f.Assign(t.Context(), args); err == nil {
			t.Errorf("%+v was taken", args)
		}
	}
}

func TestAnEndedContextEndsAnAssignment(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Assign(ctx, AutoArgs{Node: "h1", Handle: "a", Num4: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.turn <- struct{}{} // another change of this allocator runs, and does not end
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := f.Assign(ctx, AutoArgs{Node: "h1", Handle: "a", Num4: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while waiting for its turn: %v", err)
	}
}

func TestABlockThatCannotBeReadIsLeftAlone(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/29","blockSize":30`)
	f.raw("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30", `{`)
	f.raw("/calico/ipam/v2/host/h1/ipv4/block/10.0.0.0-30", `{"state":"confirmed","deleted":false}`)
	if got := f.assign("h1", "a", 4); strings.Contains(got, "10.0.0.3") {
		t.Errorf("got %s", got)
	}
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1}, "1 blocks cannot be read")
}

func TestAFreeListThatLiesGivesNothingAwayTwice(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30`)
	f.raw("/calico/ipam/v2/host/h1/ipv4/block/10.0.0.0-30", `{"state":"confirmed","deleted":false}`)
	f.raw("/calico/ipam/v2/handle/a", `{"block":{"10.0.0.0/30":1},"deleted":false}`)
	f.raw("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30", `{"cidr":"10.0.0.0/30","affinity":"host:h1","allocations":[0,null,null,null],`+
		`"unallocated":[0,9,-1,1,1,2,3],"attributes":[{"handle_id":"a"}],"sequenceNumber":5,"sequenceNumberForAllocation":{"0":4},"deleted":false}`)
	f.equal("what is free", f.assign("h1", "b", 3), "10.0.0.1 10.0.0.2 10.0.0.3")
	f.clean()
}
