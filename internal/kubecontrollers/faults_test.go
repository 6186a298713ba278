package kubecontrollers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/leader"
	"github.com/twillnet/twill/internal/metrics"
)

// TestReadinessNamesTheControllerThatKeepsFailing: whichever it is, with the error, and not for what only its users can mend.
func TestReadinessNamesTheControllerThatKeepsFailing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		turns string // controller/key=error each: away, terminal, user, canceled or ok; or a time to wait
		want  []string
		now   map[string]float64 // what fails at the end
	}{
		{name: "none", turns: "nodes/nodes=ok 1h"},
		{name: "one failure is none yet", turns: "nodes/nodes=away 29s", now: map[string]float64{"nodes": 1}},
		{name: "one that lasts", turns: "services/a=away 29s services/a=away 1s", want: []string{"services: has failed for 30s: a is away"}, now: map[string]float64{"services": 1}},
		{name: "and ends", turns: "services/a=away 1m services/a=ok", now: map[string]float64{"services": 0}},
		{name: "and begins again", turns: "services/a=away 1m services/a=ok services/a=away 20s", now: map[string]float64{"services": 1}},
		{name: "another's success ends it not", turns: "services/a=away 1m services/b=ok", want: []string{"services: has failed for 1m0s: a is away"}},
		{
			name: "the first of several, and how many", turns: "services/b=away 1s services/a=away services/c=away 1m", now: map[string]float64{"services": 3},
			want: []string{"services: has failed for 1m1s: b is away (and 2 more)"},
		},
		{
			name: "each controller", turns: "copies/k=away compaction/history=away pools/pools=away networks/nodes=away policies/p=away hostendpoints/n=away configuration/default=away 30s",
			want: []string{
				"compaction: has failed for 30s: history is away", "configuration: has failed for 30s: default is away", "copies: has failed for 30s: k is away",
				"hostendpoints: has failed for 30s: n is away", "networks: has failed for 30s: nodes is away", "policies: has failed for 30s: p is away", "pools: has failed for 30s: pools is away",
			},
		},
		{name: "what no try mends is its user's", turns: "services/a=terminal 1h"},
		{name: "what its user asks for in vain", turns: "services/a=user 1h"},
		{name: "a turn that was ended says nothing", turns: "nodes/nodes=away 1m nodes/nodes=canceled", want: []string{"nodes: has failed for 1m0s: nodes is away"}},
		{name: "one that has read nothing", turns: "unread 30s", want: []string{"tiers: has not read the datastore and Kubernetes for 30s; the log says why"}},
		{name: "one that has read nothing yet", turns: "unread 29s"},
		{name: "who does not lead has no turns", turns: "nodes/nodes=away 1h end", now: map[string]float64{"nodes": 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				p := &process{known: make(chan struct{}), elector: leader.New(leader.Config{ID: "a"})}
				close(p.known)
				m := metrics.NewControllers(registry)
				p.faults.metrics = m
				read := true
				p.begin(map[string]part{"tiers": {nil, func() bool { return read }}})
				for word := range strings.FieldsSeq(tt.turns) {
					if d, err := time.ParseDuration(word); err == nil {
						<-time.After(d)
						continue
					}
					switch word {
					case "unread":
						read = false
						continue
					case "end":
						p.leave()
						continue
					}
					of, how, _ := strings.Cut(word, "=")
					name, key, _ := strings.Cut(of, "/")
					away := fmt.Errorf("%s is away", key)
					p.faults.turn(name)(key, map[string]error{
						"away": away, "terminal": controller.Terminal(away), "user": usersFault{errors.Join(away)}, "canceled": fmt.Errorf("x: %w", context.Canceled),
					}[how])
				}
				got := p.notReady()
				if got = got[1:]; !slices.Equal(got, tt.want) { // the first is about the lease, which nobody looks at here
					t.Errorf("got %q, want %q", got, tt.want)
				}
				for name, n := range tt.now {
					text := fmt.Sprintf("# HELP twill_controllers_failing What a controller looks after, such as services, of which the last turn failed.\n# TYPE twill_controllers_failing gauge\ntwill_controllers_failing{controller=%q} %v\n", name, n)
					if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "twill_controllers_failing"); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
