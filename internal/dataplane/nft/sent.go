package nft

import (
	"math/bits"
	"slices"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// priorities is how many the mark has room for: all that the kernel gives names to (TC_PRIO_MAX in linux/pkt_sched.h).
const priorities = 16

func keptAs(priority uint32) uint32 {
	return priority << bits.TrailingZeros32(kernel.MarkKept)
}

// keepPriority puts the priority of a packet that the host sends into the mark. A process chose it, so that nothing else says what it was.
func keepPriority() []nftables.Rule {
	rs := []nftables.Rule{{Exprs: nftables.SetMarkBits(0, kernel.MarkKept)}}
	is := func(p uint32) exprs {
		return exprs{priority(), nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(p)}}
	}
	rs = append(rs, nftables.Rule{Exprs: append(is(0), nftables.Return())})
	for p := uint32(1); p < priorities; p++ {
		rs = append(rs, nftables.Rule{Exprs: slices.Concat(is(p), nftables.SetMarkBits(keptAs(p), 0), exprs{nftables.Return()})})
	}
	return rs
}

// returnPriority gives a packet that passes the priority back that keepPriority put into the mark, and clears that.
func returnPriority() []nftables.Rule {
	rs := []nftables.Rule{
		{Exprs: exprs{nftables.Load{Data: nftables.U32(0)}, setPriority}},
		{Exprs: append(nftables.MatchMark(0, kernel.MarkKept), nftables.Accept())},
	}
	for p := uint32(1); p < priorities; p++ {
		rs = append(rs, nftables.Rule{Exprs: slices.Concat(nftables.MatchMark(keptAs(p), kernel.MarkKept), exprs{nftables.Load{Data: nftables.U32(p)}, setPriority})})
	}
	rs = append(rs, nftables.Rule{Exprs: nftables.SetMarkBits(0, kernel.MarkKept)})
	return append(rs, nftables.Rule{Exprs: exprs{nftables.Accept()}})
}
