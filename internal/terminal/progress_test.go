package terminal_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/terminal"
)

// working is work of so many steps, each as long, on virtual time.
func working(t *testing.T, out io.Writer, total int, each time.Duration, did func(p *terminal.Progress, i int)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		p := terminal.Begin(out, "applied", total)
		defer p.End()
		for i := range total {
			<-time.After(each)
			p.Step()
			synctest.Wait()
			if did != nil {
				did(p, i)
			}
		}
	})
}

func TestWorkOfASecondSaysNothing(t *testing.T) {
	environment(t)
	tty, written := machinetest.Terminal(t, 80)
	working(t, tty, 9, 100*time.Millisecond, nil)
	var b bytes.Buffer
	working(t, &b, 9, 100*time.Millisecond, nil)
	if got := written() + b.String(); got != "" {
		t.Errorf("%q was said", got)
	}
}

func TestALineNowAndThenWithoutATerminal(t *testing.T) {
	environment(t, "CLICOLOR_FORCE=1")
	var b bytes.Buffer
	working(t, &b, 25, 999*time.Millisecond, nil)
	want := "twill: 10 of 25 applied, 10s, about 15s left\ntwill: 20 of 25 applied, 20s, about 5s left\n"
	if b.String() != want {
		t.Errorf("got:\n%swant:\n%s", b.String(), want)
	}
}

func TestABarOnATerminal(t *testing.T) {
	environment(t)
	tty, written := machinetest.Terminal(t, 60)
	working(t, tty, 4, 990*time.Millisecond, func(p *terminal.Progress, i int) { p.Now(fmt.Sprint("part ", i)) })
	got := written()
	for _, want := range []string{
		"\x1b[2K\x1b[1;32m█████", "\x1b[m\x1b[2m░░░░░░░░░░░", "1 of 4 applied: part 0, 1s, about 3s left",
		"3 of 4 applied: part 2, 3s, about 1s left", "\r\x1b[2K",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.ContainsAny(got, "\n") {
		t.Errorf("the bar fills more than a line: %q", got)
	}
	if !strings.HasSuffix(got, "\r\x1b[2K") {
		t.Errorf("the bar stays: %q", got)
	}
}

// A line that is longer than the terminal would be wrapped, and erasing one would leave the other.
func TestABarIsNoWiderThanTheTerminal(t *testing.T) {
	environment(t, "NO_COLOR=1")
	tty, written := machinetest.Terminal(t, 24)
	working(t, tty, 2, 5*time.Second, func(p *terminal.Progress, _ int) { p.Now("something with a long name") })
	for _, picture := range strings.Split(written(), "\r\x1b[2K") {
		if n := len([]rune(picture)); n > 23 {
			t.Errorf("%q has %d columns", picture, n)
		}
	}
}

func TestWhatIsPrintedMeanwhileStandsAboveTheBar(t *testing.T) {
	environment(t, "NO_COLOR=1")
	tty, written := machinetest.Terminal(t, 80)
	working(t, tty, 3, 3*time.Second, func(p *terminal.Progress, i int) {
		out := p.Above(tty)
		if _, err := fmt.Fprintf(out, "<%d", i); err != nil { // no line yet: nothing may erase it
			t.Error(err)
		}
		<-time.After(time.Second)
		fmt.Fprintln(out, ">")
	})
	got := written()
	for i := range 3 {
		if whole := fmt.Sprintf("\r\x1b[2K<%d>\r\n", i); !strings.Contains(got, whole) {
			t.Errorf("%q is not in %q", whole, got)
		}
	}
	var b bytes.Buffer
	if p := terminal.Begin(&b, "applied", 1); p.Above(&b) != io.Writer(&b) {
		t.Error("without a terminal there is no bar to be above of")
	} else {
		p.End()
	}
}

func TestWhatIsAboveABarIsStillATerminal(t *testing.T) {
	environment(t)
	tty, written := machinetest.Terminal(t, 80)
	p := terminal.Begin(tty, "applied", 1)
	if err := terminal.Fprint(p.Above(tty), terminal.Allow.Render("ok")); err != nil {
		t.Fatal(err)
	}
	p.End()
	if got := written(); got != "\x1b[1;32mok\x1b[m" {
		t.Errorf("got %q", got)
	}
	if _, ok := p.Above(os.Stdout).(interface{ Fd() uintptr }); !ok {
		t.Error("it has no descriptor")
	}
}

func TestWorkOfUnknownLength(t *testing.T) {
	environment(t)
	var b bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		p := terminal.Begin(&b, "reading addresses", 0)
		defer p.End()
		<-time.After(15 * time.Second)
	})
	if b.String() != "twill: reading addresses, 10s\n" {
		t.Errorf("got %q", b.String())
	}
}

func TestWorkWithinOtherWork(t *testing.T) {
	environment(t, "NO_COLOR=1")
	tty, written := machinetest.Terminal(t, 80)
	synctest.Test(t, func(*testing.T) {
		outer := terminal.Begin(tty, "outer", 0)
		defer outer.End()
		<-time.After(2050 * time.Millisecond)
		inner := terminal.Begin(outer.Above(tty), "inner", 0)
		<-time.After(2 * time.Second)
		inner.End()
		<-time.After(time.Second)
	})
	var shown []string // what is seen, one after the other
	for _, picture := range strings.Split(written(), "\r\x1b[2K") {
		if word, _, _ := strings.Cut(picture, ","); word != "" && (len(shown) == 0 || shown[len(shown)-1] != word) {
			shown = append(shown, word)
		}
	}
	if got := strings.Join(shown, " "); got != "outer inner outer" {
		t.Errorf("seen was %s", got)
	}
}

func TestProgressWithoutOutput(t *testing.T) {
	working(t, nil, 2, time.Minute, nil)
}
