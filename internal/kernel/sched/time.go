package sched

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessTime is the processor time that this process has used so far, in all its threads: user's and kernel's
// (CLOCK_PROCESS_CPUTIME_ID, clock_gettime(2)). What others do on the machine is not in it.
func ProcessTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // every kernel has this clock
	return time.Duration(t.Nano())
}
