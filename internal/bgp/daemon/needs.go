package daemon

import (
	"log/slog"
	"strings"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// needs is what a plan depends on in addition to what every plan does.
type needs struct {
	services, workloads bool
}

func (k *planSource) needsOf(r *plan.Resources) needs {
	if k.cfg.Reflector {
		return needs{}
	}
	return needs{services: r.Services(k.cfg.Node), workloads: r.Workloads(k.cfg.Node)}
}

// prefixes are the datastore's keys that are followed. A dedicated reflector has no agent, and may not read its settings.
func (k *planSource) prefixes() []string {
	out := plan.Prefixes()
	if !k.cfg.Reflector {
		out = append(out, plan.AgentPrefixes()...)
	}
	if k.needs.services {
		out = append(out, plan.ServicePrefixes()...)
	}
	if k.needs.workloads {
		out = append(out, plan.WorkloadPrefixes()...)
	}
	return out
}

// resources returns an empty Resources.
func (k *planSource) resources() *plan.Resources {
	r := plan.New()
	r.RouterID, r.Agent, r.Local = k.cfg.RouterID, !k.cfg.Reflector, k.cfg.Local
	switch {
	case k.cfg.Reflector:
		r.NoWorkloads = "a dedicated reflector has no workloads"
	case k.bird:
		r.NoWorkloads = "with BIRD there are no sessions with workloads"
	}
	return r
}

// plan is this host's.
func (k *planSource) plan(r *plan.Resources) plan.Plan {
	p := r.Plan(k.cfg.Node)
	if k.cfg.Reflector {
		p = p.Reflector()
	}
	if k.keys {
		p.Keys = r.Keys(p)
	}
	return p
}

// severities are those of resources, in lower case, as levels of the log.
var severities = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError, "fatal": slog.LevelError + 1,
}

// logAs sets what is logged: as resources say, or else as the flag does.
func (k *planSource) logAs(severity string) {
	if k.cfg.Level == nil {
		return
	}
	level, set := severities[strings.ToLower(severity)]
	if !set {
		level = k.flagged
	}
	k.cfg.Level.Set(level)
}
