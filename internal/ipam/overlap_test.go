package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/seedtest"
)

// storedPool is a pool as a test stores it, with blocks of four.
type storedPool struct {
	name, cidr string
	day        int    // on which it was made
	allocates  string // the status of its condition Allocatable; empty: no controller has judged it
	more       string // of its spec
	deleted    bool
}

func (f *fixture) putPool(p storedPool) {
	f.Helper()
	meta, status := fmt.Sprintf(`"name":%q,"creationTimestamp":"2026-01-%02dT00:00:00Z"`, p.name, p.day), ""
	if p.deleted {
		meta += `,"deletionTimestamp":"2026-02-01T00:00:00Z","finalizers":["` + api.FinalizerIPPool + `"]`
	}
	if p.allocates != "" {
		status = fmt.Sprintf(`,"status":{"conditions":[{"type":"Allocatable","status":%q,"reason":"CIDROverlap","message":"m"}]}`, p.allocates)
	}
	f.raw(api.ResourcesPrefix+"ippools/"+p.name, fmt.Sprintf(`{"metadata":{%s},"spec":{"cidr":%q,"blockSize":30%s}%s}`, meta, p.cidr, p.more, status))
}

// TestOfPoolsThatOverlapOneGivesAddresses, whether or not a controller has judged them: with etcd as the datastore none does.
func TestOfPoolsThatOverlapOneGivesAddresses(t *testing.T) {
	const outer, inner = "10.1.0.0/24", "10.1.0.0/28"
	for _, tt := range []struct {
		name  string
		pools []storedPool
		want  string // the pools that give addresses
	}{
		{"of two that nobody judged the older", []storedPool{{name: "a", cidr: outer, day: 2}, {name: "b", cidr: inner, day: 1}}, "b"},
		{"of two of one age the first by name", []storedPool{{name: "b", cidr: outer, day: 1}, {name: "a", cidr: inner, day: 1}}, "a"},
		{"one in use before one that nobody judged", []storedPool{{name: "a", cidr: outer, day: 1}, {name: "b", cidr: inner, day: 2, allocates: "True"}}, "b"},
		{"none while one is being deleted", []storedPool{{name: "a", cidr: outer, day: 1}, {name: "b", cidr: inner, day: 2, deleted: true, allocates: "True"}}, ""},
		{"one that overlaps a disabled one", []storedPool{{name: "a", cidr: outer, day: 1, more: `,"disabled":true`}, {name: "b", cidr: inner, day: 2}}, "b"},
		{"one that overlaps one that a controller refused", []storedPool{{name: "a", cidr: outer, day: 1, allocates: "False"}, {name: "b", cidr: inner, day: 2}}, "b"},
		{"both that overlap none that gives any", []storedPool{{name: "a", cidr: outer, day: 2}, {name: "b", cidr: "10.1.0.0/29", day: 3}, {name: "c", cidr: "10.0.0.0/8", day: 1, more: `,"disabled":true`}, {name: "d", cidr: "10.2.0.0/28", day: 4}}, "a d"},
		{"of three in a row the outer two", []storedPool{{name: "a", cidr: "10.1.0.0/28", day: 1}, {name: "b", cidr: outer, day: 2}, {name: "c", cidr: "10.1.0.16/28", day: 3}}, "a c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			if err := f.store.Delete(t.Context(), api.ResourcesPrefix+"ippools/p", api.Revision{}); err != nil {
				t.Fatal(err)
			}
			for _, p := range tt.pools {
				f.putPool(p)
			}
			var gives []string
			for _, p := range tt.pools {
				got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: p.name, Num4: 1, Pools4: []string{p.name}})
				if err == nil && got[0].Pool == p.name {
					gives = append(gives, p.name)
				}
			}
			f.equal("pools that give addresses", strings.Join(gives, " "), tt.want)
			for _, p := range tt.pools { // the last address of each, asked for by itself
				addr := lastOf(netip.MustParsePrefix(p.cidr))
				got, err := f.AssignIP(t.Context(), IPArgs{Addr: addr, Node: "h1", Handle: "this"})
				if err == nil && !strings.Contains(tt.want, got.Pool) {
					t.Errorf("%s is of pool %s, want one of %q", addr, got.Pool, tt.want)
				}
			}
		})
	}
}

// TestAPoolThatNobodyJudgedKeepsItsRangeFromThoseThatGiveTheSameAlone: where no controller says which is in use, an older one that gives nothing without being
// asked by name, or nothing to workloads, would else end what a newer one gives; and that would end what it gives.
func TestAPoolThatNobodyJudgedKeepsItsRangeFromThoseThatGiveTheSameAlone(t *testing.T) {
	byName, tunnel, services := AutoArgs{Num4: 1, Pools4: []string{"a"}}, AutoArgs{Num4: 1, Use: UseTunnel}, AutoArgs{Num4: 1, Use: UseLoadBalancer}
	for _, tt := range []struct {
		name, older string    // of its spec
		gives       *AutoArgs // to whom it gives addresses; nil: to nobody
	}{
		{"for no node", `,"nodeSelector":"!all()"`, &byName},
		{"for no node, in other words", `,"nodeSelector":"! ( all() )"`, &byName},
		{"by name", `,"assignmentMode":"Manual"`, &byName},
		{"of tunnels", `,"allowedUses":["Tunnel"]`, &tunnel},
		{"of services", `,"allowedUses":["LoadBalancer"]`, &services},
		{"smaller than a block", `,"blockSize":20`, nil},
	} {
		for _, judged := range []bool{false, true} {
			f := newFixture(t)
			if err := f.store.Delete(t.Context(), api.ResourcesPrefix+"ippools/p", api.Revision{}); err != nil {
				t.Fatal(err)
			}
			older := storedPool{name: "a", cidr: "10.1.0.0/24", day: 1, more: tt.older}
			if judged {
				older.allocates = "True"
			}
			f.putPool(older)
			f.putPool(storedPool{name: "b", cidr: "10.1.0.0/24", day: 2, more: `,"allowedUses":["Workload"]`})
			got, err := f.Assign(t.Context(), AutoArgs{Node: "h1", Handle: "w", Num4: 1})
			if err == nil {
				l, _ := f.QueryIP(t.Context(), got[0].Addr)
				v, _ := f.ReadSurvey(t.Context())
				p, _ := v.PoolOf(got[0].Block)
				f.equal("an older pool "+tt.name+": what a workload has is of", l.Pool+" "+p.Name, "b b")
			}
			if want := !judged || tt.gives == nil; (err == nil) != want || want && got[0].Pool != "b" {
				t.Errorf("an older pool %s, judged %v: a workload gets %v, %v", tt.name, judged, got, err)
			}
			if tt.gives == nil {
				continue
			}
			args := *tt.gives
			args.Node, args.Handle = "h1", "of-a"
			if got, err = f.Assign(t.Context(), args); err != nil || got[0].Pool != "a" {
				t.Errorf("an older pool %s, judged %v: it gives %v, %v", tt.name, judged, got, err)
				continue
			}
			if why, err := f.Misfit(t.Context(), args, got[0].Addr); why != "" || err != nil {
				t.Errorf("an older pool %s, judged %v: what it gave does not fit: %s, %v", tt.name, judged, why, err)
			}
			f.clean()
		}
	}
}

func TestAPoolThatGivesNoneSaysWhichOneDoes(t *testing.T) {
	f := newFixture(t)
	f.putPool(storedPool{name: "q", cidr: "10.0.0.0/24", day: 1})
	f.refused(AutoArgs{Node: "h1", Handle: "a", Num4: 1, Pools4: []string{"q"}}, "pool q 10.0.0.0/24 gives none: it has addresses in common with pool p")
	if _, err := f.AssignIP(t.Context(), IPArgs{Addr: netip.MustParseAddr("10.0.0.77"), Node: "h1", Handle: "a"}); err == nil || !strings.Contains(err.Error(), "in common with pool p") {
		t.Errorf("got %v", err)
	}
	if got, err := f.AssignIP(t.Context(), IPArgs{Addr: netip.MustParseAddr("10.0.0.7"), Node: "h1", Handle: "a"}); err != nil || got.Pool != "p" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestWhatAPoolsAddressIsJudgedByIsThePoolThatGivesIt, and not another that has it, too.
func TestWhatAPoolsAddressIsJudgedByIsThePoolThatGivesIt(t *testing.T) {
	f := newFixture(t)
	f.putPool(storedPool{name: "a", cidr: "10.0.0.0/24", day: 1, more: `,"allowedUses":["Tunnel"]`})
	args, addr := AutoArgs{Node: "h1", Handle: "h"}, netip.MustParseAddr("10.0.0.1")
	if why, err := f.Misfit(t.Context(), args, addr); why != "" || err != nil {
		t.Errorf("%s does not fit: %q, %v", addr, why, err)
	}
	if got, err := f.QueryIP(t.Context(), addr); got.Pool != "p" || err != nil {
		t.Errorf("%s is of pool %q, want p: %v", addr, got.Pool, err)
	}
	f.putPool(storedPool{name: "q", cidr: "10.0.0.0/25", day: 2})
	if got, err := f.QueryIP(t.Context(), addr); got.Pool != "p" || err != nil {
		t.Errorf("%s is of pool %q, want p: %v", addr, got.Pool, err)
	}
	f.putPool(storedPool{name: "p", cidr: "10.0.0.0/23", day: 3, allocates: "True"}) // larger than the others
	v, err := f.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := v.PoolOf(netip.MustParsePrefix("10.0.0.0/30")); p.Name != "p" {
		t.Errorf("the block is of pool %q, want p", p.Name)
	}
}

// TestPoolsThatGiveAddressesHaveNoneInCommon: and each that gives none could not, and whatever order they are listed in.
func TestPoolsThatGiveAddressesHaveNoneInCommon(t *testing.T) {
	r := seedtest.Rand(t)
	for range 300 {
		var pools []*api.IPPool
		sizes := [][]int{{26}, {26, 28}}[r.IntN(2)]
		for i := range 1 + r.IntN(8) {
			p := api.New(api.KindIPPool).(*api.IPPool)
			p.Metadata.Name = fmt.Sprint("p", i)
			p.Metadata.CreationTimestamp = fmt.Sprintf("2026-01-0%dT00:00:00Z", 1+r.IntN(3))
			p.Spec.CIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(4)), 0}), 8+r.IntN(17)).Masked().String()
			p.Spec.Disabled = r.IntN(5) == 0
			if r.IntN(2) == 0 {
				p.Status = &api.IPPoolStatus{Conditions: []api.Condition{{Type: api.ConditionAllocatable, Status: []string{"True", "False"}[r.IntN(2)], Reason: api.ReasonCIDROverlap}}}
			}
			if r.IntN(5) == 0 {
				p.Metadata.DeletionTimestamp = "2026-02-01T00:00:00Z"
			}
			p.Spec.AllowedUses = [][]string{nil, {UseTunnel}}[r.IntN(2)]
			p.Spec.NodeSelector = []string{"", "!all()"}[r.IntN(2)]
			p.Spec.BlockSize = sizes[r.IntN(len(sizes))]
			pools = append(pools, p)
		}
		over := Overlaps(pools)
		cidr := func(p *api.IPPool) netip.Prefix { return netip.MustParsePrefix(p.Spec.CIDR) }
		byName := map[string]*api.IPPool{}
		for _, p := range pools {
			byName[p.Metadata.Name] = p
		}
		for _, p := range pools {
			if by := byName[over[p.Metadata.Name]]; by != nil && (over[by.Metadata.Name] != "" || !cidr(by).Overlaps(cidr(p))) {
				t.Errorf("%s gives way to %s, which gives none: %v", p.Metadata.Name, by.Metadata.Name, over)
			}
			for _, q := range pools {
				if p != q && over[p.Metadata.Name]+over[q.Metadata.Name] == "" && !p.Spec.Disabled && !q.Spec.Disabled && cidr(p).Overlaps(cidr(q)) {
					t.Errorf("%s and %s both give addresses: %v", p.Metadata.Name, q.Metadata.Name, over)
				}
			}
		}
		give := giving(pools)
		for _, p := range pools {
			if by := byName[give[p.Metadata.Name]]; by != nil && (give[by.Metadata.Name] != "" || refused(by) != nil || !cidr(by).Overlaps(cidr(p))) {
				t.Errorf("%s gives way to %s, which gives none: %v", p.Metadata.Name, by.Metadata.Name, give)
			}
			for _, q := range pools {
				one := p != q && refused(p) == nil && refused(q) == nil && !p.Spec.Disabled && !q.Spec.Disabled && cidr(p).Overlaps(cidr(q))
				if both := give[p.Metadata.Name]+give[q.Metadata.Name] == ""; one && both && (rank(p) != unjudged || rank(q) != unjudged || receivers(p) == receivers(q) || p.Spec.BlockSize != q.Spec.BlockSize) {
					t.Errorf("%s and %s both give addresses to %s and %s: %v", p.Metadata.Name, q.Metadata.Name, receivers(p), receivers(q), give)
				}
			}
		}
		r.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
		if again := Overlaps(pools); fmt.Sprint(again) != fmt.Sprint(over) {
			t.Errorf("in another order %v, was %v", again, over)
		}
		if again := giving(pools); fmt.Sprint(again) != fmt.Sprint(give) {
			t.Errorf("in another order assignments go by %v, and went by %v", again, give)
		}
	}
}
