package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/resources/migration"
)

func (c *command) migrateExportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the datastore to standard output in the form of calicoctl's export",
		Long: `Write resources as YAML, the ClusterInformation and the data of address management in the form
of "calicoctl datastore migrate export", which upstream's import into Kubernetes reads, and
"twill datastore import". The datastore must be locked, so that nothing changes meanwhile.

The form has no place for workload endpoints, profiles and copies of Kubernetes' objects, which
Kubernetes has itself; what else is left out is named. Nodes have the names that they have in
Kubernetes (spec.orchRefs), and so has what refers to them. "twill datastore export" leaves
nothing out: for another etcd, or a backup, use that.

Exit code: 0 complete, 1 it is not, 2 usage.`,
		Example: "  twill datastore migrate lock\n  twill datastore migrate export > cluster.yaml",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Conn.Long(cmd.Context(), c.exportUpstream)
		},
	}
}

func (c *command) exportUpstream(ctx context.Context, s datastore.Store) error {
	snap, err := c.readAll(ctx, s)
	if err != nil {
		return err
	}
	if !isLocked(snap) {
		return errors.New("the datastore is not locked, and could change between export and import: twill datastore lock")
	}
	var es []migration.Entry
	for _, u := range snap.Sorted() {
		if !migration.IsTransient(u.Key) {
			es = append(es, migration.Entry{Key: u.Key, Value: u.Value})
		}
	}
	out, err := migration.ToUpstream(es)
	if err != nil {
		return err
	}
	for _, line := range out.Nodes {
		fmt.Fprintf(c.Stdio.Err, "twill: %s\n", line)
	}
	for _, step := range out.LeftOut {
		if step.Note != "" {
			fmt.Fprintf(c.Stdio.Err, "twill: %s is left out: %s\n", step.Name(), step.Note)
		}
	}
	err = out.Write(c.Stdio.Out, func(doc []byte) ([]byte, error) { return console.Render("yaml", doc) })
	if err == nil {
		fmt.Fprintf(c.Stdio.Err, "twill: %s exported, %d left out, as of revision %s\n", keys(len(es)-len(out.LeftOut)), len(out.LeftOut), snap.Position)
	}
	return err
}

// isLocked reports whether the cluster is frozen.
func isLocked(snap datastore.Snapshot) bool {
	key, _ := resources.ClusterInfo.Key() // it is right
	for _, u := range snap.Items {
		if u.Key == key {
			return api.Blank.AfterUpdate(u) == api.Locked
		}
	}
	return false
}
