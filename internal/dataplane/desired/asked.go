package desired

import (
	"slices"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// Asked are the packets of a hook that policy was asked about: those that match all conditions. One that has passed all stages of the hook is allowed.
type Asked struct {
	If    []Cond
	Stage Chain // that asked a host endpoint; the zero value: a workload was asked
}

// AskedAt returns them for some stages, by the action for what workloads send to their host: without Accept, that is for others to decide. A backend
// cannot tell it by what it marks as passed: a stage passes as well what is not its business.
func AskedAt(at Point, stages []Chain, action intent.ToHost) (out []Asked) {
	workload := func(side rules.Side) { out = append(out, Asked{If: []Cond{{Kind: OfWorkload, Side: side}}}) }
	switch {
	case at == Forward:
		workload(rules.Src)
		workload(rules.Dst)
	case at == Input && action == intent.ToHostAccept:
		workload(rules.Src)
	}
	for _, c := range stages {
		i := slices.IndexFunc(hostStages, func(s hostStage) bool { return s.name == c.Name })
		if i < 0 || c.Hook.At != at {
			continue
		}
		side := sideOf(hostStages[i].dir)
		for _, g := range c.Guards {
			if g.Do != Goto {
				continue
			}
			conds := slices.Clone(g.If)
			if len(conds) == 0 { // the host endpoint of all interfaces
				conds = []Cond{{Kind: OnLink, Side: side, Link: "lo", Not: true}, {Kind: OfWorkload, Side: side, Not: true}}
			}
			if at == Postrouting { // what is forwarded was not its business
				conds = append(conds, Cond{Kind: Forwarded, Not: true})
			}
			out = append(out, Asked{conds, c})
		}
	}
	return out
}
