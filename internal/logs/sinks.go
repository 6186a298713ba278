package logs

import (
	"io/fs"
	"log/slog"
	"log/syslog"
	"os"
	"sync"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Limits of a log file and of those that were full: 110 MB at most.
const (
	MaxMB  = 10 // megabytes until a file is put aside
	MaxOld = 10 // files put aside that are kept
)

// File is a log file. A full one is put aside, next to it, with the time in its name. One that somebody moved or deleted, as logrotate(8)
// does, is made again.
type File struct {
	path string
	to   *lumberjack.Logger

	mu   sync.Mutex  // guards last
	last fs.FileInfo // of the file that is open
}

// NewFile is the log file at a path. It is opened, and its directory made, with the first line.
func NewFile(path string) *File {
	return &File{path: path, to: &lumberjack.Logger{Filename: path, MaxSize: MaxMB, MaxBackups: MaxOld}}
}

// Write writes lines, or says why it cannot: then the next ones are tried again. It is safe for concurrent use.
func (f *File) Write(lines []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := Regular(f.path); err != nil {
		return 0, err
	}
	if now, err := os.Lstat(f.path); f.last != nil && (err != nil || !os.SameFile(f.last, now)) {
		_ = f.to.Close() // nothing is kept back that could fail to be written
	}
	n, err := f.to.Write(lines)
	if err == nil {
		f.last, err = os.Lstat(f.path)
	}
	return n, err
}

func (f *File) write(l line) error {
	_, err := f.Write(l.text)
	return err
}

// Close closes it. Nothing is kept back that could fail to be written.
func (f *File) Close() { _ = f.to.Close() }

func (f *File) close() { f.Close() }

// String is its path.
func (f *File) String() string { return f.path }

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
