package config_test

import (
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

func TestSettingsOfSeveralWords(t *testing.T) {
	f := api.New(api.KindFelixConfiguration).(*api.FelixConfiguration)
	f.Metadata.Name = "default"
	rate, burst := "30/minute", 7
	f.Spec.LogPrefix, f.Spec.LogActionRateLimit, f.Spec.LogActionRateLimitBurst = "x %p", &rate, &burst
	f.Spec.HealthTimeoutOverrides = []api.HealthTimeout{{Name: "Dataplane", Timeout: "120s"}, {Name: "calc", Timeout: "1m"}}
	r := config.New("h1")
	r.Set(f)
	s := r.Resolve().Settings
	if want := (config.Log{Prefix: "x %p", Rate: 30, Per: time.Minute, Burst: 7}); s.Log != want {
		t.Errorf("log settings are %+v, want %+v", s.Log, want)
	}
	if s.HealthTimeouts["dataplane"] != 2*time.Minute || s.HealthTimeouts["calc"] != time.Minute {
		t.Errorf("timeouts are %v", s.HealthTimeouts)
	}
	if s := config.New("h1").Resolve().Settings; s.Log.Prefix != "calico-packet" || s.Log.Rate != 100 || len(s.HealthTimeouts) != 0 || !s.GoMetrics {
		t.Errorf("defaults are %+v, %v", s.Log, s.HealthTimeouts)
	}
}
