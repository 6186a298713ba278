package resources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

func (c *command) editCmd() *cobra.Command {
	var namespace string
	var dry dryRun
	cmd := &cobra.Command{
		Use:   "edit KIND NAME | KIND/NAME",
		Short: "Edit a resource in your editor",
		Long: `Open the stored document of a resource in $VISUAL or $EDITOR (vi without), as
YAML and whole: also what this version does not know is there, and stays if you
leave it. When the editor ends, the change is checked and written; if something
is wrong in it, the editor opens again with the reason on top. An unchanged file
ends the command. If somebody else has changed the resource in the meantime
nothing is written, and your text is kept in a file.

Exit code: 0 written or nothing to do, 1 not written, 2 usage.`,
		Example: "  twill edit np web -n prod\n  EDITOR='code --wait' twill edit felixconfiguration default",
		Args:    oneResource("edit"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := namedRef(cmd, args, namespace)
			if err != nil {
				return err
			}
			if err := dry.check("edit"); err != nil {
				return err
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				return c.edit(ctx, s, ref, dry)
			})
		},
		ValidArgsFunction: show.Complete(&c.Conn).One,
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the resource")
	dry.addFlag(cmd)
	c.out.As.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, false)
}

func (c *command) edit(ctx context.Context, s datastore.Store, ref api.Ref, dry dryRun) error {
	u, err := resources.FindStored(ctx, s, ref)
	if errors.Is(err, datastore.ErrNotFound) {
		err = resources.Rewrite{Ref: ref}.Missing()
		if missing := (*resources.MissingError)(nil); errors.As(err, &missing) {
			err = show.Elsewhere(ctx, s, ref, err)
		}
		return err
	}
	if err != nil {
		return err
	}
	doc, err := resources.UserDoc(u)
	if err != nil {
		return fmt.Errorf("%w; delete it and create it again", err)
	}
	text, err := console.Render("yaml", doc)
	if err != nil {
		return err
	}
	name, err := editFile(ref, text)
	if err != nil {
		return err
	}
	err = c.editUntilGood(ctx, s, &editing{ref: ref, file: name, before: text, seen: u.Revision, dry: dry})
	if err != nil {
		return fmt.Errorf("%w\nYour text is in %s", err, name)
	}
	return os.Remove(name)
}

// editing is one resource in an editor.
type editing struct {
	ref    api.Ref
	file   string
	before []byte       // what the editor had last, without remarks
	seen   api.Revision // the revision that was opened
	dry    dryRun
}

// editFile makes the file for the editor, which only the user may read.
func editFile(ref api.Ref, text []byte) (string, error) {
	f, err := os.CreateTemp("", "twill-"+strings.ReplaceAll(resources.Short(ref), "/", "-")+"-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	return f.Name(), errors.Join(err, f.Close())
}

func (c *command) editUntilGood(ctx context.Context, s datastore.Store, e *editing) error {
	wrong := error(nil)
	for {
		if err := c.openEditor(ctx, e.file); err != nil {
			return err
		}
		text, err := console.ReadFile(e.file)
		if err != nil {
			return err
		}
		text = withoutRemarks(text)
		if len(bytes.TrimSpace(text)) == 0 || bytes.Equal(text, e.before) {
			if wrong != nil {
				return wrong
			}
			fmt.Fprintf(c.Stdio.Err, "twill: nothing changed, nothing written\n")
			return nil
		}
		done, err := resources.Rewriting(ctx, e.dry.on(s), resources.Rewrite{Ref: e.ref, What: "edited", Edit: e.parse(text)})
		var stale *resources.StaleError
		switch {
		case err == nil:
			c.warnNew(e.ref, done)
			return c.say(e.ref, done, e.dry)
		case errors.As(err, &stale) || conn.IsUnreachable(err):
			return err
		}
		wrong, e.before = err, text
		if err := os.WriteFile(e.file, append(remarks(err), text...), 0o600); err != nil {
			return err
		}
	}
}

// parse reads what the editor left. It always is for the revision that was opened.
func (e *editing) parse(text []byte) func(any) (any, error) {
	return func(any) (any, error) {
		raw, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, fmt.Errorf("not YAML: %w", err)
		}
		doc, err := resources.Tree(raw)
		if err != nil {
			return nil, err
		}
		if top, ok := doc.(map[string]any); ok {
			if meta, ok := top["metadata"].(map[string]any); ok {
				meta["resourceVersion"] = fmt.Sprint(e.seen)
			}
		}
		return doc, nil
	}
}

const Remark = "#! "

// remarks are the lines on top of a file that is opened again.
func remarks(err error) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(err.Error()) {
		b.WriteString(Remark + strings.TrimRight(line, "\n") + "\n")
	}
	b.WriteString(Remark + "Correct it, or leave without a change to give up.\n")
	return b.Bytes()
}

func withoutRemarks(text []byte) []byte {
	for bytes.HasPrefix(text, []byte(Remark)) {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

// openEditor runs the user's editor, which may be a command with arguments.
func (c *command) openEditor(ctx context.Context, file string) error {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", file) // as git and kubectl run it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdio.In, c.Stdio.Out, c.Stdio.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("editor %q: %w; set VISUAL or EDITOR to one that works", editor, err)
	}
	return nil
}
