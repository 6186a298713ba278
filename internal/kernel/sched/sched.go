// Package sched sets real-time scheduling for this process, and says how much processor time it used.
//
// In: nothing. Out: all threads of the process are scheduled before those of others, or an error says why not; a duration.
package sched

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tasks are the threads of this process.
const tasks = "/proc/self/task"

// lowest is enough: each real-time thread goes before all that are none.
const lowest = 1

// Realtime schedules this process before all that are not real-time (SCHED_RR), with each thread that it has or will
// have: a thread inherits from the one that made it. The kernel still keeps a part of each second for others
// (kernel.sched_rt_runtime_us).
func Realtime() error {
	for {
		threads, err := os.ReadDir(tasks)
		if err != nil {
			return fmt.Errorf("threads of this process: %w", err)
		}
		changed := false
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("threads of this process: %w", err)
			}
			is, err := unix.SchedGetAttr(id, 0)
			if errors.Is(err, unix.ESRCH) {
				continue // it ended
			}
			if err != nil {
				return os.NewSyscallError("sched_getattr", err)
			}
			if is.Policy == unix.SCHED_RR {
				continue
			}
			want := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: lowest}
			if err := unix.SchedSetAttr(id, want, 0); err != nil && err != unix.ESRCH {
				return os.NewSyscallError("sched_setattr", err)
			}
			changed = true
		}
		if !changed {
			return nil // no thread was made meanwhile by one that was not real-time
		}
	}
}
