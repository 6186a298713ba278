package chaostest_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A processor that did not run a thread for longer than still stood still. A busy one lets all wait some milliseconds.
const (
	still     = 300 * time.Millisecond
	beatEvery = 50 * time.Millisecond
)

// clock measures for how long processors stood still: others use a virtual machine's, and nothing on it can help that.
type clock struct{ lost atomic.Int64 }

// watchClock has a thread on each processor look at the time until the test ends.
func watchClock(t *testing.T) *clock {
	c := &clock{}
	end := make(chan struct{})
	var threads sync.WaitGroup
	for cpu := range runtime.NumCPU() {
		threads.Go(func() {
			runtime.LockOSThread() // for good: a thread that is bound to a processor is nobody else's
			var set unix.CPUSet
			set.Set(cpu)
			if unix.SchedSetaffinity(0, &set) != nil {
				return // not ours to use
			}
			tick := time.NewTicker(beatEvery)
			defer tick.Stop()
			for last := time.Now(); ; {
				select {
				case <-end:
					return
				case <-tick.C:
				}
				if d := time.Since(last) - beatEvery; d > still {
					c.lost.Add(int64(d))
				}
				last = time.Now()
			}
		})
	}
	t.Cleanup(func() {
		close(end)
		threads.Wait()
	})
	return c
}

func (c *clock) reset() { c.lost.Store(0) }

// stood is for how long processors stood still since reset, in sum.
func (c *clock) stood() time.Duration { return time.Duration(c.lost.Load()) }
