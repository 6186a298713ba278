package resources

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// writing is one of the commands that bring files into the datastore.
type writing struct {
	verb       string // create, replace or apply
	did        string // what has become of them, for progress
	files      manifests.Files
	dry        dryRun
	skipExists bool
	wait       waiting
	write      func(ctx context.Context, s datastore.Store, r api.Resource) (resources.Written, error)
}

func (c *command) applyCmd() *cobra.Command {
	return c.writeCmd(&writing{verb: "apply", did: "applied", write: resources.Apply}, &cobra.Command{
		Short: "Create or change resources from files",
		Long: `Create the resources in files, directories or standard input, or change them to
be so. All files are read and checked first; if one resource is wrong, nothing
is written. What names no namespace is of that which -n says; what names another
is refused. A change is made on the stored document, so that fields which
another version wrote stay. With a metadata.resourceVersion, as "twill get -o
yaml" prints it, a resource that exists is changed only if nobody has changed it
since; without one it is changed whatever it is. What is as the files say already
is not written: its revision stays, and no agent is woken. Fields that Calico has
and that have no effect here are stored, and warned of on standard error; with
--strict they are errors.

Exit code: 0 all is as the files say, 1 something is wrong or has changed,
2 usage.`,
		Example: "  twill apply -f policies/\n  twill apply -f web.yaml -n demo\n  twill apply -f policies/ --dry-run\n  kubectl get … -o yaml | twill apply -f -",
	})
}

func (c *command) createCmd() *cobra.Command {
	w := &writing{verb: "create", did: "created", write: resources.Create}
	cmd := c.writeCmd(w, &cobra.Command{
		Short: "Create resources from files that must not exist yet",
		Long: `Create the resources in files, directories or standard input. If one of them
exists already, or is wrong, nothing is written. What names no namespace is of
that which -n says; what names another is refused.

Exit code: 0 all were created, 1 something exists or is wrong, 2 usage.`,
		Example: "  twill create -f pool.yaml\n  twill create -f policies/ --skip-exists",
	})
	cmd.Flags().BoolVar(&w.skipExists, "skip-exists", false, "leave alone what exists already")
	return cmd
}

func (c *command) replaceCmd() *cobra.Command {
	return c.writeCmd(&writing{verb: "replace", did: "replaced", write: resources.Replace}, &cobra.Command{
		Short: "Replace resources from files that must exist",
		Long: `Replace resources by those in files, directories or standard input. If one of
them does not exist, or is wrong, nothing is written. What names no namespace is
of that which -n says; what names another is refused. If the file has a
metadata.resourceVersion, as "twill get -o yaml" prints it, the resource is
replaced only if nobody has changed it since. Fields which another version
wrote stay.

Exit code: 0 all were replaced, 1 something is missing, changed or wrong,
2 usage.`,
		Example: "  twill get np web -n prod -o yaml > web.yaml\n  vi web.yaml\n  twill replace -f web.yaml",
	})
}

// writeCmd fills in what the three have in common.
func (c *command) writeCmd(w *writing, cmd *cobra.Command) *cobra.Command {
	cmd.Use = w.verb + " -f FILE…"
	cmd.Args = console.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := w.dry.check(w.verb); err != nil {
			return err
		}
		w.files.ReadNamespace(cmd)
		ms, err := manifests.Load(c.Stdio, w.files)
		if w.files.Skips(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := manifests.WarnFields(c.Stdio, ms, w.files); err != nil {
			return err
		}
		ms = resources.InOrder(ms)
		if w.dry == dryClient {
			if err := manifests.WarnInterfaces(cmd.Context(), c.Stdio, nil, ms); err != nil {
				return err
			}
			for _, m := range ms {
				key, err1 := api.Key(m.Resource)
				value, err2 := api.EncodeStored(m.Resource)
				if err := cmp.Or(err1, err2, c.row(api.RefOf(m.Resource), api.Update{Key: key, Value: value}, "is valid (dry run, datastore not asked)")); err != nil {
					return err
				}
			}
			return nil
		}
		if w.wait.on && w.dry.active() {
			return console.Usage("%s: --wait and --dry-run: nothing is written that could come into force", w.verb)
		}
		return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
			return c.writeAll(ctx, w.dry.on(s), ms, w)
		})
	}
	w.wait.addFlags(cmd)
	w.files.AddFlags(cmd)
	w.files.AddStrict(cmd)
	w.files.AddNamespace(cmd)
	w.dry.addFlag(cmd)
	c.out.As.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}

func (c *command) writeAll(ctx context.Context, s datastore.Store, ms []resources.Manifest, w *writing) error {
	written := map[string]api.Ref{}
	err := c.writeEach(ctx, s, ms, w, func(ref api.Ref, done resources.Written) error {
		written[done.Now.Key] = ref
		return c.say(ref, done, w.dry)
	})
	if err != nil || !w.wait.on {
		return err
	}
	return c.awaitRealised(ctx, s, written, w.wait.timeout)
}

// writeEach writes resources in their order, if nothing stands against any of them, and hands each on with what became of it.
func (c *command) writeEach(ctx context.Context, s datastore.Store, ms []resources.Manifest, w *writing, done func(api.Ref, resources.Written) error) error {
	if err := errors.Join(resources.CheckTiers(ctx, s, ms), resources.CheckPools(ctx, s, ms)); err != nil {
		return err
	}
	if err := errors.Join(w.checkPresence(ctx, s, ms), manifests.WarnInterfaces(ctx, c.Stdio, s, ms)); err != nil {
		return err
	}
	if !w.dry.active() {
		defer resources.EnsureWith(ctx, s, c.Log()) // after it: what it makes may be in the files
	}
	p, end := c.Working(w.did, len(ms))
	defer end()
	for i, m := range ms {
		ref := api.RefOf(m.Resource)
		wrote, err := w.write(ctx, s, m.Resource)
		var there *resources.ExistsError
		if w.skipExists && errors.As(err, &there) {
			wrote, err = resources.Written{What: "exists already, skipped"}, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w%s", inWhere(m.File, ref, err), err, soFar(i, len(ms), w.did))
		}
		if err := done(ref, wrote); err != nil {
			return err
		}
		p.Step()
	}
	return nil
}

// inWhere is file and resource, or the file alone if the error names the resource.
func inWhere(file string, ref api.Ref, err error) string {
	var there *resources.ExistsError
	var gone *resources.MissingError
	var stale *resources.StaleError
	if errors.As(err, &there) || errors.As(err, &gone) || errors.As(err, &stale) {
		return file
	}
	return file + ": " + resources.Short(ref)
}

func soFar(done, all int, did string) string {
	if done == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of %s were %s before this; the rest were not", done, console.Count(all, "resource"), did)
}

// say prints what became of a resource; of a dry run also the fields that would change.
func (c *command) say(ref api.Ref, done resources.Written, dry dryRun) error {
	what := done.What
	for _, l := range done.Left {
		fmt.Fprintf(c.Stdio.Err, "warning: %s: %s stays %s: the datastore has it from elsewhere, as from a pod or a node of Kubernetes; change it there\n",
			resources.Short(ref), l.Path, resources.Brief(l.Was))
	}
	if !dry.active() {
		return c.row(ref, done.Now, what)
	}
	what += " (dry run)"
	if cs := done.Changes(); done.Was.Value != nil && len(cs) > 0 {
		what += ": " + resources.ListChanges(cs)
	}
	return c.row(ref, done.Now, what)
}

// row prints a resource of which something became: the line for people, else the document as it is stored now, or as little of it as
// there is.
func (c *command) row(ref api.Ref, now api.Update, what string) error {
	c.out.To = c.Stdio
	if c.out.As.Format.Name == "name" {
		fmt.Fprintln(c.Out, resources.Short(ref))
		return nil
	}
	doc, err := resources.UserDoc(now)
	if now.Value == nil || err != nil {
		f := show.Found{Ref: ref}
		return c.out.Row(f.Tree(), resources.Short(ref)+" "+what+"\n")
	}
	return c.out.Row(json.RawMessage(doc), resources.Short(ref)+" "+what+"\n")
}

// checkPresence refuses what is there and must not be, or the other way round,
// before anything is written.
func (w *writing) checkPresence(ctx context.Context, s datastore.Store, ms []resources.Manifest) error {
	if w.skipExists {
		return nil
	}
	var wrong []error
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		if w.verb == "apply" && m.Resource.Meta().ResourceVersion == "" {
			continue
		}
		if resources.BuiltIn(ref) {
			continue
		}
		u, err := resources.FindStored(ctx, s, ref)
		switch missing := errors.Is(err, datastore.ErrNotFound); {
		case w.verb == "create" && err == nil:
			err = &resources.ExistsError{Ref: ref}
		case w.verb != "replace" && missing: // apply: a file from another cluster has a revision, too
			err = nil
		case missing:
			err = &resources.MissingError{Ref: ref}
		case err == nil:
			err = resources.CheckRevision(ref, u, m.Resource.Meta().ResourceVersion)
		case conn.IsUnreachable(err):
			return err
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", inWhere(m.File, ref, err), err))
		}
	}
	return console.Few(wrong)
}

// warnNew says which fields that have no effect are in a stored resource now and were not before.
func (c *command) warnNew(ref api.Ref, done resources.Written) {
	was, err1 := api.DecodeStored(done.Was)
	now, err2 := api.DecodeStored(done.Now)
	if err2 != nil {
		return
	}
	for _, p := range now.Problems {
		if !p.NoEffect || err1 == nil && slices.ContainsFunc(was.Problems, func(q api.Problem) bool { return q.Field == p.Field && q.Reason == p.Reason }) {
			continue
		}
		fmt.Fprintf(c.Stdio.Err, "warning: %s: %s: %s\n", resources.Short(ref), p.Field, p.Reason)
	}
}
