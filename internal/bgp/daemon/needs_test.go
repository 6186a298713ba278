package daemon

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/relay"
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

// TestARelayHasWhatAPlanDependsOn, each kind apart.
func TestARelayHasWhatAPlanDependsOn(t *testing.T) {
	for _, reflector := range []bool{false, true} {
		k := newPlanSource(Config{Node: "h1", Dir: t.TempDir(), Reflector: reflector}, nil, newSecretDir(t.TempDir()))
		k.needs = needs{services: true, workloads: true}
		for _, p := range append(k.prefixes(), nodestatus.Prefixes()...) {
			if !slices.Contains(relay.Parts(), p) {
				t.Errorf("%s is in no part that a relay hands on: hosts behind one would read it from the datastore", p)
			}
		}
	}
}
