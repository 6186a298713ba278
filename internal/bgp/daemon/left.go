package daemon

import (
	"slices"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// learnedBy are the routes that one kind of speaker has put into the kernel.
func learnedBy(h *rtnl.Handle, protocol int, metrics ...int) ([]rtnl.Route, error) {
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: protocol})
	return slices.DeleteFunc(routes, func(r rtnl.Route) bool { return r.Table != 0 || !slices.Contains(metrics, r.Metric) }), err
}

// speakers are the routes of `twill bgp`.
func speakers(h *rtnl.Handle) ([]rtnl.Route, error) {
	return learnedBy(h, kernel.RouteProtocolSpeaker, kernel.RouteMetricSpeaker, kernel.RouteMetricSpeakerNext)
}

// Left reports whether the kernel has routes that a BIRD or `twill bgp` learned before.
func Left() (bool, error) {
	h, err := rtnl.Open()
	if err != nil {
		return false, err
	}
	defer h.Close()
	ours, err := speakers(h)
	if err != nil || len(ours) > 0 {
		return err == nil, err
	}
	birds, err := learnedBy(h, kernel.RouteProtocolBIRD, kernel.RouteMetricBIRD)
	return len(birds) > 0, err
}
