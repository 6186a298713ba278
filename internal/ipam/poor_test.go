package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// TestASurveyIsOfOneMomentWhereListsAreNot: others assign and release between the kinds of a list, and nothing of it looks amiss.
func TestASurveyIsOfOneMomentWhereListsAreNot(t *testing.T) {
	for range 20 { // kinds are listed in any order
		store := storetest.NewPoor(t)
		f := &fixture{T: t, store: store, now: start}
		f.Allocator = f.allocator(store, Config{})
		f.put("ippools/p", `"cidr":"10.0.0.0/28","blockSize":30`)
		f.put("nodes/n1", ``)
		args := func(handle string) AutoArgs {
			return AutoArgs{Node: "n1", Handle: handle, Num4: 1, Attributes: map[string]string{"node": "n1"}}
		}
		if _, err := f.Assign(t.Context(), args("was")); err != nil {
			t.Fatal(err)
		}
		acts, other := 0, f.allocator(store, Config{})
		store.Between = func() {
			if acts++; acts > 2 {
				return
			}
			between := store.Between
			store.Between = nil // its own lists are not disturbed
			defer func() { store.Between = between }()
			if _, err := other.Assign(t.Context(), args(fmt.Sprint("new", acts))); err != nil {
				t.Error(err)
			}
			if _, err := other.ReleaseByHandle(t.Context(), "was"); err != nil && acts == 1 {
				t.Error(err)
			}
		}
		v, err := f.ReadSurvey(t.Context())
		if err != nil || acts == 0 {
			t.Fatalf("%d acts, %v", acts, err)
		}
		for _, found := range v.Check(CheckOptions{Now: f.now}) {
			if found.Kind == FoundHandle || found.Kind == FoundClaim {
				t.Errorf("%s %s: %s (%s)", found.Kind, found.Handle, found.Problem, found.Proof)
			}
		}
	}
}

// TestOnAStoreThatHasOnlyWhatKubernetesOffers runs what is above again without transactions, an order and sorted lists. Left out is
// what a transaction alone can do (writing it all in one change, splitting a pool), and what copies a memstore.
func TestOnAStoreThatHasOnlyWhatKubernetesOffers(t *testing.T) {
	storetest.OnPoor(t,
		TestWhatWasReadIsGoodForAWhile, TestAStaleCacheIsReadAgain,
		TestAnAddressIsABlockAHandleAndAnAffinityInOneChange,
		TestANodeUsesItsOwnBlocksThenNewOnesThenOthers, TestBothFamiliesOrNone, TestStrictAffinityForbidsBorrowing, TestHowManyBlocksANodeMayHave,
		TestOfTwentyBlocksAtMost, TestReservedAddressesAreNotGivenOutUnasked, TestAReservationOfMostOfALargePoolIsStrodeOver,
		TestPoolsAreChosenByWhoAsks, TestPoolsOfOneFamilySayNothingOfTheOther, TestAnEmptyBlockIsTakenFromItsOwnerWhenItIsOld, TestBlocksOfAFormerPoolAreNotOverlapped,
		TestAnAddressByName, TestNamesThatKeysCannotHaveAreRefused, TestAnEndedContextEndsAnAssignment, TestABlockThatCannotBeReadIsLeftAlone,
		TestAFreeListThatLiesGivesNothingAwayTwice, TestBlocksForWindowsKeepFourAddresses, TestPlantedLeaksAreFoundExplainedAndRepaired,
		TestWhatIsOnlyUnderWayIsNotRepaired, TestAnOrphanGoesBeforeItsAddress, TestABlockIsEmptyWhenItsAddressesHaveRested,
		TestANobodysBlockGoesWithItsLastAddressThatRests, TestARepairLeavesWhatCoolsDown, TestWhatHasRestedIsFreeWhereverItIsCounted,
		TestNobodyLosesAnAddressToAnother,
		TestAnyOperationWithinAnyOther, TestACrashAtAnyCall, TestFiftyHostsRaceForAddresses,
		TestALateReleaseDoesNotHitTheNextOwner, TestABlockThatIsMadeAgainCountsOn, TestSeveralAreReleasedByBlock,
		TestTheAddressThatWasFreeLongestComesNext, TestReleasedAddressesCoolDown, TestABlockThatOnlyCoolsDownAndIsNobodysIsFound,
		TestANodeGivesItsBlocksUp, TestANodeGivesUpBlocksWithinAPrefix, TestABlockOfRestedAddressesIsThereBeforeItIsNeeded, TestABlockIsThereBeforeItIsNeeded, TestWhatIsKnownOfAnAddress, TestPartOfAHandleIsReleased,
	)
}

// TestWhoWasNotFirstTakesItsClaimBack: another node creates the block between a node's claim to it and its own attempt.
func TestWhoWasNotFirstTakesItsClaimBack(t *testing.T) {
	f := newFixture(t)
	var lost netip.Prefix
	a := f.through(func(verb, key string) fault {
		p, ok := api.ParseBlockKey(key)
		if verb != "create" || !ok || lost.IsValid() {
			return works
		}
		lost = p
		if _, err := f.AssignIP(t.Context(), IPArgs{Addr: p.Addr(), Node: "n2", Handle: "first"}); err != nil {
			t.Error(err)
		}
		return works // it is there already
	}, true, func() error { return nil })
	got, err := a.Assign(t.Context(), AutoArgs{Node: "n1", Handle: "second", Num4: 1})
	if err != nil || len(got) != 1 || lost.Contains(got[0].Addr) {
		t.Fatalf("%v, error %v; %s was another's", got, err, lost)
	}
	if left := f.get(api.AffinityKey(api.Owner{Type: api.OwnerHost, Name: "n1"}, lost)); !strings.Contains(left, "not found") {
		t.Errorf("the claim to %s is left: %s", lost, left)
	}
	v, err := f.ReadSurvey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range v.Check(CheckOptions{Now: f.now}) {
		if found.Kind == FoundClaim {
			t.Errorf("%s %s: %s (%s)", found.Kind, found.Block, found.Problem, found.Proof)
		}
	}
}

// TestWhileABlockComesAndGoesItsClaimSaysSo: without transactions a claim is pending until its block is the node's, and pendingDeletion until it is
// no more. Upstream's allocators confirm, or take up, what another process of the node left in such a state.
func TestWhileABlockComesAndGoesItsClaimSaysSo(t *testing.T) {
	f := newFixture(t)
	n1 := api.Owner{Type: api.OwnerHost, Name: "n1"}
	var says []string
	a := f.through(func(verb, key string) fault {
		if p, ok := api.ParseBlockKey(key); ok && verb != "get" {
			says = append(says, verb+" "+f.get(api.AffinityKey(n1, p)))
		}
		return works
	}, true, func() error { return nil })
	steps := []struct {
		name string
		do   func() error
		says string // each write to a block, and the claim at that time
	}{
		{"it is claimed", func() error {
			_, err := a.Assign(t.Context(), AutoArgs{Node: "n1", Handle: "h", Num4: 1})
			return err
		}, `create {"state":"pending","deleted":false}`},
		{"another address of it", func() error {
			_, err := a.Assign(t.Context(), AutoArgs{Node: "n1", Handle: "i", Num4: 1})
			return err
		}, `update {"state":"confirmed","deleted":false}`},
		{"it is given up, and in use", func() error { return a.ReleaseHostAffinities(t.Context(), "n1", false) }, `update {"state":"pendingDeletion","deleted":false}`},
		{"another is claimed", func() error {
			_, err := a.EnsureBlock(t.Context(), BlockArgs{Node: "n1"})
			return err
		}, `create {"state":"pending","deleted":false}`},
		{"that is given up", func() error { return a.ReleaseHostAffinities(t.Context(), "n1", true) }, `delete {"state":"pendingDeletion","deleted":false}`},
	}
	for _, step := range steps {
		says = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		f.equal(step.name, strings.Join(says, ", "), step.says)
	}
}
