package terminal_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/terminal"
)

// environment is that of a terminal with colours, and what a case changes of it.
func environment(t *testing.T, set ...string) {
	t.Helper()
	for _, name := range []string{"NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "TTY_FORCE", "TMUX"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("TERM", "xterm-256color")
	for _, s := range set {
		name, value, _ := strings.Cut(s, "=")
		t.Setenv(name, value)
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	const colour = "\x1b[1;32mok\x1b[m\r\n"
	for _, tt := range []struct{ name, set, want string }{
		{"a terminal has colours", "TERM=xterm-256color", colour},
		{"NO_COLOR takes them away, and leaves bold", "NO_COLOR=1", "\x1b[1mok\x1b[m\r\n"},
		{"NO_COLOR with any text does", "NO_COLOR=yes", "\x1b[1mok\x1b[m\r\n"},
		{"an empty NO_COLOR is none", "NO_COLOR=", colour},
		{"a terminal that can do nothing gets plain text", "TERM=dumb", "ok\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			environment(t, tt.set)
			tty, written := machinetest.Terminal(t, 80)
			if err := terminal.Fprint(tty, terminal.Allow.Render("ok")+"\n"); err != nil {
				t.Fatal(err)
			}
			if got := written(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("what is no terminal gets plain text", func(t *testing.T) {
		environment(t)
		var b bytes.Buffer
		if err := terminal.Fprint(&b, terminal.Allow.Render("ok")); err != nil || b.String() != "ok" {
			t.Errorf("got %q, %v", b.String(), err)
		}
	})
}

func TestColumnsStandBelowEachOther(t *testing.T) {
	environment(t)
	var b bytes.Buffer
	table := terminal.NewTable(&b, "NAME", "VALUE", "NOTE")
	table.Row("a", terminal.Allow.Render("green"), "")
	table.Row("日本", "x", "wide characters")
	table.Row("a last cell that is longer than its column", "")
	table.Row("two\nlines\tand a tab", "x", "y")
	table.Row()
	table.Row("KIND", "B")
	table.Row("k", "")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := `NAME                                        VALUE  NOTE
a                                           green
日本                                        x      wide characters
a last cell that is longer than its column
two lines and a tab                         x      y

KIND  B
k
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestALastCellDoesNotWidenItsColumn(t *testing.T) {
	environment(t)
	var b bytes.Buffer
	table := terminal.NewTable(&b)
	table.Row("check", "ok", "found")
	table.Row("because of something long")
	if err := table.Flush(); err != nil || b.String() != "check  ok  found\nbecause of something long\n" {
		t.Errorf("%v, got:\n%s", err, b.String())
	}
}

// BenchmarkTable is the figure of docs/dependencies.md.
func BenchmarkTable(b *testing.B) {
	for b.Loop() {
		var out bytes.Buffer
		table := terminal.NewTable(&out, "NAME", "TIER", "ORDER", "TYPES", "RULES", "SELECTOR")
		for i := range 100_000 {
			table.Row(fmt.Sprintf("name-%d", i), "default", "100", "Ingress,Egress", "1 in, 2 out", `app == "web" && has(x)`)
		}
		if err := table.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRowsThatComeLaterStandBelowThoseBefore(t *testing.T) {
	environment(t)
	var b bytes.Buffer
	table := terminal.NewTable(&b, "CHANGE", "NAME", "AGE")
	table.AtLeast(len("changed"))
	for _, rows := range [][][]string{{{"added", "a", "1s"}}, {}, {{"changed", "longer", "2s"}}, {{"deleted", "b", "3s"}, {"added", "c", "4s"}}} {
		for _, r := range rows {
			table.Row(r...)
		}
		if err := table.More(); err != nil {
			t.Fatal(err)
		}
	}
	want := "CHANGE   NAME  AGE\nadded    a     1s\nchanged  longer  2s\ndeleted  b       3s\nadded    c       4s\n"
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}
