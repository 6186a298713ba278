// Package dataplane makes the kernel match the intents.
//
// In: [intent.Batch] from calc, and the state of interfaces from ifmon.
// Out: calls to the [Driver]s, each of which owns one part of the kernel, and an [intent.Outcome] for each intent that
// came into force, failed, or waits for something.
//
// The [Loop] alone calls the drivers, one at a time, so that a driver needs no lock.
package dataplane

import (
	"context"
	"time"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// A Driver makes one part of the kernel match what it was told. One goroutine calls it.
//
// Settings come as [intent.HostSettings] in a batch (docs/decisions/001-settings-in-batches.md), so there is no Configure.
type Driver interface {
	// Merge takes note of a change. It works in memory only and never blocks. Merging a batch twice is harmless.
	Merge(intent.Batch)
	// Apply does all that is pending. It is idempotent: what failed stays pending, and is told by its Outcome, or by
	// the error if nothing could be tried or the failure is of no single intent. What failed by its Outcome is tried
	// again after Retry, or when it changes, and not before: else each change of anything would try all that fails.
	// Outcomes are of intents whose fate changed, or that were tried again.
	Apply(context.Context) ([]intent.Outcome, error)
	// Retry gives what failed by its Outcome another chance with the next Apply. When, only the loop decides: a driver has
	// no timer for it, and none of its own reasons to read the kernel is one. It works in memory only.
	Retry()
	// Resync reads the kernel's state back, so that the next Apply undoes what others changed. It comes before the
	// first Apply, before Retry, and now and then. If it fails, Apply may still be called, and
	// goes by what was known before.
	Resync(context.Context) error
}

// Awaiting is an error of a Driver that waits for somebody of whom the kernel tells nobody when he is done: what failed is tried again
// that soon, however often it has failed.
type Awaiting interface {
	error
	// RetryWithin is the longest wait until the next try.
	RetryWithin() time.Duration
}

// LinkAware is a Driver that needs to know the host's interfaces.
type LinkAware interface {
	// Links takes note of interfaces that appeared, changed or went. Like Merge it works in memory only.
	Links([]ifmon.Change)
}

// Gated is a forwarding Driver, whose work lets packets through, so that it waits for policy.
type Gated interface {
	// Gate tells what policy has come into force; ready is true once
	// a complete policy transaction was applied since the start. held says of an interface that the policy of its
	// endpoint is not in force yet, so that nothing may begin to flow through it.
	Gate(ready bool, held func(link string) bool)
}

// Repairing is a Driver that tells what it put right after somebody else changed it.
type Repairing interface {
	// Repairs are those since the last call.
	Repairs() []intent.Repair
}

// Lapsing is a policy Driver that knows when policy may not have been in force for a while, since somebody else touched
// its part of the kernel, even if it was as it should be when it was looked at.
type Lapsing interface {
	// Lapsed reports whether that was so since the last call. It is called after an Apply that succeeded.
	Lapsed() bool
}

// Refreshing is a Driver whose settings say how often it is to be read back.
type Refreshing interface {
	// Refresh is that time, zero for never; ok is false until the settings are known.
	Refresh() (every time.Duration, ok bool)
}

// Withdrawer is a forwarding Driver with something to take away before policy is: the reverse of the order in which
// things are added.
type Withdrawer interface {
	// Withdraw does the pending removals and nothing else. What fails stays pending; Apply tries it again.
	Withdraw(context.Context) []intent.Outcome
}

// Drifting is a Driver that hears at once when somebody else touches its part of the kernel, instead of with the next
// Resync.
type Drifting interface {
	// Drift is a channel of notes. The loop calls each from its own goroutine, so that it may change the driver's
	// state, and then gives the driver a turn.
	Drift() <-chan func()
}

// Background is a Driver that can be read back while it works, so that what is read now and then holds nothing up.
type Background interface {
	// ReadBack begins to read in a goroutine of its own, if none is reading. What it finds comes as a note of
	// [Drifting], which calls done. It returns false if it cannot: then Resync is called.
	ReadBack(ctx context.Context, done func(took time.Duration, err error)) bool
}
