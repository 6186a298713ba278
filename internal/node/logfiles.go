package node

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/twillnet/twill/internal/logs"
)

// LogFiles keep what daemons write in files, besides where it goes anyway: DIR/NAME/current for each daemon, and next to it those that
// were full. It is the layout of svlogd(8), which upstream's image has. A file that cannot be written costs its lines and no more: it is
// reported once, and tried again with each line.
type LogFiles struct {
	dir string
	log *slog.Logger // of what is wrong with the files; it is in none of them

	mu    sync.Mutex // guards files
	files map[string]*logFile
}

// NewLogFiles makes the directory, which the owner alone can read.
func NewLogFiles(dir string, log *slog.Logger) (*LogFiles, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &LogFiles{dir: dir, log: log, files: map[string]*logFile{}}, nil
}

// Tee is a writer to w, and to the file of a daemon.
func (f *LogFiles) Tee(name string, w io.Writer) io.Writer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[name] == nil {
		path := filepath.Join(f.dir, name, "current")
		f.files[name] = &logFile{to: logs.NewFile(path), path: path, log: f.log}
	}
	return tee{w, f.files[name]}
}

// Close closes the files.
func (f *LogFiles) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range f.files {
		file.to.Close()
	}
}

// logFile is the file of one daemon.
type logFile struct {
	to   *logs.File
	path string
	log  *slog.Logger

	mu     sync.Mutex // guards failed
	failed bool
}

func (f *logFile) write(b []byte) {
	_, err := f.to.Write(b)
	f.mu.Lock()
	again := f.failed
	f.failed = err != nil
	f.mu.Unlock()
	if err != nil && !again {
		f.log.Error("a log file cannot be written; the daemon goes on, and its lines are on standard error alone", "file", f.path, "err", err)
	}
}

// tee never fails: a daemon whose pipe is closed would die of it.
type tee struct {
	w    io.Writer
	file *logFile
}

func (t tee) Write(b []byte) (int, error) {
	_, _ = t.w.Write(b) // where standard error is gone the file is all that is left
	t.file.write(b)
	return len(b), nil
}
