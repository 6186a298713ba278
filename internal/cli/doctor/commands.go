// Package doctor is the command that looks at a host, says what is wrong with it or what a take-over from an upstream agent will
// change, and, asked to, removes what such an agent left.
//
// In: the datastore, the agent and the speaker of this host, its kernel and files. Out: findings as a table or a document, and an
// exit code that says whether something fails, or blocks.
package doctor

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.doctorCmd()}
}
