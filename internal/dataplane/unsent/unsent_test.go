package unsent

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/sim"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestAnyPaceSameState: however many changes become one message, and wherever streams begin anew, a driver ends with what it would have, had it been
// sent each; and it is never sent what does not fit what it has.
func TestAnyPaceSameState(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedtest.New(t), 0))
	sets := []intent.SetID{"a", "b", "c"}
	for range 300 {
		s, all := New(), sim.New()
		far := sim.New()
		s.Merge(intent.Batch{InSync: true})
		has := map[intent.SetID]map[intent.Member]bool{}
		for range 40 {
			b := randomChange(rng, sets, has)
			s.Merge(b)
			all.Merge(b)
			switch rng.IntN(6) {
			case 0, 1:
				carry(t, s, far)
			case 2:
				s.Begin()
				far = sim.New()
			}
		}
		carry(t, s, far)
		if _, err := all.Apply(context.Background()); err != nil || all.Refused() != nil {
			t.Fatal(err, all.Refused())
		}
		if err := far.Refused(); err != nil || !reflect.DeepEqual(far.Sets, all.Sets) || !reflect.DeepEqual(far.Routes, all.Routes) {
			t.Fatalf("%v\n%+v\n%+v", err, far.State, all.State)
		}
	}
}

// carry is one commit.
func carry(t *testing.T, s *State, far *sim.Node) {
	t.Helper()
	items, _ := s.Take()
	var b intent.Batch
	for _, m := range items {
		switch x := m.(type) {
		case intent.IPSet:
			b.IPSets = append(b.IPSets, x)
		case intent.MemberDelta:
			b.Members = append(b.Members, x)
		case intent.Route:
			b.Routes = append(b.Routes, x)
		case Gone:
			b.Removed = append(b.Removed, x.Key)
		default:
			t.Fatalf("an item of no kind that was merged: %T", x)
		}
	}
	slices.Reverse(b.Removed)
	far.Merge(b)
	if _, err := far.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Take(); len(again) > 0 {
		t.Fatalf("sent twice: %v", again)
	}
}

// randomChange is a change that fits what there is.
func randomChange(rng *rand.Rand, sets []intent.SetID, has map[intent.SetID]map[intent.Member]bool) (b intent.Batch) {
	id := sets[rng.IntN(len(sets))]
	member := func() intent.Member {
		return intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(5))}), 32)}
	}
	switch m := member(); {
	case has[id] == nil:
		has[id] = map[intent.Member]bool{m: true}
		b.IPSets = []intent.IPSet{{ID: id, Members: []intent.Member{m}}}
	case rng.IntN(6) == 0:
		delete(has, id)
		b.Removed = []intent.Key{id}
	case has[id][m]:
		delete(has[id], m)
		b.Members = []intent.MemberDelta{{Set: id, Removed: []intent.Member{m}}}
	default:
		has[id][m] = true
		b.Members = []intent.MemberDelta{{Set: id, Added: []intent.Member{m}}}
	}
	if r := (intent.Route{Dst: member().Prefix, Link: "cali1"}); rng.IntN(2) == 0 {
		b.Routes = []intent.Route{r}
	}
	return b
}

// TestALargeSetComesInPieces: no message is larger than what gRPC takes by default.
func TestALargeSetComesInPieces(t *testing.T) {
	s := New()
	x := intent.IPSet{ID: "large"}
	for i := range 50_000 {
		x.Members = append(x.Members, intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)})
	}
	s.Merge(intent.Batch{IPSets: []intent.IPSet{x}, InSync: true})
	items, keys := s.Take()
	if len(items) != 25 || len(keys) != 1 {
		t.Fatalf("%d messages, %d keys", len(items), len(keys))
	}
	far := sim.New()
	s.Begin()
	carry(t, s, far)
	if len(far.Sets["large"].Members) != len(x.Members) || far.Refused() != nil {
		t.Error(len(far.Sets["large"].Members), far.Refused())
	}
}
