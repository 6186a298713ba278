// Package ipam is `twill ipam`: who has which address, what is leaked, and its release.
//
// In: arguments and a datastore. Out: tables and documents.
package ipam

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.ipamCmd()}
}
