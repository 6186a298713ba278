// Package get is the commands that show resources: get, with --watch, and describe.
//
// In: kinds, names, selectors or files, and a datastore. Out: tables and documents (see
// show).
package get

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.getCmd(), c.describeCmd()}
}
