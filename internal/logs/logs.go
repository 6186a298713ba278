// Package logs also writes a daemon's log to a file and to the host's syslog. The file, and from which level on lines are written to each, can
// change while the daemon runs.
package logs

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
)

// None is above all levels: nothing is written.
const None = slog.LevelError + 8

// off are the settings of a new Logs.
var off = Settings{File: None, Sys: None}

// Settings say what goes where.
type Settings struct {
	Path       string     // of the log file; empty: none
	File       slog.Level // the least severe lines of the file
	Sys        slog.Level // the least severe lines of syslog
	DebugFiles string     // a regular expression of the names of source files whose lines below Info are written; empty: all
	Wait       bool       // who writes a line waits where a file or syslog is slow, in place of losing it
}

// Logs are the file and the syslog of one daemon. Neither keeps the daemon waiting unless settings say so: lines are handed over, and those that
// would be too many are dropped, which the next line says. What cannot be written is reported once on the log that was there before, and
// tried again with each line.
type Logs struct {
	log *slog.Logger // what is wrong with the others goes here
	all slog.Handler

	file, sys *output
	debug     atomic.Pointer[regexp.Regexp]

	mu  sync.Mutex // guards set, and what is open
	set Settings
}

// New has everything go to a log, and to nothing else until Configure says so. Lines of the file are JSON, or text. Syslog is at socket, a unix
// socket of datagrams; empty: where syslog(3) looks for it.
func New(log *slog.Logger, json bool, socket string) *Logs {
	l := &Logs{log: log, set: off, file: newOutput(log), sys: newOutput(log)}
	l.file.open = func(path string) sink { return NewFile(path) }
	l.sys.open = func(string) sink { return &system{socket: socket} }
	l.all = filter{slog.NewMultiHandler(log.Handler(), newHandler(l.file, json, true), newHandler(l.sys, false, false)), &l.debug}
	return l
}

// Logger is the log that goes everywhere.
func (l *Logs) Logger() *slog.Logger { return slog.New(l.all) }

// Configure has other settings take effect, from the next line on; with the same ones it does nothing. DebugFiles must compile.
func (l *Logs) Configure(s Settings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s == l.set {
		return
	}
	l.set = s
	var debug *regexp.Regexp
	if s.DebugFiles != "" {
		debug = regexp.MustCompile(s.DebugFiles)
	}
	l.debug.Store(debug)
	if l.file.configure(s.Path, s.Path != "" && s.File < None, s.File, s.Wait) {
		l.Logger().Info("the log goes there, too", "to", s.Path)
	}
	if l.sys.configure("", s.Sys < None, s.Sys, s.Wait) {
		l.Logger().Info("the log goes there, too", "to", "syslog")
	}
}

// Close ends both after what was handed over has been written, for which a sink that hangs has a second.
func (l *Logs) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set = off
	l.file.configure("", false, None, false)
	l.sys.configure("", false, None, false)
}

// Regular is the error of a path that must not be written: it is not absolute, or something is there that is not a regular file, such as a disk.
func Regular(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", path)
	}
	info, err := os.Lstat(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "write", Path: path, Err: fmt.Errorf("it is not a regular file (%s)", info.Mode())}
	}
	return nil
}
