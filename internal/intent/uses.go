package intent

// Use is what a change of a set's members can do to the packets that a policy sees.
type Use struct {
	MoreDenies bool // more members may deny what was allowed
	FewerDeny  bool // fewer members may
}

// Denies reports whether a change may deny something, if it adds members or takes some out.
func (u Use) Denies(change Use) bool {
	return u.MoreDenies && change.MoreDenies || u.FewerDeny && change.FewerDeny
}

// Uses returns how a policy uses each of its sets. More members of what is allowed deny nothing, nor do fewer of what is
// denied; what is passed on may go either way.
func Uses(p Policy) map[SetID]Use {
	out := map[SetID]Use{}
	note := func(ids []SetID, more, fewer bool) {
		for _, id := range ids {
			u := out[id]
			out[id] = Use{u.MoreDenies || more, u.FewerDeny || fewer}
		}
	}
	for _, list := range [][]Rule{p.Ingress, p.Egress} {
		for _, r := range list {
			allows, denies := r.Action == Allow || r.Action == Pass, r.Action == Deny || r.Action == Pass
			for _, peer := range []Peer{r.Src, r.Dst} {
				note(peer.Sets, denies, allows)
				note(peer.PortSets, denies, allows)
				note(peer.NotSets, allows, denies)
				note(peer.NotPortSets, allows, denies)
			}
		}
	}
	return out
}

// SetChanges are the sets whose members a batch changes: whether it adds any, and takes any out.
func (b Batch) SetChanges() map[SetID]Use {
	sets := map[SetID]Use{}
	for _, s := range b.IPSets {
		sets[s.ID] = Use{true, true}
	}
	for _, m := range b.Members {
		u := sets[m.Set]
		sets[m.Set] = Use{u.MoreDenies || len(m.Added) > 0, u.FewerDeny || len(m.Removed) > 0}
	}
	return sets
}
