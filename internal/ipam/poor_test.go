package ipam

import (
	"testing"

	"github.com/twillnet/twill/internal/datastore/storetest"
)

// TestOnAStoreThatHasOnlyWhatKubernetesOffers runs what is above again without transactions, an order and sorted lists. Left out is
// what a transaction alone can do (writing it all in one change, splitting a pool), and what copies a memstore.
func TestOnAStoreThatHasOnlyWhatKubernetesOffers(t *testing.T) {
	storetest.OnPoor(t,
		TestWhatWasReadIsGoodForAWhile, TestWhatGrowsOldIsReadAnewByTheWay,
		TestAnAddressIsABlockAHandleAndAnAffinityInOneChange,
		TestANodeUsesItsOwnBlocksThenNewOnesThenOthers, TestBothFamiliesOrNone, TestStrictAffinityForbidsBorrowing, TestHowManyBlocksANodeMayHave,
		TestOfTwentyBlocksAtMost, TestReservedAddressesAreNotGivenOutUnasked, TestAReservationOfMostOfALargePoolIsStrodeOver,
		TestPoolsAreChosenByWhoAsks, TestAnEmptyBlockIsTakenFromItsOwnerWhenItIsOld, TestBlocksOfAFormerPoolAreNotOverlapped,
		TestAnAddressByName, TestNamesThatKeysCannotHaveAreRefused, TestAnEndedContextEndsAnAssignment, TestABlockThatCannotBeReadIsLeftAlone,
		TestAFreeListThatLiesGivesNothingAwayTwice, TestBlocksForWindowsKeepFourAddresses, TestPlantedLeaksAreFoundExplainedAndRepaired,
		TestWhatIsOnlyUnderWayIsNotRepaired, TestAnOrphanGoesBeforeItsAddress, TestABlockIsEmptyWhenItsAddressesHaveRested,
		TestANobodysBlockGoesWithItsLastAddressThatRests, TestARepairLeavesWhatCoolsDown, TestWhatHasRestedIsFreeWhereverItIsCounted,
		TestNobodyLosesAnAddressToAnother,
		TestAnyOperationWithinAnyOther, TestACrashAtAnyCall, TestFiftyHostsRaceForAddresses,
		TestALateReleaseDoesNotHitTheNextOwner, TestABlockThatIsMadeAgainCountsOn, TestSeveralAreReleasedByBlock,
		TestTheAddressThatWasFreeLongestComesNext, TestReleasedAddressesCoolDown, TestABlockThatOnlyCoolsDownAndIsNobodysIsFound,
		TestANodeGivesItsBlocksUp, TestABlockIsThereBeforeItIsNeeded, TestWhatIsKnownOfAnAddress, TestPartOfAHandleIsReleased,
	)
}
