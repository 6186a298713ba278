package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

func TestALateReleaseDoesNotHitTheNextOwner(t *testing.T) {
	f := newFixture(t)
	one := IPArgs{Addr: addr("10.0.0.1"), Node: "h1", Handle: "a"}
	first, err := f.AssignIP(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	late := Release{Addr: one.Addr, Handle: "a", Sequence: &first.Sequence}
	for i, want := range []int{1, 0} { // twice is no error
		if freed, err := f.Release(t.Context(), late); err != nil || len(freed) != want {
			t.Errorf("release %d: %v, %v", i+1, freed, err)
		}
	}
	for _, again := range []string{"a", "b"} { // the same handle again, and another
		one.Handle = again
		if _, err := f.AssignIP(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		var reused *ReusedError
		if freed, err := f.Release(t.Context(), late); !errors.As(err, &reused) || !errors.Is(err, ErrReused) || reused.Handle != again || len(freed) > 0 {
			t.Errorf("late, now %s's: %v, %v", again, freed, err)
		}
		if freed, err := f.Release(t.Context(), Release{Addr: one.Addr, Handle: "c"}); !errors.Is(err, ErrReused) || len(freed) > 0 {
			t.Errorf("of another handle: %v, %v", freed, err)
		}
		if freed, err := f.Release(t.Context(), Release{Addr: one.Addr}); err != nil || len(freed) != 1 {
			t.Errorf("whoever has it: %v, %v", freed, err)
		}
	}
	f.equal("state", f.state(), `block 10.0.0.0/30 of "h1": 0 used`+"\n"+`host/h1/ipv4/block/10.0.0.0-30 {"state":"confirmed","deleted":false}`)
}

func TestABlockThatIsMadeAgainCountsOn(t *testing.T) {
	f := newFixture(t)
	one := IPArgs{Addr: addr("10.0.0.1"), Node: "h1", Handle: "a"}
	first, err := f.AssignIP(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	f.ReleaseByHandle(t.Context(), "a")
	if err := f.ReleaseHostAffinities(t.Context(), "h1", true); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(time.Microsecond)
	if second, err := f.AssignIP(t.Context(), one); err != nil || second.Sequence == first.Sequence {
		t.Errorf("sequence %d, then %d: %v", first.Sequence, second.Sequence, err)
	}
}

func TestSeveralAreReleasedByBlock(t *testing.T) {
	f := newFixture(t)
	got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 6, Num6: 2})
	if err != nil {
		t.Fatal(err)
	}
	var rs []Release
	for _, a := range got {
		rs = append(rs, Release{Addr: a.Addr, Handle: "a", Sequence: &a.Sequence})
	}
	rs = append(rs, rs[0], Release{Addr: addr("10.0.0.200")}) // twice, and one that no block has
	bad := uint64(1)
	wrong := slices.Clone(rs)
	wrong[1].Sequence = &bad
	freed, err := f.Release(t.Context(), wrong...)
	if !errors.Is(err, ErrReused) || len(freed) != 4 {
		t.Errorf("one of a block is not its: %v, %v; want the other blocks' four", freed, err)
	}
	if freed, err = f.Release(t.Context(), rs...); err != nil || len(freed) != 4 {
		t.Errorf("the rest: %v, %v", freed, err)
	}
	f.equal("handle", f.get("/calico/ipam/v2/handle/a"), "get /calico/ipam/v2/handle/a: not found")
	f.clean()
}

func TestTheAddressThatWasFreeLongestComesNext(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30`)
	for i := range 4 {
		f.equal("in order", f.assign("h1", fmt.Sprint(i), 1), fmt.Sprintf("10.0.0.%d", i))
	}
	for _, i := range []int{2, 0, 3} {
		f.ReleaseByHandle(t.Context(), fmt.Sprint(i))
	}
	f.equal("again", f.assign("h1", "again", 3), "10.0.0.2 10.0.0.0 10.0.0.3")
}

func TestReleasedAddressesCoolDown(t *testing.T) {
	f := newFixture(t)
	f.put("ippools/p", `"cidr":"10.0.0.0/31","blockSize":31`)
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, CooldownSeconds: 60})
	f.assign("h1", "a", 2)
	first := Release{Addr: addr("10.0.0.1"), Handle: "a"}
	f.Release(t.Context(), first)
	f.now = f.now.Add(10 * time.Second)
	f.ReleaseByHandle(t.Context(), "a")
	if freed, err := f.Release(t.Context(), first); err != nil || len(freed) != 0 {
		t.Errorf("released again: %v, %v", freed, err)
	}
	f.refused(AutoArgs{Node: "h1", Handle: "b", Num4: 1}, "2 cooling down")
	f.clean()
	if got, _ := f.QueryIP(t.Context(), first.Addr); got.Assigned || got.ReleasedAt != "2026-11-21T08:00:00Z" || got.Handle != "a" {
		t.Errorf("query: %+v", got)
	}
	f.now = start.Add(60 * time.Second)
	f.equal("after a minute", f.assign("h1", "b", 1), "10.0.0.1")
	f.refused(AutoArgs{Node: "h1", Handle: "b", Num4: 1}, "1 cooling down")
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.0"), Node: "h1", Handle: "b"}); err != nil {
		t.Errorf("asked for by name: %v", err)
	}
	f.clean()
}

func TestABlockThatOnlyCoolsDownAndIsNobodysIsFound(t *testing.T) {
	f := newFixture(t)
	f.configure(api.IPAMConfig{AutoAllocateBlocks: true, CooldownSeconds: 60})
	f.assign("h1", "a", 1)
	f.ReleaseByHandle(t.Context(), "a")
	if err := f.ReleaseHostAffinities(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	f.clean() // it cools down
	f.now = f.now.Add(time.Minute)
	found := f.check(0)
	if len(found) != 1 || !strings.Contains(found[0].Problem, "is nobody's") {
		t.Fatalf("found %+v", found)
	}
	if r := f.Repair(t.Context(), found); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	f.equal("state", f.state(), "")
}

func TestANodeGivesItsBlocksUp(t *testing.T) {
	f := newFixture(t)
	if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 5, Num6: 1}); err != nil {
		t.Fatal(err)
	}
	f.Release(t.Context(), Release{Addr: lastFor(f, "a")})
	before := f.state()
	if err := f.ReleaseHostAffinities(t.Context(), "h1", true); !errors.Is(err, ErrInUse) || strings.Count(err.Error(), "has addresses in use") != 2 {
		t.Errorf("in use: %v", err)
	}
	if as, err := f.Addresses(t.Context(), "a"); err != nil || len(as) != 5 {
		t.Errorf("what is in use: %v, %v", as, err)
	}
	if n := strings.Count(before, `of "h1"`) - strings.Count(f.state(), `of "h1"`); n != 1 {
		t.Errorf("%d blocks were given up, want the one that is empty:\n%s", n, f.state())
	}
	if err := f.ReleaseHostAffinities(t.Context(), "h1", false); err != nil {
		t.Fatal(err)
	}
	if s := f.state(); strings.Contains(s, "host/h1") || strings.Contains(s, `"h1"`) {
		t.Errorf("still its:\n%s", s)
	}
	f.clean()
	if _, err := f.ReleaseByHandle(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	f.equal("a block that is nobody's goes with its last address", f.state(), "")
}

// TestANodeGivesUpBlocksWithinAPrefix: pool p has four blocks, 10.0.0.0/30 to 10.0.0.12/30, of which h1 has three, the last with nothing in it.
func TestANodeGivesUpBlocksWithinAPrefix(t *testing.T) {
	for _, tt := range []struct {
		name, within string
		mustBeEmpty  bool
		given        string // blocks
		kept         int    // blocks that the error has
	}{
		{"all", "10.0.0.0/28", false, "[10.0.0.0/30 10.0.0.4/30 10.0.0.8/30]", 0},
		{"all of them that are empty", "10.0.0.0/28", true, "[10.0.0.8/30]", 2},
		{"half of the pool", "10.0.0.8/29", true, "[10.0.0.8/30]", 0},
		{"the other half", "10.0.0.0/29", true, "[]", 2},
		{"one block", "10.0.0.4/30", false, "[10.0.0.4/30]", 0},
		{"a part of a block", "10.0.0.4/31", false, "[]", 0},
		{"the block of another node", "10.0.0.12/30", false, "[]", 0},
		{"another family", "fd65::/64", false, "[]", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			for _, a := range []struct{ addr, node string }{{"10.0.0.1", "h1"}, {"10.0.0.5", "h1"}, {"10.0.0.9", "h1"}, {"10.0.0.13", "h2"}} {
				if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr(a.addr), Node: a.node, Handle: a.addr}); err != nil {
					t.Fatal(err)
				}
			}
			f.ReleaseByHandle(t.Context(), "10.0.0.9")
			given, err := f.ReleaseAffinities(t.Context(), "h1", netip.MustParsePrefix(tt.within), tt.mustBeEmpty)
			kept := 0
			if err != nil {
				kept = strings.Count(err.Error(), "has addresses in use")
			}
			if fmt.Sprint(given) != tt.given || kept != tt.kept || errors.Is(err, ErrInUse) != (kept > 0) {
				t.Errorf("given up: %v, want %s; in use: %d, want %d (%v)", given, tt.given, kept, tt.kept, err)
			}
			if n := strings.Count(f.state(), `of "h1"`); n != 3-len(given) {
				t.Errorf("h1 has %d blocks, and gave %d of 3 up:\n%s", n, len(given), f.state())
			}
			for _, a := range []string{"10.0.0.1", "10.0.0.5", "10.0.0.13"} {
				if l, err := f.QueryIP(t.Context(), addr(a)); err != nil || !l.Assigned {
					t.Errorf("%s is free by now: %+v, %v", a, l, err)
				}
			}
		})
	}
}

// lastFor is the last address of a handle.
func lastFor(f *fixture, handle string) netip.Addr {
	as, err := f.Addresses(f.Context(), handle)
	if err != nil || len(as) == 0 {
		f.Fatalf("%v, %v", as, err)
	}
	return as[len(as)-1]
}

func TestABlockIsThereBeforeItIsNeeded(t *testing.T) {
	f := newFixture(t)
	p, err := f.EnsureBlock(t.Context(), BlockArgs{Node: "h1"})
	if err != nil {
		t.Fatal(err)
	}
	before := f.store.Revision()
	if again, err := f.EnsureBlock(t.Context(), BlockArgs{Node: "h1"}); err != nil || again != p || f.store.Revision() != before {
		t.Errorf("again: %s, %v, want %s and nothing written", again, err, p)
	}
	f.assign("h1", "a", 4)
	if next, err := f.EnsureBlock(t.Context(), BlockArgs{Node: "h1"}); err != nil || next == p {
		t.Errorf("when it is full: %s, %v", next, err)
	}
	f.clean()
	f.put("ippools/p", `"cidr":"10.0.0.0/30","blockSize":30,"disabled":true`)
	if _, err := f.EnsureBlock(t.Context(), BlockArgs{Node: "h2"}); !errors.Is(err, ErrNoAddress) || !strings.Contains(err.Error(), "is disabled") {
		t.Errorf("no pool: %v", err)
	}
}

func TestWhatIsKnownOfAnAddress(t *testing.T) {
	f := newFixture(t)
	f.put("ipreservations/r", `"reservedCIDRs":["10.0.0.2"]`)
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: addr("10.0.0.1"), Node: "h1", Handle: "a", Attributes: map[string]string{"pod": "web"}}); err != nil {
		t.Fatal(err)
	}
	f.raw(api.BlockKey(netip.MustParsePrefix("10.0.0.12/30")), `{"cidr":"10.0.0.12/30","affinity":"host:h1","allocations":[0,null,null,null],"unallocated":[1,2,3],
		"attributes":[{"handle_id":"m","secondary":{"node":"h1"},"alternate":{"node":"h2"}}],"sequenceNumber":1,"sequenceNumberForAllocation":{"0":7},"deleted":false}`)
	for a, want := range map[string]string{
		"10.0.0.12": `{"address":"10.0.0.12","pool":"p","block":"10.0.0.12/30","affinity":"host:h1","assigned":true,"handle":"m","sequence":7,"owner":{"node":"h1"},"alternate":{"node":"h2"}}`,
		"10.0.0.1":  `{"address":"10.0.0.1","pool":"p","block":"10.0.0.0/30","affinity":"host:h1","assigned":true,"handle":"a","sequence":1795248000000000000,"owner":{"pod":"web"}}`,
		"10.0.0.2":  `{"address":"10.0.0.2","pool":"p","reserved":true,"block":"10.0.0.0/30","affinity":"host:h1","assigned":false}`,
		"10.0.0.9":  `{"address":"10.0.0.9","pool":"p","assigned":false}`,
		"192.0.2.1": `{"address":"192.0.2.1","assigned":false}`,
	} {
		got, err := f.QueryIP(t.Context(), addr(a))
		text, _ := json.Marshal(got)
		if err != nil || string(text) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
	}
}

func TestPartOfAHandleIsReleased(t *testing.T) {
	f := newFixture(t)
	for _, who := range []string{"one", "two", "one"} {
		if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num4: 5, Attributes: map[string]string{"interface": who}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "a", Num6: 1, Attributes: map[string]string{"interface": "one"}}); err != nil {
		t.Fatal(err)
	}
	of := func(who string) func(netip.Addr, map[string]string) bool {
		return func(_ netip.Addr, a map[string]string) bool { return a["interface"] == who }
	}
	for _, step := range []struct {
		who         string
		freed, left int
	}{{"nobody", 0, 16}, {"one", 11, 5}, {"one", 0, 5}, {"two", 5, 0}} {
		freed, err := f.ReleaseWhere(t.Context(), "a", of(step.who))
		if err != nil || len(freed) != step.freed {
			t.Errorf("%s: freed %v, %v; want %d", step.who, freed, err, step.freed)
		}
		left, err := f.Leases(t.Context(), "a")
		if err != nil || len(left) != step.left {
			t.Errorf("%s: %d are left, %v; want %d", step.who, len(left), err, step.left)
		}
		f.clean() // the handle counts what blocks have
	}
}
