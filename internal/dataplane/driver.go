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

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
)

// A Driver makes one part of the kernel match what it was told. One goroutine calls it.
//
// DESIGN.md has a fourth method, Configure, for changes of configuration while running. It comes with live
// configuration; until then a driver takes its configuration when it is made.
type Driver interface {
	// Merge takes note of a change. It works in memory only and never blocks. Merging a batch twice is harmless.
	Merge(intent.Batch)
	// Apply does all that is pending. It is idempotent: what failed stays pending, and is told by its Outcome, or by
	// the error if nothing could be tried or the failure is of no single intent. Outcomes are of intents whose fate
	// changed, or that were tried again.
	Apply(context.Context) ([]intent.Outcome, error)
	// Resync reads the kernel's state back, so that the next Apply undoes what others changed.
	Resync(context.Context) error
}

// LinkAware is a Driver that needs to know the host's interfaces.
type LinkAware interface {
	// Links takes note of interfaces that appeared, changed or went. Like Merge it works in memory only.
	Links([]ifmon.Change)
}

// Gated is a forwarding Driver whose work lets packets through, so that it waits for policy.
type Gated interface {
	// Secured tells which of the endpoints' policies are in force: it is called before Apply, with ready true once a
	// complete policy transaction has been applied since the start.
	Secured(ready bool)
}
