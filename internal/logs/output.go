package logs

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// waiting is how many lines wait for a slow file or syslog.
const waiting = 4096

// lastWords is how long a sink may take for what waits when it is closed.
const lastWords = time.Second

type line struct {
	level slog.Level
	text  []byte
}

// sink is what lines are written to. Only one goroutine calls it.
type sink interface {
	write(line) error
	close()
	String() string
}

// output is a file, or syslog, that comes and goes.
type output struct {
	open func(path string) sink
	log  *slog.Logger
	note func(dropped uint64) []byte // the line about lines that were dropped

	level slog.LevelVar
	wait  atomic.Bool
	live  atomic.Pointer[queue]
	path  string // of live
}

func newOutput(log *slog.Logger) *output {
	o := &output{log: log}
	o.level.Set(None)
	return o
}

// configure has lines from a level on go to a path, or nowhere, and returns whether it has opened it. Only one goroutine calls it.
func (o *output) configure(path string, on bool, level slog.Level, wait bool) (opened bool) {
	o.wait.Store(wait)
	old := o.live.Load()
	if opened = on && (old == nil || path != o.path); opened {
		o.live.Store(newQueue(o, o.open(path)))
		o.path = path
	}
	if !on {
		level = None
		o.live.Store(nil)
	}
	o.level.Set(level)
	if old != nil && old != o.live.Load() {
		old.close()
	}
	return opened
}

func (o *output) put(l line) {
	if q := o.live.Load(); q != nil {
		q.put(l, o.wait.Load())
	}
}

// queue has lines that wait for a sink.
type queue struct {
	to      sink
	lines   chan line
	dropped atomic.Uint64 // since the last line that was written

	end  chan struct{} // closed when no more lines come
	once sync.Once
	done chan struct{} // closed when the last line is written
}

func newQueue(o *output, to sink) *queue {
	q := &queue{to: to, lines: make(chan line, waiting), end: make(chan struct{}), done: make(chan struct{})}
	go q.run(o)
	return q
}

func (q *queue) put(l line, wait bool) {
	if wait {
		select {
		case q.lines <- l:
		case <-q.end: // settings have changed
		}
		return
	}
	select {
	case q.lines <- l:
	default:
		q.dropped.Add(1)
	}
}

// close ends it after what waits has been written, or would take too long.
func (q *queue) close() {
	q.once.Do(func() { close(q.end) })
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
	}
}

func (q *queue) run(o *output) {
	defer close(q.done)
	defer q.to.close()
	failed := false
	write := func(l line) {
		if n := q.dropped.Swap(0); n > 0 {
			_ = q.to.write(line{slog.LevelWarn, o.note(n)}) // what is wrong with it the next line shows
		}
		err := q.to.write(l)
		if err != nil && !failed {
			o.log.Error("the log cannot be written there, and goes to the other places alone", "to", q.to.String(), "err", err)
		}
		if err == nil && failed {
			o.log.Info("the log is written there again", "to", q.to.String())
		}
		failed = err != nil
	}
	for {
		select {
		case l := <-q.lines:
			write(l)
			continue
		case <-q.end:
		}
		for {
			select {
			case l := <-q.lines:
				write(l)
				continue
			default:
			}
			return
		}
	}
}
