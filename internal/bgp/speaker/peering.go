package speaker

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// loopback is the interface that has the addresses for workloads: each calls them over whichever interface is its own.
const loopback = "lo"

// peering gives this host the addresses of the plan for workloads that are its peers, and takes away those of the plan before. A speaker
// that starts has at first the plan of the one that ended, so that none stays behind.
func (s *Speaker) peering() {
	if len(s.plan.Peering)+len(s.peered) == 0 {
		return
	}
	lo, err := s.cfg.Rtnl.Link(loopback)
	for _, a := range s.peered {
		if err == nil && !slices.Contains(s.plan.Peering, a) {
			err = s.cfg.Rtnl.DeleteAddr(onLoopback(lo, a))
		}
		if errors.Is(err, rtnl.ErrNotFound) {
			err = nil
		}
	}
	for _, a := range s.plan.Peering {
		if err == nil {
			err = s.cfg.Rtnl.AddAddr(onLoopback(lo, a))
		}
		if errors.Is(err, rtnl.ErrExists) {
			err = nil
		}
	}
	if err != nil {
		s.setProblem("addresses for workloads", err)
		return
	}
	s.peered = s.plan.Peering
	s.clearProblem("addresses for workloads")
}

func onLoopback(lo rtnl.Link, a netip.Addr) rtnl.Addr {
	return rtnl.Addr{Link: lo.Index, Prefix: netip.PrefixFrom(a, a.BitLen()), LinkScope: true}
}
