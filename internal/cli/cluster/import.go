package cluster

import (
	"bytes"
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
	"github.com/twillnet/twill/internal/resources/migration"
	"github.com/twillnet/twill/internal/terminal"
)

// importing is what import was asked to do.
type importing struct {
	file   string
	dry    bool
	output console.Output
}

func (c *command) importCmd() *cobra.Command {
	var in importing
	cmd := &cobra.Command{
		Use:   "import -f FILE",
		Short: "Put an export into a datastore",
		Long: `Write an export into another datastore: what "twill datastore export" has written, or
"twill datastore migrate export", or upstream's "calicoctl datastore migrate export"; which of
them it is, is seen. Before anything is written the whole file is read, and all that stands in
the way is named: what the datastore would refuse, what is there already and says something
else, and what is there and not in the file (but a ClusterInformation and the built-in tiers).

While the import runs the datastore is locked, and stays so until "twill datastore unlock":
check what is there before agents act on it. At the end all is read again and compared, and
addresses are checked as "twill ipam check" does. After a failure, import again: what is there
and equal is left as it is.

With Kubernetes as the datastore, what is made of Kubernetes' own objects is left out:
pods, namespaces, service accounts, policies. Nodes must be there; what Calico has of them
becomes annotations.

Exit code: 0 complete, 1 it is not, 2 usage.`,
		Example: `  twill datastore import -f cluster.jsonl --dry-run --etcd http://192.0.2.10:2379
  DATASTORE_TYPE=kubernetes twill datastore import -f cluster.jsonl
  DATASTORE_TYPE=kubernetes twill datastore unlock`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.file == "" {
				return console.Usage("datastore import: no file given: name it with -f, or - for standard input")
			}
			es, err := c.readExport(in.file)
			if err != nil {
				return err
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error { return c.importAll(ctx, s, es, in) })
		},
	}
	in.output.AddFlag(cmd)
	cmd.Flags().StringVarP(&in.file, "filename", "f", "", "an export, or - for standard input")
	cmd.Flags().BoolVar(&in.dry, "dry-run", false, "only say what would be written, and what stands in the way")
	return cmd
}

func (c *command) readExport(file string) ([]migration.Entry, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(c.Stdio.In)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, err
	}
	if !migration.IsUpstream(data) {
		return readLines(file, data)
	}
	es, err := migration.FromUpstream(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return es, nil
}

// readLines reads what `twill datastore export` writes, to its last line.
func readLines(file string, data []byte) ([]migration.Entry, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var out []migration.Entry
	var last *int // how many keys the last line says
	seen := map[string]bool{}
	for {
		var line struct {
			migration.Entry
			Keys     *int   `json:"keys"`
			Revision string `json:"revision"`
		}
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case err != nil:
		case last != nil:
			err = errors.New("something follows the line that ends the export")
		case line.Keys != nil && line.Key == "":
			last = line.Keys
			continue
		case !strings.HasPrefix(line.Key, api.Root) || seen[line.Key] || len(line.Value) > api.MaxValue:
			err = fmt.Errorf("key %q is not below %s, or is there twice, or its value is too large", line.Key, api.Root)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w; want what `twill datastore export` writes", file, len(out)+1, err)
		}
		seen[line.Key] = true
		out = append(out, line.Entry)
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("%s: holds no key", file)
	case last == nil:
		return nil, fmt.Errorf("%s: has no line that ends it, so it was cut off after %s, or is of a version that wrote none: if you know that it is complete, append the line {\"keys\":%d}", file, keys(len(out)), len(out))
	case *last != len(out):
		return nil, fmt.Errorf("%s: has %s, and its last line says that there were %d: it is not complete", file, keys(len(out)), *last)
	}
	return out, nil
}

func (c *command) importAll(ctx context.Context, s datastore.Store, es []migration.Entry, in importing) error {
	p, end := c.Working("checked", len(es))
	plan, err := migration.Prepare(ctx, s, es, p.Step)
	end()
	if err != nil {
		return err
	}
	if !in.dry {
		if _, err := setReady(ctx, s, false); err != nil { // before anything that an agent might act on
			return err
		}
		p, end := c.Working("imported", len(es))
		err := plan.Carry(ctx, s, p.Step)
		end()
		if err != nil {
			return err
		}
		if err := c.verify(ctx, s, es); err != nil {
			return err
		}
	}
	for _, step := range plan {
		switch {
		case step.Note != "" && step.What == migration.LeftOut:
			fmt.Fprintf(c.Stdio.Err, "twill: %s is left out: %s\n", step.Name(), step.Note)
		case step.Note != "":
			fmt.Fprintf(c.Stdio.Err, "twill: %s %s\n", step.Name(), step.Note)
		}
	}
	return c.Answer(in.output, console.Answer{Doc: plan, Name: ".key", Table: func(w io.Writer, wide bool) error { return sayImported(w, plan, in.dry, wide) }})
}

// verify reads again what was imported. That addresses have problems is no failure: they may have come with the export.
func (c *command) verify(ctx context.Context, s datastore.Store, es []migration.Entry) error {
	p, end := c.Working("verified", len(es))
	v, err := migration.Verify(ctx, s, es, p.Step)
	end()
	if err == nil && v.Addresses > 0 {
		fmt.Fprintf(c.Stdio.Err, "twill: address management has %s; twill ipam check names what it is\n", console.Count(v.Addresses, "problem"))
	}
	return err
}

// sayImported says what became of an import; wide: of each key.
func sayImported(w io.Writer, plan migration.Plan, dry, wide bool) error {
	if wide {
		t := terminal.NewTable(w, "WHAT", "KEY")
		for _, s := range plan {
			t.Row(s.What, s.Key)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	text := keys(plan.Count(migration.Created, migration.Updated))
	if dry {
		text += " would be"
	}
	text += " imported"
	if n := plan.Count(migration.Unchanged); n > 0 {
		text += fmt.Sprintf(", %d %s there already", n, map[bool]string{true: "is", false: "are"}[n == 1])
	}
	if n := plan.Count(migration.LeftOut); n > 0 {
		text += fmt.Sprintf(", %d left out, which Kubernetes has itself", n)
	}
	if dry {
		_, err := fmt.Fprintln(w, text+"; nothing is written")
		return err
	}
	_, err := fmt.Fprintln(w, text+", and read again: it is as exported; the datastore is locked: twill datastore unlock starts the cluster")
	return err
}
