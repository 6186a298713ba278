package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/resources/migration"
)

func (c *command) datastoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "datastore",
		Short:   "Lock, export and import a whole datastore",
		GroupID: "resources",
		RunE:    console.SubcommandWanted,
		Args:    cobra.ArbitraryArgs,
	}
	parts := func() []*cobra.Command {
		return []*cobra.Command{c.importCmd(), c.lockCmd(true), c.lockCmd(false)}
	}
	migrate := &cobra.Command{
		Use: "migrate", Short: "The same in calicoctl's steps and form of file", RunE: console.SubcommandWanted, Args: cobra.ArbitraryArgs,
	}
	for _, p := range parts() {
		p.Example = strings.ReplaceAll(p.Example, "twill datastore ", "twill datastore migrate ")
		migrate.AddCommand(p)
	}
	migrate.AddCommand(c.migrateExportCmd())
	cmd.AddCommand(c.exportCmd())
	cmd.AddCommand(parts()...)
	cmd.AddCommand(migrate, c.policyNamesCmd(), c.mirrorCmd())
	return cmd
}

func (c *command) lockCmd(lock bool) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "unlock",
		Short: "Let agents and plugins work with the datastore again",
		Long: `Set datastoreReady of clusterinformation/default to true; one that is missing is
made. Agents follow the datastore again: what it lacks goes from the kernels, so
put its content back first if it was lost.

Exit code: 0 it is unlocked, 1 it could not be done, 2 usage.`,
		Example: "  twill datastore unlock",
	}
	if lock {
		cmd.Use, cmd.Short, cmd.Example = "lock", "Freeze the cluster while the datastore is worked on", "  twill datastore lock"
		cmd.Long = `Set datastoreReady of clusterinformation/default to false. Agents keep what is in
the kernel and change nothing, until "twill datastore unlock", also if the
datastore is emptied or lost meanwhile.

Exit code: 0 it is locked, 1 it could not be done, 2 usage.`
	}
	cmd.Args = console.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
			done, err := setReady(ctx, s, !lock)
			if err != nil {
				return err
			}
			already := done.What == "unchanged"
			return c.Answer(output, console.Answer{
				Doc: map[string]any{"name": "default", "locked": lock, "already": already}, Name: ".name", Kind: "clusterinformation",
				Table: func(w io.Writer, _ bool) error {
					_, err := fmt.Fprintf(w, "datastore %sed%s\n", cmd.Name(), map[bool]string{true: " already"}[already])
					return err
				},
			})
		})
	}
	output.AddFlag(cmd)
	return cmd
}

// setReady writes datastoreReady; the ClusterInformation is made if it is missing.
func setReady(ctx context.Context, s datastore.Store, ready bool) (resources.Written, error) {
	done, err := resources.Rewriting(ctx, s, resources.Rewrite{Ref: resources.ClusterInfo, What: "configured", Edit: func(doc any) (any, error) {
		return resources.MergePatch(doc, map[string]any{"spec": map[string]any{"datastoreReady": ready}}), nil
	}})
	var gone *resources.MissingError
	if !errors.As(err, &gone) {
		return done, err
	}
	info := resources.NewCluster()
	info.Spec.DatastoreReady = &ready
	return resources.CreateNew(ctx, s, info)
}

func (c *command) exportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the whole datastore to standard output",
		Long: `Write everything below /calico/ to standard output as it was at one moment, a
key in each line, for "twill datastore import". Kinds that this version does not
know, addresses in use, everything is there; only the status of running agents
is not. The last line says how many keys there are, so that a file which was cut
off is known. To move a cluster, lock the datastore first, so that nothing
changes between export and import.

Exit code: 0 complete, 1 it is not, 2 usage.`,
		Example: "  twill datastore lock\n  twill datastore export > cluster.jsonl",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.exportAll(ctx, s)
			})
		},
	}
}

// readAll is all that a datastore holds.
func (c *command) readAll(ctx context.Context, s datastore.Store) (datastore.Snapshot, error) {
	_, read := c.Working("reading the datastore", 0)
	defer read()
	return s.List(ctx, api.Root)
}

// lastLine ends an export: without it the file was cut off.
type lastLine struct {
	Keys     int    `json:"keys"`
	Revision string `json:"revision"` // of the datastore that was read
}

func (c *command) exportAll(ctx context.Context, s datastore.Store) error {
	snap, err := c.readAll(ctx, s)
	if err != nil {
		return err
	}
	p, end := c.Working("exported", len(snap.Items))
	defer end()
	n := 0
	out := bufio.NewWriter(c.Stdio.Out)
	enc := json.NewEncoder(out)
	for _, u := range snap.Sorted() {
		p.Step()
		if migration.IsTransient(u.Key) {
			continue
		}
		if err := enc.Encode(migration.Entry{Key: u.Key, Value: u.Value}); err != nil {
			return err
		}
		n++
	}
	if err := enc.Encode(lastLine{Keys: n, Revision: fmt.Sprint(snap.Position)}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.Stdio.Err, "twill: %s exported, as of revision %s\n", keys(n), snap.Position)
	return nil
}

func keys(n int) string { return console.Count(n, "key") }
