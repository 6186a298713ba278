package agent

import (
	"fmt"
	"strings"
	"time"
)

// lateAfter is the time after which a change that is not in force makes the node not ready.
const lateAfter = 10 * time.Second

// changes tracks changes of the datastore until they are in force: in calc, on the way to the dataplane, and there.
// It has no clock.
type changes struct {
	calc    time.Time   // arrival of the change that calc works on; zero: none
	sent    []time.Time // arrival of each batch that the dataplane has not merged
	merged  []time.Time // of those merged and not in force
	first   time.Time   // the first of merged, even if it was dropped since; zero: none
	pending []string    // drivers with work pending
}

// unsettled bounds the batches that are tracked while nothing comes into force.
const unsettled = 1000

// decide notes that calc has sent a batch.
func (c *changes) decide(arrived time.Time) { c.calc, c.sent = time.Time{}, append(c.sent, arrived) }

// merge notes that the dataplane has merged the next batch.
func (c *changes) merge() {
	if len(c.sent) == 0 {
		return
	}
	if c.first.IsZero() {
		c.first = c.sent[0]
	}
	if c.merged = append(c.merged, c.sent[0]); len(c.merged) > unsettled {
		c.merged = c.merged[1:]
	}
	c.sent = c.sent[1:]
}

// round notes which drivers have work pending, and returns the changes that came into force.
func (c *changes) round(pending []string) (done []time.Time) {
	c.pending = pending
	if len(pending) > 0 {
		return nil
	}
	done = c.merged
	c.merged, c.first = nil, time.Time{}
	return done
}

// oldest returns the arrival of the oldest change that is not in force; zero: all are.
func (c *changes) oldest() time.Time {
	switch {
	case !c.first.IsZero():
		return c.first
	case len(c.sent) > 0:
		return c.sent[0]
	}
	return c.calc
}

// arrived reports whether all batches are in force.
func (c *changes) arrived() bool { return c.first.IsZero() && len(c.sent) == 0 }

// late describes what is late; empty: nothing is.
func (c *changes) late(now time.Time) string {
	oldest := c.oldest()
	if oldest.IsZero() || now.Sub(oldest) < lateAfter {
		return ""
	}
	who := "it is being worked on"
	switch {
	case c.arrived():
		who = "calc is at work on it"
	case len(c.pending) > 0:
		who = "it waits for " + strings.Join(c.pending, ", ")
	}
	return fmt.Sprintf("a change that was received %s ago is not in force: %s", now.Sub(oldest).Round(time.Second), who)
}
