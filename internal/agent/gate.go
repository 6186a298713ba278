package agent

import (
	"encoding/json"
	"log/slog"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// readable leaves out values that are not JSON at all, so that calc keeps what
// it had for that key, and the kernel with it (SEMANTICS 3).
func readable(us []api.Update, problems *problemLog) []api.Update {
	out := us[:0:0]
	for _, u := range us {
		if u.Value != nil && !json.Valid(u.Value) {
			problems.once(u.Key, "the value is not JSON; what was known of it stays in force")
			continue
		}
		out = append(out, u)
	}
	return out
}

// problemLog tells each problem once, and again when it has changed.
type problemLog struct {
	log  *slog.Logger
	told map[string]string
}

func (p *problemLog) once(key, reason string) {
	if p.told[key] != reason {
		p.told[key] = reason
		p.log.Warn("wrong resource", "key", key, "reason", reason)
	}
}

func (p *problemLog) tell(problems []api.Problem) {
	for _, x := range problems {
		p.once(x.Key+" "+x.Field, x.Reason)
	}
}

// logOutcomes tells what could not be done; that it was done is debug.
func logOutcomes(log *slog.Logger, os []intent.Outcome) {
	for _, o := range os {
		switch {
		case o.Err != nil:
			log.Error("not in force", "intent", o.Key.ID, "err", o.Err)
		case o.Reason != "":
			log.Info("waits", "intent", o.Key.ID, "reason", o.Reason)
		default:
			log.Debug("in force", "intent", o.Key.ID)
		}
	}
}
