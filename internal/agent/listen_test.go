package agent

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/health"
	"github.com/twillnet/twill/internal/metrics"
)

func TestSettingsHideMetricsOfGoAndOfTheProcess(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	watch := newReporter(Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, memstore.New(), metrics.New(registry))
	d := &doorway{watch: watch, checker: health.New(watch.notReady), metrics: registry}
	for _, tt := range []struct {
		name     string
		settings config.Settings
		want     []string
	}{
		{"both are shown", config.Settings{GoMetrics: true, ProcessMetrics: true}, []string{"felix", "go", "process", "twill"}},
		{"Go's are hidden", config.Settings{ProcessMetrics: true}, []string{"felix", "process", "twill"}},
		{"the process's are hidden", config.Settings{GoMetrics: true}, []string{"felix", "go", "twill"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.configure(tt.settings)
			families, err := d.numbers().Gather()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range families {
				begin, _, _ := strings.Cut(f.GetName(), "_")
				got = append(got, begin)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("metrics begin with %v, want %v", got, tt.want)
			}
		})
	}
}
