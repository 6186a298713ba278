package daemon

import (
	"context"
	"net/netip"
	"time"

	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// statuses gathers the facts for CalicoNodeStatus resources.
type statuses struct {
	speaker reporter
	rtnl    *rtnl.Handle
}

func (s statuses) facts(version string) func(context.Context, bool) (nodestatus.Facts, error) {
	return func(ctx context.Context, routes bool) (f nodestatus.Facts, err error) {
		f = nodestatus.Facts{Now: time.Now(), Version: version}
		if f.Report, err = s.speaker.Report(ctx); err != nil || !routes {
			return f, err
		}
		f.LinkTo = s.linkTo()
		f.Routes, err = s.speaker.Routes(ctx)
		return f, err
	}
}

// linkTo returns a function that looks each next hop up once.
func (s statuses) linkTo() func(netip.Addr) string {
	names, known := map[int]string{}, map[netip.Addr]string{}
	if links, err := s.rtnl.Links(); err == nil {
		for _, l := range links {
			names[l.Index] = l.Name
		}
	}
	return func(hop netip.Addr) string {
		name, ok := known[hop]
		if !ok {
			if found, err := s.rtnl.Lookup(hop); err == nil {
				name = names[found.Link]
			}
			known[hop] = name
		}
		return name
	}
}
