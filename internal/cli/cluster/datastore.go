package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
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
		return []*cobra.Command{c.exportCmd(), c.importCmd(), c.lockCmd(true), c.lockCmd(false)}
	}
	migrate := &cobra.Command{
		Use: "migrate", Short: "The same commands where calicoctl has them", RunE: console.SubcommandWanted, Args: cobra.ArbitraryArgs,
	}
	for _, p := range parts() {
		p.Example = strings.ReplaceAll(p.Example, "twill datastore ", "twill datastore migrate ")
		migrate.AddCommand(p)
	}
	cmd.AddCommand(parts()...)
	cmd.AddCommand(migrate)
	return cmd
}

func (c *command) lockCmd(lock bool) *cobra.Command {
	var output console.Output
	cmd := &cobra.Command{
		Use:   "unlock",
		Short: "Let agents and plugins work with the datastore again",
		Long: `Set datastoreReady of clusterinformation/default to true. Agents follow the
datastore again.

Exit code: 0 it is unlocked, 1 it could not be done, 2 usage.`,
		Example: "  twill datastore unlock",
	}
	if lock {
		cmd.Use, cmd.Short, cmd.Example = "lock", "Freeze the cluster while the datastore is worked on", "  twill datastore lock"
		cmd.Long = `Set datastoreReady of clusterinformation/default to false. Agents keep what is in
the kernel and change nothing, until "twill datastore unlock".

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

// entry is one line of an export: a key as it is in the datastore.
type entry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // base64: what another version wrote need not be JSON
}

// transient begins the keys that belong to running processes, not to the configuration.
const transient = api.Root + "felix/"

func (c *command) exportCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "export",
		Short: "Write the whole datastore to standard output",
		Long: `Write everything below /calico/ to standard output as it was at one moment, a
key in each line, for "twill datastore import". Kinds that this version does not
know, addresses in use, everything is there; only the status of running agents
is not. To move a cluster, lock the datastore first, so that nothing changes
between export and import.

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

func (c *command) exportAll(ctx context.Context, s datastore.Store) error {
	_, read := c.Working("reading the datastore", 0)
	snap, err := s.List(ctx, api.Root)
	read()
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
		if strings.HasPrefix(u.Key, transient) {
			continue
		}
		if err := enc.Encode(entry{u.Key, u.Value}); err != nil {
			return err
		}
		n++
	}
	fmt.Fprintf(c.Stdio.Err, "twill: %s exported, as of revision %s\n", keys(n), snap.Position)
	return out.Flush()
}

func keys(n int) string { return console.Count(n, "key") }

func (c *command) importCmd() *cobra.Command {
	var file string
	var output console.Output
	cmd := &cobra.Command{
		Use:   "import -f FILE",
		Short: "Fill an empty datastore from an export",
		Long: `Write what "twill datastore export" has written into a datastore that holds
nothing yet but, perhaps, a ClusterInformation. The whole file is read and checked first. While
the import runs the datastore is locked, and stays so until "twill datastore
unlock": check what is there before agents act on it.

Exit code: 0 complete, 1 it is not: empty the datastore and import again,
2 usage.`,
		Example: "  twill datastore import -f cluster.jsonl --etcd http://192.0.2.10:2379\n  twill datastore unlock --etcd http://192.0.2.10:2379",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return console.Usage("datastore import: no file given: name it with -f, or - for standard input")
			}
			es, err := c.readExport(file)
			if err != nil {
				return err
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error { return c.importAll(ctx, s, es, output) })
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "an export, or - for standard input")
	return cmd
}

func (c *command) readExport(file string) ([]entry, error) {
	in := c.Stdio.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	var out []entry
	seen := map[string]bool{}
	for {
		var e entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && (!strings.HasPrefix(e.Key, api.Root) || seen[e.Key] || len(e.Value) > api.MaxValue) {
			err = fmt.Errorf("key %q is not below %s, or is there twice, or its value is too large", e.Key, api.Root)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w; want what `twill datastore export` writes", file, len(out)+1, err)
		}
		seen[e.Key] = true
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: holds no key", file)
	}
	return out, nil
}

func (c *command) importAll(ctx context.Context, s datastore.Store, es []entry, output console.Output) error {
	info, err := resources.ClusterInfo.Key()
	if err != nil {
		return err
	}
	snap, err := s.List(ctx, api.Root)
	if err != nil {
		return err
	}
	for _, u := range snap.Sorted() {
		if u.Key != info && !strings.HasPrefix(u.Key, transient) {
			return fmt.Errorf("the datastore holds %s already; import only into an empty one", u.Key)
		}
	}
	if _, err := setReady(ctx, s, false); err != nil { // before anything that an agent might act on
		return err
	}
	p, end := c.Working("imported", len(es))
	defer end()
	for i, e := range es {
		if e.Key == info {
			err = importInfo(ctx, s, e)
		} else {
			_, err = s.Create(ctx, api.Update{Key: e.Key, Value: e.Value})
		}
		if err != nil {
			return fmt.Errorf("%w\n%d of %s were imported before this; empty the datastore before the next try", err, i, keys(len(es)))
		}
		p.Step()
	}
	return c.Answer(output, console.Answer{Doc: es, Name: ".key", Table: func(w io.Writer, _ bool) error {
		_, err := fmt.Fprintf(w, "%s imported; the datastore is locked: twill datastore unlock starts the cluster\n", keys(len(es)))
		return err
	}})
}

// importInfo takes over the cluster's id, and keeps the datastore locked.
func importInfo(ctx context.Context, s datastore.Store, e entry) error {
	doc, err := resources.Tree(e.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Key, err)
	}
	doc = resources.MergePatch(doc, map[string]any{"spec": map[string]any{"datastoreReady": false}})
	_, err = s.Update(ctx, api.Update{Key: e.Key, Value: resources.InOrderOf(e.Value, doc)})
	return err
}
