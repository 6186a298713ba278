package resources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

// differs is the exit code of diff where apply would change something, as diff(1) and kubectl have it.
const differs = 1

func (c *command) diffCmd() *cobra.Command {
	var files manifests.Files
	var output console.Output
	cmd := &cobra.Command{
		Use:   "diff -f FILE…",
		Short: "Show what apply would change",
		Long: `Show what "twill apply" of the same files would change, as a unified diff of each
resource as it is stored and as it would be. Files are read, checked and completed
as apply does it, with the datastore asked and nothing written: what apply refuses
is an error here.

With -o json or yaml, a list of changes: resource, what would become of it, its
fields with what they are and would be, and the documents before and after.

Exit code: 0 nothing would change, 1 something would, 2 usage, or it cannot be said.`,
		Example: "  twill diff -f policies/ -R\n  twill diff -f web.yaml -n demo -o json\n  twill diff -f policies/ || twill apply -f policies/",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files.ReadNamespace(cmd)
			found, err := c.diff(cmd.Context(), files)
			if err == nil {
				err = c.Answer(output, console.Answer{Doc: found, Name: ".resource", Table: func(w io.Writer, _ bool) error { return printDiff(w, found) }})
			}
			var exit console.Exit
			switch {
			case errors.As(err, &exit):
				return err
			case err != nil: // 1 is an answer
				return console.Exit{Code: 2, Msg: err.Error()}
			case len(found) > 0:
				return console.Exit{Code: differs}
			}
			return nil
		},
	}
	files.AddFlags(cmd)
	files.AddStrict(cmd)
	files.AddNamespace(cmd)
	output.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}

// difference is a resource that apply would change.
type difference struct {
	Resource string          `json:"resource"` // kind/namespace/name
	What     string          `json:"what"`     // created or configured
	Changes  []fieldChange   `json:"changes"`
	Before   json.RawMessage `json:"before,omitempty"` // absent: it does not exist
	After    json.RawMessage `json:"after"`
}

// fieldChange is a field that differs; what is absent is null.
type fieldChange struct {
	Path string `json:"path"`
	Was  any    `json:"was"`
	Now  any    `json:"now"`
}

// diff finds what apply would change.
func (c *command) diff(ctx context.Context, files manifests.Files) (out []difference, err error) {
	ms, err := manifests.Load(c.Stdio, files)
	if err != nil {
		if files.Skips(err) {
			return nil, nil
		}
		return nil, err
	}
	if err := manifests.WarnFields(c.Stdio, ms, files); err != nil {
		return nil, err
	}
	ms = resources.InOrder(ms)
	err = c.Conn.Long(ctx, func(ctx context.Context, s datastore.Store) error {
		s = dryServer.on(s)
		w := &writing{verb: "apply", did: "compared", dry: dryServer, write: resources.Apply}
		return c.writeEach(ctx, s, ms, w, func(ref api.Ref, done resources.Written) error {
			if done.What == "unchanged" {
				return nil
			}
			d, err := differenceOf(ref, done)
			out = append(out, d)
			return err
		})
	})
	return out, err
}

func differenceOf(ref api.Ref, done resources.Written) (d difference, err error) {
	d = difference{Resource: resources.Short(ref), What: done.What, Changes: []fieldChange{}}
	done.Was.Revision, done.Now.Revision = api.Revision{}, api.Revision{}
	var created []string // of a new resource, what nobody can know before it is there
	if done.Was.Value == nil {
		created = []string{"uid", "creationTimestamp"}
	} else if d.Before, err = resources.UserDoc(done.Was); err != nil {
		return d, err
	}
	if d.After, err = resources.UserDoc(done.Now); err != nil {
		return d, err
	}
	d.After, err = resources.WithMetadata(d.After, func(meta map[string]json.RawMessage) {
		for _, name := range created {
			delete(meta, name)
		}
	})
	if d.Before == nil {
		return d, err
	}
	for _, ch := range done.Changes() {
		d.Changes = append(d.Changes, fieldChange{ch.Path, ch.Was, ch.Now})
	}
	return d, err
}

// printDiff writes changes as patch(1) takes them, with colours on a terminal.
func printDiff(w io.Writer, found []difference) error {
	for _, d := range found {
		before, err1 := asYAML(d.Before)
		after, err2 := asYAML(d.After)
		if err := cmp.Or(err1, err2); err != nil {
			return err
		}
		old := "stored/" + d.Resource
		if d.Before == nil {
			old = "/dev/null"
		}
		for line := range strings.Lines(udiff.Unified(old, "applied/"+d.Resource, before, after)) {
			if err := terminal.Fprint(w, coloured(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

func asYAML(doc []byte) (string, error) {
	if doc == nil {
		return "", nil
	}
	text, err := yaml.JSONToYAML(doc)
	return string(text), err
}

func coloured(line string) string {
	text := strings.TrimSuffix(line, "\n")
	switch {
	case strings.HasPrefix(text, "---"), strings.HasPrefix(text, "+++"), strings.HasPrefix(text, "@@"):
		text = terminal.Faint.Render(text)
	case strings.HasPrefix(text, "+"):
		text = terminal.Allow.Render(text)
	case strings.HasPrefix(text, "-"):
		text = terminal.Deny.Render(text)
	}
	return fmt.Sprintln(text)
}
