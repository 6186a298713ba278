// Package terminal is how text looks: the palette, tables, and how far long work is.
//
// In: texts, rows, steps that are done. Out: the same for a terminal, and plain text for
// anything else: no colour, no bar, nothing that grep or a log would have to take apart.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
)

// The palette: what each style means. [Fprint] shows them.
var (
	Allow = lipgloss.NewStyle().Foreground(lipgloss.Color("2")).Bold(true) // allowed, added, as it should be
	Deny  = lipgloss.NewStyle().Foreground(lipgloss.Color("1")).Bold(true) // denied, removed
	Warn  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))            // wants a look
	Wrong = lipgloss.NewStyle().Foreground(lipgloss.Color("0")).Background(lipgloss.Color("3")).Bold(true)
	Faint = lipgloss.NewStyle().Faint(true) // less important
	Title = lipgloss.NewStyle().Bold(true)
)

// Fprint prints text that has styles of the palette: with as many colours as a terminal knows, and without any style where out is no
// terminal. NO_COLOR takes away the colours (https://no-color.org), CLICOLOR_FORCE gives them to a pipe.
func Fprint(out io.Writer, text string) error {
	if !strings.ContainsRune(text, '\x1b') {
		_, err := io.WriteString(out, text)
		return err
	}
	_, err := fmt.Fprint(colorprofile.NewWriter(out, environ()), text)
	return err
}

// environ is the environment of this process. The library takes NO_COLOR for a truth value; what no-color.org says holds for any text.
func environ() []string {
	env := os.Environ()
	if os.Getenv("NO_COLOR") != "" {
		env = append(env, "NO_COLOR=1")
	}
	return env
}

// Is reports whether somebody looks at out.
func Is(out io.Writer) bool {
	f, ok := out.(term.File)
	return ok && term.IsTerminal(f.Fd())
}

// cursorMoves reports whether out is a terminal on which a line can be overwritten.
func cursorMoves(out io.Writer) bool {
	return Is(out) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// columns are how many a line of a terminal has.
func columns(out io.Writer) int {
	const usual = 80
	if f, ok := out.(term.File); ok {
		if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
			return width
		}
	}
	return usual
}
