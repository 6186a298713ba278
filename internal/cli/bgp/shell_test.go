package bgp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestACommandEndsWithWhatItStarted: one that hangs must not leave others behind when it is killed.
func TestACommandEndsWithWhatItStarted(t *testing.T) {
	if err := shell(t.Context(), "echo why; exit 4"); err == nil || !strings.Contains(err.Error(), `"echo why; exit 4": exit status 4: why`) {
		t.Errorf("a command that fails: %v", err)
	}
	if err := shell(t.Context(), "true"); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "child")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- shell(ctx, "sleep 100000 & echo $! >"+file+".new; mv "+file+".new "+file+"; wait") }()
	child := 0
	for child == 0 {
		text, err := os.ReadFile(file)
		if err == nil {
			child, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		<-time.After(5 * time.Millisecond)
	}
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was ended", err)
	}
	for runs(child) { // an orphan is a zombie until init reaps it
		<-time.After(5 * time.Millisecond)
	}
}

// runs reports whether a process runs.
func runs(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, after, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(after, "Z") && syscall.Kill(pid, 0) == nil
}
