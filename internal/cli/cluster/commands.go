// Package cluster is the commands on a datastore as a whole: version, and datastore
// with lock, unlock, export and import.
//
// In: arguments and a datastore. Out: its version and state; all of its keys, as lines.
package cluster

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.versionCmd(), c.datastoreCmd()}
}
