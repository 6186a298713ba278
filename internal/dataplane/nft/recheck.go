package nft

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

const setRecheck = kernel.SetRecheck // of interfaces whose established flows are decided about again

// Standing and Judged are those of desired.State, for [dataplane.Rechecking].
func (d *Driver) Standing() (upTo uint64) { return d.state.Standing() }

// Judged says that what the changes up to a number deny is marked. What is no longer needed goes with the next Apply.
func (d *Driver) Judged(upTo uint64) { d.state.Judged(upTo) }

// rechecked matches what the first packet of a flow would be now. Of an announced flow the first packet was no matter of policy, and a
// reply never is.
func rechecked(side rules.Side) exprs {
	return slices.Concat(nftables.MatchCTState(nftables.StateEstablished), exprs{
		nftables.CT{Key: nftables.CTDirection},
		nftables.Cmp{Op: nftables.Eq, Data: []byte{nftables.DirOriginal}},
		nftables.CT{Key: nftables.CTStatus},
		nftables.Bitwise{Mask: nftables.U32(nftables.StatusExpected), Xor: nftables.U32(0)},
		nftables.Cmp{Op: nftables.Eq, Data: nftables.U32(0)},
		nftables.Meta{Key: linkKey(side)},
		nftables.Lookup{Set: setRecheck},
	})
}

// resume finds what an earlier agent left to be rechecked, in the first reading of the table.
func (d *Driver) resume(r reading) {
	if d.resumed {
		return
	}
	d.resumed = true
	for i, st := range r.sets {
		if st.Name != setRecheck || st.Key != nftables.TypeIfname || st.Interval {
			continue
		}
		for id := range r.elems[i] {
			if name := strings.TrimRight(id, "\x00"); name != "" {
				d.state.Resume(name)
			}
		}
	}
}
