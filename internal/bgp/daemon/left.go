package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/twillnet/twill/internal/bgp/birdctl"
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

// lingers is how long former routes stay after BIRD waits for nobody: a reflector that restarts may say that it has told
// all before it has.
const lingers = 5 * time.Second

// tidy removes what `twill bgp` left here, once BIRD has taken over.
func (w *confWriter) tidy(now time.Time) {
	if len(w.former) == 0 || w.cfg.Bird == "" {
		return
	}
	if bird, err := birdctl.Ask(w.cfg.Bird); err != nil || bird.Recovering || w.untold {
		w.steady = time.Time{}
		return
	}
	if w.steady.IsZero() {
		w.steady = now
	}
	if now.Sub(w.steady) < lingers {
		return
	}
	for len(w.former) > 0 {
		if err := w.rtnl.DeleteRoute(w.former[0]); err != nil && !errors.Is(err, rtnl.ErrNotFound) {
			w.cfg.Log.Error("routes of twill bgp are still there", "err", err, "routes", len(w.former), "retry_in", beat)
			return
		}
		w.former = w.former[1:]
	}
	w.cfg.Log.Info("BIRD has taken over; routes of twill bgp are gone")
}
