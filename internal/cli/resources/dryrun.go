package resources

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// dryRun is the value of --dry-run.
type dryRun string

const (
	dryNone   dryRun = "none"
	dryClient dryRun = "client" // the datastore is not asked
	dryServer dryRun = "server" // it is asked, and nothing is written
)

func (d *dryRun) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(d), "dry-run", string(dryNone), "say what would be done, and write nothing: server compares with the datastore, client does not ask it")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(dryServer)
}

func (d dryRun) check(verb string) error {
	switch d {
	case dryNone, dryClient, dryServer:
		return nil
	}
	return console.Usage("%s: --dry-run=%s: want server, client or none", verb, d)
}

func (d dryRun) active() bool { return d == dryClient || d == dryServer }

// on is the store to work on.
func (d dryRun) on(s datastore.Store) datastore.Store {
	if !d.active() {
		return s
	}
	return resources.Dry(s)
}
