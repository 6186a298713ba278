package nft

import (
	"math/bits"
	"slices"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// priorities is how many the mark has room for: all that the kernel gives names to (TC_PRIO_MAX in linux/pkt_sched.h).
const priorities = 16

func (d *Driver) keptAs(priority uint32) uint32 {
	return d.marks().Of(priority << bits.TrailingZeros32(kernel.MarkKept))
}

// keepPriority puts the priority of a packet that the host sends into the mark. A process chose it, so that nothing else says what it was.
func (d *Driver) keepPriority() []nftables.Rule {
	kept := d.marks().Of(kernel.MarkKept)
	rs := []nftables.Rule{{Exprs: nftables.SetMarkBits(0, kept)}}
	is := func(p uint32) exprs {
		return exprs{priority(), nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(p)}}
	}
	rs = append(rs, nftables.Rule{Exprs: append(is(0), nftables.Return())})
	for p := uint32(1); p < priorities; p++ {
		rs = append(rs, nftables.Rule{Exprs: slices.Concat(is(p), nftables.SetMarkBits(d.keptAs(p), 0), exprs{nftables.Return()})})
	}
	return rs
}

// returnPriority gives a packet that passes the priority back that keepPriority put into the mark, and clears that.
func (d *Driver) returnPriority() []nftables.Rule {
	kept := d.marks().Of(kernel.MarkKept)
	rs := []nftables.Rule{
		{Exprs: exprs{nftables.Load{Data: nftables.U32(0)}, setPriority}},
		{Exprs: append(nftables.MatchMark(0, kept), nftables.Accept())},
	}
	for p := uint32(1); p < priorities; p++ {
		rs = append(rs, nftables.Rule{Exprs: slices.Concat(nftables.MatchMark(d.keptAs(p), kept), exprs{nftables.Load{Data: nftables.U32(p)}, setPriority})})
	}
	rs = append(rs, nftables.Rule{Exprs: nftables.SetMarkBits(0, kept)})
	return append(rs, nftables.Rule{Exprs: exprs{nftables.Accept()}})
}
