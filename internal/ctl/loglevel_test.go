package ctl

import (
	"log/slog"
	"testing"
)

func TestTheLogLevelIsThatOfTheFlag(t *testing.T) {
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "Warning": slog.LevelWarn, "panic": slog.LevelError + 4} {
		var level slog.LevelVar
		if err := (logLevel{&level}).Set(text); err != nil || level.Level() != want {
			t.Errorf("%s: level is %v (%v), want %v", text, level.Level(), err, want)
		}
	}
	code, _, errs := newCLI(t).run("", "get", "tiers", "--log-level", "loud")
	if code != 2 {
		t.Errorf("a level that is none: exit %d", code)
	}
	contains(t, errs, "want debug, info, warning")
	if code, _, errs := newCLI(t).run("", "get", "tiers", "--log-level", "error", "--context", "any"); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
}
