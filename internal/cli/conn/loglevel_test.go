package conn

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
}
