package conn

import (
	"errors"
	"log/slog"
	"strings"
)

// logLevel is a flag that takes the names of levels that calicoctl knows.
type logLevel struct{ Level *slog.LevelVar }

var levelNames = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "warn": slog.LevelWarn, "error": slog.LevelError,
	"fatal": slog.LevelError + 4, "panic": slog.LevelError + 4,
}

func (l logLevel) String() string {
	if l.Level == nil {
		return "info"
	}
	return strings.ToLower(l.Level.Level().String())
}

func (logLevel) Type() string { return "level" }

func (l logLevel) Set(text string) error {
	level, ok := levelNames[strings.ToLower(text)]
	if !ok {
		return errors.New("want debug, info, warning, error, fatal or panic")
	}
	l.Level.Set(level)
	return nil
}

// SetLevel sets the level of a command's log by the names that calicoctl knows.
func (c *Env) SetLevel(text string) error { return logLevel{&c.Level}.Set(text) }
