package daemon

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// routesOf returns the routes of a protocol that a speaker of ours has installed.
func routesOf(h *rtnl.Handle, protocol int) ([]rtnl.Route, error) {
	routes, err := h.Routes(rtnl.RouteFilter{Protocol: protocol})
	return slices.DeleteFunc(routes, func(r rtnl.Route) bool {
		bird := r.Protocol == kernel.RouteProtocolBIRD && r.Metric == kernel.RouteMetricBIRD
		return r.Table != 0 || !bird && !kernel.SpeakerRoute(r.Protocol, r.Metric)
	}), err
}

// speakerRoutes returns the routes of `twill bgp`.
func speakerRoutes(h *rtnl.Handle) ([]rtnl.Route, error) {
	normal, err := routesOf(h, kernel.RouteProtocolSpeaker)
	if err != nil {
		return nil, err
	}
	others, err := routesOf(h, kernel.RouteProtocolPriority)
	return append(normal, others...), err
}

// formerRoutes are what another left that spoke BGP here before: `twill bgp`, or a BIRD that was no dedicated reflector.
func formerRoutes(h *rtnl.Handle, reflector bool) ([]rtnl.Route, error) {
	ours, err := speakerRoutes(h)
	if err != nil || !reflector {
		return ours, err
	}
	birds, err := routesOf(h, kernel.RouteProtocolBIRD)
	return append(ours, birds...), err
}

// goes returns those of the routes of before that BIRD does not install itself: a dedicated reflector's lead to its peers.
func goes(former []rtnl.Route, p plan.Plan) []rtnl.Route {
	ways := plan.PeerRoutes(p.Sessions)
	return slices.DeleteFunc(former, func(r rtnl.Route) bool {
		_, leads := ways[r.Dst]
		return leads && r.Protocol == kernel.RouteProtocolBIRD
	})
}

// HasLearnedRoutes reports whether the kernel has routes that a BIRD or `twill bgp` installed.
func HasLearnedRoutes() (bool, error) {
	h, err := rtnl.Open()
	if err != nil {
		return false, err
	}
	defer h.Close()
	ours, err := speakerRoutes(h)
	if err != nil || len(ours) > 0 {
		return err == nil, err
	}
	birds, err := routesOf(h, kernel.RouteProtocolBIRD)
	return len(birds) > 0, err
}

// HasConfiguration reports whether a file is a configuration of BIRD that `twill confd` wrote.
func HasConfiguration(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.HasPrefix(string(text), birdconf.FirstWords)
}

// steadyTime is how long former routes stay after BIRD's recovery: a reflector that restarts may send End-of-RIB
// before it has sent all.
const steadyTime = 5 * time.Second

// removeFormer removes the routes that another left, once BIRD has taken over.
func (w *confWriter) removeFormer(now time.Time) {
	if len(w.former) == 0 || w.cfg.Bird == "" {
		return
	}
	if bird, err := birdctl.GetStatus(w.cfg.Bird); err != nil || bird.Recovering || w.reloadPending {
		w.steady = time.Time{}
		return
	}
	if w.steady.IsZero() {
		w.steady = now
	}
	if now.Sub(w.steady) < steadyTime {
		return
	}
	w.former = goes(w.former, w.plan)
	for len(w.former) > 0 {
		if err := w.rtnl.DeleteRoute(w.former[0]); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			w.cfg.Log.Error("routes of what spoke BGP here before are still there", "err", err, "routes", len(w.former), "retry_in", retryInterval)
			return
		}
		w.former = w.former[1:]
	}
	w.cfg.Log.Info("BIRD has taken over; routes of what spoke BGP here before are gone")
}
