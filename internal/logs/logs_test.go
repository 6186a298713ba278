package logs

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// place is a log that is written to memory, and a file and a syslog that settings can name.
type place struct {
	*Logs
	screen *screen
	file   string
	syslog *net.UnixConn
}

type screen struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // has something after each line
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.written <- struct{}{}:
	default:
	}
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newPlace(t *testing.T, json bool) *place {
	dir := t.TempDir()
	at := &net.UnixAddr{Name: filepath.Join(dir, "log"), Net: "unixgram"}
	c, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s := &screen{written: make(chan struct{}, 1)}
	log := slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelInfo}))
	return &place{New(log, json, at.Name), s, filepath.Join(dir, "new", "agent.log"), c}
}

// received is the next line of syslog.
func (p *place) received(t *testing.T) string {
	t.Helper()
	b := make([]byte, 9000)
	if err := p.syslog.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := p.syslog.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b[:n]))
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLinesGoWhereSettingsSay(t *testing.T) {
	p := newPlace(t, false)
	log := p.Logger().With("part", "fib")
	log.Warn("before")
	p.Configure(Settings{Path: p.file, File: slog.LevelWarn, Sys: slog.LevelError})
	for level := slog.LevelDebug - 4; level <= slog.LevelError+4; level += 4 {
		log.Log(t.Context(), level, "line", "n", int(level))
	}
	other := p.file + ".other"
	p.Configure(Settings{Path: other, File: slog.LevelDebug, Sys: None})
	log.WithGroup("g").Debug("elsewhere", "n", 1)
	log.Error("of syslog no more")
	p.Configure(Settings{Path: other, File: None, Sys: slog.LevelWarn})
	log.Warn("nor of the file")
	p.Close()
	log.Error("after")

	if got := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(content(t, p.file), ""); got !=
		"level=WARN msg=line part=fib n=4\nlevel=ERROR msg=line part=fib n=8\nlevel=ERROR+4 msg=line part=fib n=12\n" {
		t.Errorf("the file has\n%s", got)
	}
	if got := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(content(t, other), ""); got !=
		"level=INFO msg=\"the log goes there, too\" to="+other+"\nlevel=DEBUG msg=elsewhere part=fib g.n=1\nlevel=ERROR msg=\"of syslog no more\" part=fib\n" {
		t.Errorf("the other file has\n%s", got)
	}
	const daemon = 3 << 3
	for _, want := range []string{ // the severities of RFC 5424, section 6.2.1
		fmt.Sprintf(`^<%d>.* twill-agent\[%d\]: msg=line part=fib n=8$`, daemon|3, os.Getpid()),
		fmt.Sprintf(`^<%d>.*: msg=line part=fib n=12$`, daemon|2),
		fmt.Sprintf(`^<%d>.*: msg="nor of the file" part=fib$`, daemon|4),
	} {
		if got := p.received(t); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("syslog has %s\nwant %s", got, want)
		}
	}
	if got := p.screen.String(); strings.Count(got, "\n") != 12 || !strings.Contains(got, "msg=before") || !strings.Contains(got, "msg=after") {
		t.Errorf("the log has\n%s", got)
	}
}

func TestLinesOfTheFileAreJSONAsTheOthersAre(t *testing.T) {
	p := newPlace(t, true)
	p.Configure(Settings{Path: p.file, File: slog.LevelInfo, Sys: None})
	p.Logger().Info("line", "n", 1)
	p.Close()
	if got := content(t, p.file); !regexp.MustCompile(`(?m)^\{"time":"[^"]+","level":"INFO","msg":"line","n":1\}\n$`).MatchString(got) {
		t.Errorf("got %s", got)
	}
}

// TestASlowPlaceKeepsNobodyWaiting has nobody read syslog while more is written than the kernel and the queue hold: nobody waits, and what is
// there in the end says how many lines are not.
func TestASlowPlaceKeepsNobodyWaiting(t *testing.T) {
	p := newPlace(t, false)
	p.Configure(Settings{File: None, Sys: slog.LevelDebug})
	const all = 3 * waiting
	for n := range all {
		p.Logger().Debug("line", "n", n)
	}
	note := regexp.MustCompile(`msg="lines were dropped .*lines=(\d+)$`)
	for range all {
		p.Logger().Debug("last") // after what was dropped there must be a line that can say it
		if m := note.FindStringSubmatch(p.received(t)); m != nil {
			if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > all {
				t.Errorf("%s lines of %d were dropped", m[1], all)
			}
			return
		}
	}
	t.Error("no line was dropped, or none says it")
}

func TestNoLineIsLostWhereTheDaemonWaits(t *testing.T) {
	p := newPlace(t, false)
	p.Configure(Settings{File: None, Sys: slog.LevelDebug, Wait: true})
	const all = 3 * waiting
	go func() {
		for n := range all {
			p.Logger().Debug("line", "n", n)
		}
	}()
	p.received(t) // that the log goes there
	for n := range all {
		if got, want := p.received(t), fmt.Sprintf(" n=%d", n); !strings.HasSuffix(got, want) {
			t.Fatalf("got %s, want%s", got, want)
		}
	}
	p.Close()
}

// TestAWriterThatWaitsIsLetGoWhenSettingsChange has nobody read syslog: who waits for it goes on when it is turned off.
func TestAWriterThatWaitsIsLetGoWhenSettingsChange(t *testing.T) {
	p := newPlace(t, false)
	p.Configure(Settings{File: None, Sys: slog.LevelDebug, Wait: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 * waiting {
			p.Logger().Debug("line")
		}
	}()
	for len(p.sys.live.Load().lines) < waiting {
		select {
		case <-done:
			t.Fatal("nobody waited")
		default:
			runtime.Gosched()
		}
	}
	p.Configure(Settings{File: None, Sys: None})
	<-done
}

func TestWhatIsNotAFileIsNotWritten(t *testing.T) {
	p := newPlace(t, false)
	dir := filepath.Dir(p.file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fifo, link, device := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), "/dev/null"
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link, device, dir, "relative.log"} {
		p.Configure(Settings{Path: path, File: slog.LevelInfo, Sys: None})
		p.Logger().Warn("a line")
		p.Logger().Warn("and another")
		p.Close()
		if got := strings.Count(p.screen.String(), path+"\" err=") + strings.Count(p.screen.String(), path+" err="); got != 1 {
			t.Errorf("%s is reported %d times:\n%s", path, got, p.screen)
		}
	}
	if _, err := os.Lstat(p.file); err == nil {
		t.Error("it was written through a link")
	}
	if err := Regular(p.file); err != nil {
		t.Error(err)
	}
}

func TestAFileThatCanBeWrittenAgainIs(t *testing.T) {
	p := newPlace(t, false)
	dir := filepath.Dir(p.file)
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where a directory should be
		t.Fatal(err)
	}
	p.Configure(Settings{Path: p.file, File: slog.LevelInfo, Sys: None})
	p.Logger().Info("lost")
	p.await(t, "cannot be written")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	p.Logger().Info("kept")
	p.await(t, "is written there again")
	p.Close()
	if got := content(t, p.file); !strings.Contains(got, "msg=kept") || strings.Contains(got, "lost") {
		t.Errorf("got %s", got)
	}
}

// TestAFileThatWasMovedIsMadeAgain as after logrotate, and one that was deleted.
func TestAFileThatWasMovedIsMadeAgain(t *testing.T) {
	f := NewFile(filepath.Join(t.TempDir(), "agent.log"))
	defer f.close()
	write := func(text string) {
		t.Helper()
		if err := f.write(line{slog.LevelInfo, []byte(text + "\n")}); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	write("second")
	if err := os.Rename(f.path, f.path+".1"); err != nil {
		t.Fatal(err)
	}
	write("third")
	if was, is := content(t, f.path+".1"), content(t, f.path); was != "first\nsecond\n" || is != "third\n" {
		t.Errorf("the one that was moved has %q, the new one %q", was, is)
	}
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	write("fourth")
	if is := content(t, f.path); is != "fourth\n" {
		t.Errorf("after it was deleted it has %q", is)
	}
}

// await waits until the log has a text.
func (p *place) await(t *testing.T, text string) {
	t.Helper()
	late := time.After(time.Minute)
	for !strings.Contains(p.screen.String(), text) {
		select {
		case <-p.screen.written:
		case <-late:
			t.Fatalf("no %q in\n%s", text, p.screen)
		}
	}
}

func TestDebugLinesOfSomeSourceFilesAlone(t *testing.T) {
	p := newPlace(t, false)
	for files, want := range map[string]string{"^logs_test": "debug info ", "^fib": "info "} {
		path := p.file + files
		p.Configure(Settings{Path: path, File: slog.LevelDebug, Sys: None, DebugFiles: files})
		p.Logger().With("a", 1).Debug("debug")
		p.Logger().Info("info")
		p.Close()
		var got string
		for _, m := range regexp.MustCompile(`msg=(\w+)`).FindAllStringSubmatch(content(t, path), -1) {
			got += m[1] + " "
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", files, got, want)
		}
	}
}
