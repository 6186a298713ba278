package daemon

import (
	"log/slog"
	"testing"
)

// TestResourcesSayWhatIsLogged: what they say holds at once, and without them the flag does.
func TestResourcesSayWhatIsLogged(t *testing.T) {
	level := &slog.LevelVar{}
	level.Set(slog.LevelWarn)
	k := newPlanSource(Config{Node: "h1", Dir: t.TempDir(), Level: level}, nil, nil)
	for _, tt := range []struct {
		severity string
		want     slog.Level
	}{{"Debug", slog.LevelDebug}, {"trace", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"Warning", slog.LevelWarn}, {"Error", slog.LevelError}, {"Fatal", slog.LevelError + 1}, {"", slog.LevelWarn}, {"Loud", slog.LevelWarn}} {
		if k.logAs(tt.severity); level.Level() != tt.want {
			t.Errorf("%q: %s, want %s", tt.severity, level.Level(), tt.want)
		}
	}
}

// TestAReflectorFollowsNoSettingsOfTheAgent: it may not read them.
func TestAReflectorFollowsNoSettingsOfTheAgent(t *testing.T) {
	host := newPlanSource(Config{Node: "h1", Dir: t.TempDir()}, nil, nil)
	reflector := newPlanSource(Config{Node: "h1", Dir: t.TempDir(), Reflector: true}, nil, nil)
	if len(reflector.prefixes()) != len(host.prefixes())-1 || !host.resources().Agent || reflector.resources().Agent || reflector.resources().NoWorkloads == "" {
		t.Errorf("%v, %v", host.prefixes(), reflector.prefixes())
	}
	host.needs = needs{services: true, workloads: true}
	if n := len(host.prefixes()) - len(reflector.prefixes()); n != 4 {
		t.Errorf("%d more prefixes, want those of the agent, two of services and that of workloads", n)
	}
	host.bird = true
	if host.resources().NoWorkloads == "" {
		t.Error("BIRD has sessions with workloads")
	}
}
