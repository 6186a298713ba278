package member

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logTo gives etcd a logger whose warnings and errors come out of ours: among
// them are what an operator must hear of, such as a peer whose certificate is
// refused, a slow disk, or the reason why etcd ends the process.
func logTo(log *slog.Logger) *zap.Logger { return zap.New(core{log: log}) }

// core is a zapcore.Core that writes to slog.
type core struct{ log *slog.Logger }

// Enabled is part of zapcore.Core. Below warnings, etcd logs too much.
func (c core) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With is part of zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core { return core{c.log.With(attrs(fields)...)} }

// Check is part of zapcore.Core.
func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

// Write is part of zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	if e.Level > zapcore.WarnLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "etcd: "+e.Message, attrs(fields)...)
	return nil
}

// Sync is part of zapcore.Core.
func (core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	enc := zapcore.NewMapObjectEncoder()
	var out []any
	for _, f := range fields {
		f.AddTo(enc)
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
