// Package lab is `twill lab`: hosts and workloads on this machine, and scenarios.
//
// In: arguments. Out: what internal/lab shows and measures.
package lab

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.labCmd()}
}
