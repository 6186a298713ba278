package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// handler makes lines and hands them to an output. What With derives from it has the same buffer.
type handler struct {
	slog.Handler
	to  *output
	buf *buffer
}

type buffer struct {
	mu sync.Mutex // held from the making of a line until it is handed over, so that lines keep their order
	bytes.Buffer
}

// newHandler makes one whose lines are JSON, or text; without times and levels where the reader has its own.
func newHandler(to *output, json, times bool) handler {
	buf := &buffer{}
	h := lines(buf, &to.level, json, times)
	to.note = func(dropped uint64) []byte {
		var note bytes.Buffer
		slog.New(lines(&note, nil, json, times)).Warn("lines were dropped before this one, since they came faster than they could be written", "lines", dropped)
		return note.Bytes()
	}
	return handler{h, to, buf}
}

func lines(w io.Writer, level slog.Leveler, json, times bool) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if !times {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		}
	}
	if json {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	h.buf.mu.Lock()
	defer h.buf.mu.Unlock()
	h.buf.Reset()
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	h.to.put(line{r.Level, slices.Clone(h.buf.Bytes())})
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.to, h.buf}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.to, h.buf}
}

// filter drops lines below Info of source files whose names an expression does not match.
type filter struct {
	slog.Handler
	files *atomic.Pointer[regexp.Regexp]
}

func (f filter) Handle(ctx context.Context, r slog.Record) error {
	if files := f.files.Load(); files != nil && r.Level < slog.LevelInfo {
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		if !files.MatchString(filepath.Base(frame.File)) {
			return nil
		}
	}
	return f.Handler.Handle(ctx, r)
}

func (f filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return filter{f.Handler.WithAttrs(attrs), f.files}
}

func (f filter) WithGroup(name string) slog.Handler {
	return filter{f.Handler.WithGroup(name), f.files}
}
