package agent

import (
	"fmt"
	"strings"
	"time"
)

// lateAfter is from when on a change that is not in force makes the node not ready.
const lateAfter = 10 * time.Second

// changes knows since when what the datastore asks for is not in force: on its way through calc, to the dataplane, and there.
// It has no clock.
type changes struct {
	calc    time.Time   // when that was heard of which calc is at work on; zero: it is at rest
	sent    []time.Time // when each batch was heard of that the dataplane has not taken over
	merged  []time.Time // of those that it has, and that are not in force
	first   time.Time   // of merged, even if that is no longer there; zero: none
	pending []string    // drivers that have not done what they were asked
}

// unsettled bounds how many batches are timed while nothing comes into force.
const unsettled = 1000

// decide takes note that calc has sent a batch.
func (c *changes) decide(heard time.Time) { c.calc, c.sent = time.Time{}, append(c.sent, heard) }

// merge takes note that the dataplane has taken over the next batch.
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

// round takes note of what drivers have not done, and returns the changes that came into force.
func (c *changes) round(pending []string) (done []time.Time) {
	c.pending = pending
	if len(pending) > 0 {
		return nil
	}
	done = c.merged
	c.merged, c.first = nil, time.Time{}
	return done
}

// oldest is when that was heard of which has not been in force for longest; zero: all is.
func (c *changes) oldest() time.Time {
	switch {
	case !c.first.IsZero():
		return c.first
	case len(c.sent) > 0:
		return c.sent[0]
	}
	return c.calc
}

// arrived: all that calc has sent is in force.
func (c *changes) arrived() bool { return c.first.IsZero() && len(c.sent) == 0 }

// late says what is late; empty: nothing is.
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
	return fmt.Sprintf("a change that was heard of %s ago is not in force: %s", now.Sub(oldest).Round(time.Second), who)
}
