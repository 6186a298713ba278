package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// healthTimeouts are upstream's overrides: in text, part=duration and commas.
func healthTimeouts() Param {
	return Param{
		Name: "healthTimeoutOverrides", Type: "part=duration, with commas", Help: "how long a part (syncer, calc or CalculationGraph, dataplane or InternalDataplaneMainLoop) may give no sign of life before /liveness fails",
		set: func(s *Settings, text string) error {
			out := map[string]time.Duration{}
			for _, w := range words(text) {
				part, value, _ := strings.Cut(w, "=")
				d, err := time.ParseDuration(value)
				if part == "" || err != nil || d <= 0 {
					return fmt.Errorf("has %q: want part=duration, such as dataplane=120s", w)
				}
				part = strings.ToLower(part)
				out[cmp.Or(upstreamsParts[part], part)] = d
			}
			s.HealthTimeouts = out
			return nil
		},
	}
}

// upstreamsParts are parts of upstream's agent, by the names that its log and its answer to /liveness have, in lower case, and those of
// ours that do the same. Those with underscores are of its older versions.
var upstreamsParts = map[string]string{
	"calculationgraph": "calc", "async_calc_graph": "calc", "internaldataplanemainloop": "dataplane", "int_dataplane": "dataplane",
}

// timeoutsText is the same as text.
func timeoutsText(list []api.HealthTimeout) string {
	var out []string
	for _, t := range list {
		out = append(out, t.Name+"="+t.Timeout)
	}
	return strings.Join(out, ",")
}

func logRate() Param {
	return Param{
		Name: "logActionRateLimit", Type: "number/second, /minute, /hour or /day, or none", Default: "100/second",
		Help: "how many packets each rule with action Log reports; the others go on all the same",
		set: func(s *Settings, text string) error {
			n, per, err := api.ParseLogRate(text)
			if err != nil {
				return err
			}
			s.Log.Rate, s.Log.Per = n, per
			return nil
		},
	}
}

func burst() Param {
	return Param{
		Name: "logActionRateLimitBurst", Type: "1 to 9999", Default: "100", Help: "how many packets may exceed that limit at once",
		set: func(s *Settings, text string) error {
			n, err := strconv.ParseUint(text, 10, 32)
			if err != nil || n < 1 || n > 9999 {
				return fmt.Errorf("is %q: want 1 to 9999", text)
			}
			s.Log.Burst = uint32(n)
			return nil
		},
	}
}

// orNone lets a list be empty: an empty value says nothing.
func (p Param) orNone() Param {
	set := p.set
	p.Type += ", or none"
	p.set = func(s *Settings, text string) error {
		if strings.EqualFold(text, "none") {
			text = ""
		}
		return set(s, text)
	}
	return p
}
