// Package explain is the commands that answer questions and change nothing: status, why,
// reach, flows, verify, config.
//
// In: a question; the datastore, files, the agent of this host or its kernel. Out:
// the answer as text or a document, and an exit code that says yes or no.
package explain

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.statusCmd(), c.whyCmd(), c.reachCmd(), c.flowsCmd(), c.verifyCmd(), c.configCmd()}
}
