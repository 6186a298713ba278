package child

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOnlyWhatNobodyElseCanChangeIsStarted(t *testing.T) {
	good := script(t, "exit 0")
	with := func(mode os.FileMode) string {
		path := script(t, "exit 0")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := script(t, "exit 0")
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 12345, 0); err != nil {
			t.Fatal(err)
		}
	} else {
		foreign = with(0o722)
	}
	for _, tt := range []struct{ name, path, err string }{
		{"a program", good, ""},
		{"a name alone", "program", "want the absolute path"},
		{"nothing", good + "-", "no such file"},
		{"a folder", filepath.Dir(good), "it is no program"},
		{"a device", "/dev/null", "it is no program"},
		{"a text", with(0o600), "chmod +x"},
		{"one that its group may write", with(0o770), "others than its owner"},
		{"one that all may write", with(0o707), "others than its owner"},
		{"one of another user", foreign, ""},
	} {
		err := Check(tt.path)
		want := tt.err
		if tt.path == foreign {
			want = "chown root"
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", tt.name, err, want)
		}
	}
}

// TestAProgramReadsThreeAndWritesFour, in this process' environment, and sees the end of what it reads.
func TestAProgramReadsThreeAndWritesFour(t *testing.T) {
	t.Setenv("WHAT", "you wrote")
	p, err := Start(script(t, `read -r line <&3; echo "$WHAT $line" >&4; cat <&3 >/dev/null; exit 7`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.To.WriteString("this\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("you wrote this\n"))
	if _, err := io.ReadFull(p.From, b); err != nil || string(b) != "you wrote this\n" {
		t.Errorf("%q, %v", b, err)
	}
	_ = p.To.Close()
	<-p.Ended()
	if p.Err().Error() != "exit status 7" {
		t.Error(p.Err())
	}
	p.Stop(time.Minute) // of one that has ended returns at once
}

// TestAProgramThatDoesNotWantToEnd ends all the same, and what waits for it returns.
func TestAProgramThatDoesNotWantToEnd(t *testing.T) {
	p, err := Start(script(t, `trap "" TERM; echo x >&4; while :; do :; done`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.From, make([]byte, 1)); err != nil {
		t.Fatal(err) // it ignores the signal from now on
	}
	waits := make(chan error)
	go func() {
		_, err := p.To.Write(make([]byte, 1<<20)) // more than a pipe holds
		waits <- err
	}()
	p.Stop(time.Millisecond)
	if err := <-waits; err == nil {
		t.Error("all was written to a program that reads nothing")
	}
	if p.Err().Error() != "signal: killed" || syscall.Kill(p.PID(), 0) == nil {
		t.Error(p.Err())
	}
}

func TestWhatCannotBeStartedIsAnError(t *testing.T) {
	path := script(t, "")
	if err := os.WriteFile(path, []byte("#!/no/such/shell\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := Start(path); err == nil {
		t.Error("started", p.PID())
	}
}
