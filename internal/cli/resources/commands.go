// Package resources is the commands that change resources, or say what that would do:
// apply, diff, create, replace, patch, label, edit, delete, validate, translate.
//
// In: arguments, files and a datastore. Out: a line for each resource that was changed,
// or its document, and an error that names file and field.
package resources

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
)

type command struct {
	*conn.Env
	out console.Stream // of the verbs that write: a row for each resource, as -o of the one that runs says
}

// Translate is the command that says what Kubernetes' objects mean.
func Translate(e *conn.Env) *cobra.Command { return (&command{Env: e}).translateCmd() }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{Env: e}
	return []*cobra.Command{c.applyCmd(), c.diffCmd(), c.createCmd(), c.replaceCmd(), c.patchCmd(), c.labelCmd(), c.editCmd(), c.deleteCmd(), c.validateCmd()}
}
