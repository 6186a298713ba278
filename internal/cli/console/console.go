// Package console is how every command speaks: its streams, its exit codes, -o,
// colours, progress and counts of things.
//
// In: what a command has to say. Out: text or documents on a stream, errors that carry
// an exit code: 1 wrong, 2 usage.
package console

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Stdio is where a command reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exit is an error with an exit code. An empty message prints nothing.
type Exit struct {
	Code int
	Msg  string
}

func (e Exit) Error() string { return e.Msg }

// Usage marks an error in how a command was called.
func Usage(format string, args ...any) error { return Exit{2, fmt.Sprintf(format, args...)} }

// SubcommandWanted is what a command does that only has subcommands.
func SubcommandWanted(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return Usage("%s: no command %q%s\nRun '%s --help' for those there are.", cmd.CommandPath(), args[0], hint, cmd.CommandPath())
}

func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}
