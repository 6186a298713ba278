package logs

import (
	"log/slog"
	"log/syslog"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Limits of a log file and of those that were full: 110 MB at most.
const (
	MaxMB  = 10 // megabytes until a file is put aside
	MaxOld = 10 // files put aside that are kept
)

// file is a log file. A full one is put aside, next to it, with the time in its name.
type file struct {
	path string
	to   *lumberjack.Logger
}

func newFile(path string) *file {
	return &file{path, &lumberjack.Logger{Filename: path, MaxSize: MaxMB, MaxBackups: MaxOld}}
}

func (f *file) write(l line) error {
	if err := Regular(f.path); err != nil {
		return err
	}
	_, err := f.to.Write(l.text)
	return err
}

func (f *file) close() { _ = f.to.Close() } // nothing is kept back that could fail to be written

func (f *file) String() string { return f.path }

// tag is the name of a line's writer in syslog.
const tag = "twill-agent"

// system is the host's syslog, with the severities of syslog(3).
type system struct {
	socket string
	to     *syslog.Writer
}

func (s *system) write(l line) error {
	if s.to == nil {
		network := ""
		if s.socket != "" {
			network = "unixgram"
		}
		to, err := syslog.Dial(network, s.socket, syslog.LOG_DAEMON|syslog.LOG_INFO, tag)
		if err != nil {
			return err
		}
		s.to = to
	}
	text := string(l.text)
	switch {
	case l.level > slog.LevelError:
		return s.to.Crit(text)
	case l.level >= slog.LevelError:
		return s.to.Err(text)
	case l.level >= slog.LevelWarn:
		return s.to.Warning(text)
	case l.level >= slog.LevelInfo:
		return s.to.Info(text)
	}
	return s.to.Debug(text)
}

func (s *system) close() {
	if s.to != nil {
		_ = s.to.Close()
	}
}

func (s *system) String() string {
	if s.socket != "" {
		return s.socket
	}
	return "/dev/log"
}
