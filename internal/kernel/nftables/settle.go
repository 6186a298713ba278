package nftables

import "golang.org/x/sys/unix"

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h.
const membarrierGlobal = 1

// Settle returns when each packet that was in a chain when it was called has left it, on all processors: some 15 ms. For the kernel the whole
// way of a packet through its hooks is one read section of RCU (nf_hook in linux/netfilter.h), and membarrier waits until those
// that there are have ended (synchronize_rcu in kernel/sched/membarrier.c). A kernel that runs without ticks on some processors
// refuses that (EINVAL): then it returns at once, and the time between two transactions must do, which is longer than a packet's way.
func Settle() {
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
}

// Settle is [Settle].
func (c *Conn) Settle() { Settle() }
