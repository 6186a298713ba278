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

// A Driver makes one part of the kernel match the intents that were merged. One goroutine calls it.
//
// Settings come as [intent.HostSettings] in a batch (docs/decisions/001-settings-in-batches.md), so there is no Configure.
type Driver interface {
	// Merge merges a change. It works in memory only and never blocks. Merging a batch twice is harmless.
	Merge(intent.Batch)
	// Apply does all that is pending. It is idempotent: what failed stays pending, and is reported by its Outcome, or by
	// the error if nothing could be tried or the failure belongs to no single intent. What failed by its Outcome is tried
	// again after Retry, or when it changes, and not before: else each change of anything would try everything that fails.
	// Outcomes are of intents whose outcome changed, or that were tried again.
	Apply(context.Context) ([]intent.Outcome, error)
	// Retry has what failed by its Outcome tried again with the next Apply. The loop alone decides when: a driver has
	// no timer for it, and a read-back for reasons of its own does not count as one. It works in memory only.
	Retry()
	// Resync reads the kernel's state back, so that the next Apply undoes what others changed. It comes before the
	// first Apply, before Retry, and periodically. If it fails, Apply may still be called, and
	// uses the actual state that was known before.
	Resync(context.Context) error
}

// Awaiting is an error of a Driver that waits for another process, whose end the kernel announces to nobody: what failed is tried again
// that soon, however often it has failed.
type Awaiting interface {
	error
	// RetryWithin is the longest wait until the next try.
	RetryWithin() time.Duration
}

// LinkAware is a Driver that needs to know the host's interfaces.
type LinkAware interface {
	// Links takes interfaces that appeared, changed or went. Like Merge it works in memory only.
	Links([]ifmon.Change)
}

// Gated is a forwarding Driver: its work lets packets through, so it waits for policy.
type Gated interface {
	// Gate takes which policy has come into force; ready is true once
	// a complete policy transaction was applied since the start. held reports whether the policy of an interface's
	// endpoint is not in force yet, so that no new path through it may be opened.
	Gate(ready bool, held func(link string) bool)
}

// Repairing is a Driver that reports what it repaired after another process changed it.
type Repairing interface {
	// Repairs returns those since the last call.
	Repairs() []intent.Repair
}

// Lapsing is a policy Driver that knows when policy may not have been in force for a while, because another process changed
// its part of the kernel, even if that was as desired when it was read.
type Lapsing interface {
	// Lapsed reports whether that was so since the last call. It is called after an Apply that succeeded.
	Lapsed() bool
}

// Rechecking is a policy Driver that has the kernel decide about established flows again after a change that may deny some of
// them, until somebody has looked at each (docs/decisions/032). For one that does, a follower must be [Judging].
type Rechecking interface {
	// Standing is the number of the last change in force that concerns such flows; zero: no flow is decided about again.
	Standing() (upTo uint64)
	// Judged says that all flows that the changes up to a number concern were looked at. It works in memory only, like Merge.
	Judged(upTo uint64)
}

// Refreshing is a Driver with a setting for how often it is read back.
type Refreshing interface {
	// Refresh is the interval, zero for never; ok is false until the settings are known.
	Refresh() (every time.Duration, ok bool)
}

// Withdrawer is a forwarding Driver with something to delete before policy is: the reverse of the order in which
// things are added.
type Withdrawer interface {
	// Withdraw does the pending deletions and nothing else. What fails stays pending; Apply tries it again.
	Withdraw(context.Context) []intent.Outcome
}

// Drifting is a Driver that is notified at once when another process changes its part of the kernel, instead of finding it with the next
// Resync.
type Drifting interface {
	// Drift is a channel of functions. The loop calls each from its own goroutine, so that it may change the driver's
	// state, and then gives the driver a turn.
	Drift() <-chan func()
}

// Background is a Driver that can be read back while it works, so that periodic reads delay no change.
type Background interface {
	// ReadBack begins to read in a goroutine of its own, if none is reading. The result comes as a function of
	// [Drifting], which calls done. It returns false if it cannot: then Resync is called.
	ReadBack(ctx context.Context, done func(took time.Duration, err error)) bool
}
