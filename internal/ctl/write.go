package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// writing is one of the commands that bring files into the datastore.
type writing struct {
	verb       string // create, replace or apply
	did        string // what has become of them, for progress
	files      fileOptions
	dry        dryRun
	skipExists bool
	write      func(ctx context.Context, s datastore.Store, r api.Resource) (written, error)
}

// written is what became of one resource.
type written struct {
	what     string     // created, configured, replaced, unchanged, labeled …
	was, now api.Update // what was stored and what is; was has no value if nothing was
}

func (c *command) applyCmd() *cobra.Command {
	return c.writeCmd(&writing{verb: "apply", did: "applied", write: applyOnce}, &cobra.Command{
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
	w := &writing{verb: "create", did: "created", write: createOnce}
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
	return c.writeCmd(&writing{verb: "replace", did: "replaced", write: replaceOnce}, &cobra.Command{
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
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := w.dry.check(w.verb); err != nil {
			return err
		}
		w.files.readNamespace(cmd)
		ms, err := c.load(w.files)
		if w.files.skips(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.warnFields(ms, w.files); err != nil {
			return err
		}
		ms = inOrder(ms)
		if w.dry == dryClient {
			if err := c.warnInterfaces(cmd.Context(), nil, ms); err != nil {
				return err
			}
			for _, m := range ms {
				fmt.Fprintf(c.stdio.Out, "%s is valid (dry run, datastore not asked)\n", short(api.RefOf(m.Resource)))
			}
			return nil
		}
		return c.conn.long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
			return c.writeAll(ctx, w.dry.on(s), ms, w)
		})
	}
	w.files.addFlags(cmd)
	w.files.addStrict(cmd)
	w.files.addNamespace(cmd)
	w.dry.addFlag(cmd)
	c.completeFlags(cmd)
	return cmd
}

func (c *command) writeAll(ctx context.Context, s datastore.Store, ms []manifest, w *writing) error {
	if err := errors.Join(checkTiers(ctx, s, ms), checkPools(ctx, s, ms)); err != nil {
		return err
	}
	if err := errors.Join(w.checkPresence(ctx, s, ms), c.warnInterfaces(ctx, s, ms)); err != nil {
		return err
	}
	if !w.dry.active() {
		defer c.ensureWith(ctx, s) // after it: what it makes may be in the files
	}
	p := c.progress(len(ms), w.did)
	for i, m := range ms {
		ref := api.RefOf(m.Resource)
		done, err := retry(func() (written, error) { return w.write(ctx, s, m.Resource) })
		var there *existsError
		if w.skipExists && errors.As(err, &there) {
			done, err = written{what: "exists already, skipped"}, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w%s", inWhere(m.file, ref, err), err, soFar(i, len(ms), w.did))
		}
		c.say(ref, done, w.dry)
		p.step()
	}
	return nil
}

// inWhere is file and resource, or the file alone if the error names the resource.
func inWhere(file string, ref api.Ref, err error) string {
	var there *existsError
	var gone *missingError
	var stale *staleError
	if errors.As(err, &there) || errors.As(err, &gone) || errors.As(err, &stale) {
		return file
	}
	return file + ": " + short(ref)
}

func soFar(done, all int, did string) string {
	if done == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d of %s were %s before this; the rest were not", done, count(all, "resource"), did)
}

// say prints what became of a resource; of a dry run also the fields that would change.
func (c *command) say(ref api.Ref, done written, dry dryRun) {
	if !dry.active() {
		fmt.Fprintf(c.stdio.Out, "%s %s\n", short(ref), done.what)
		return
	}
	fields := ""
	if cs := done.changes(); done.was.Value != nil && len(cs) > 0 {
		fields = ": " + listChanges(cs)
	}
	fmt.Fprintf(c.stdio.Out, "%s %s (dry run)%s\n", short(ref), done.what, fields)
}

// changes are the fields that differ for users.
func (w written) changes() []change {
	was, err1 := userTree(w.was)
	now, err2 := userTree(w.now)
	if err1 != nil || err2 != nil {
		return nil
	}
	return changes(was, now, "")
}

// userTree is a stored document as users see it, without its revision.
func userTree(u api.Update) (any, error) {
	u.Revision = 0
	doc, err := userDoc(u)
	if err != nil {
		return nil, err
	}
	return tree(doc)
}

// checkPresence refuses what is there and must not be, or the other way round,
// before anything is written.
func (w *writing) checkPresence(ctx context.Context, s datastore.Store, ms []manifest) error {
	if w.skipExists {
		return nil
	}
	var wrong []error
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		if w.verb == "apply" && m.Resource.Meta().ResourceVersion == "" {
			continue
		}
		if builtIn(ref) {
			continue
		}
		u, err := findStored(ctx, s, ref)
		switch missing := errors.Is(err, datastore.ErrNotFound); {
		case w.verb == "create" && err == nil:
			err = &existsError{ref}
		case w.verb != "replace" && missing: // apply: a file from another cluster has a revision, too
			err = nil
		case missing:
			err = &missingError{ref}
		case err == nil:
			err = checkRevision(ref, u, m.Resource.Meta().ResourceVersion)
		case isUnreachable(err):
			return err
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", inWhere(m.file, ref, err), err))
		}
	}
	return few(wrong)
}

// mostErrors bounds how many of one sort are listed.
const mostErrors = 10

// few joins errors; of many it lists the first.
func few(errs []error) error {
	if n := len(errs) - mostErrors; n > 0 {
		errs = append(errs[:mostErrors:mostErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(errs...)
}

// existsError is a resource that was to be created and is there.
type existsError struct{ ref api.Ref }

func (e *existsError) Error() string {
	return short(e.ref) + " exists already; use apply or replace to change it, or --skip-exists to leave it alone"
}

// missingError is a resource that was to be changed and is not there.
type missingError struct{ ref api.Ref }

func (e *missingError) Error() string {
	return short(e.ref) + " does not exist; use create or apply"
}

// staleError is a change to what is no longer as it was seen.
type staleError struct {
	ref  api.Ref
	seen string
	is   int64
}

func (e *staleError) Error() string {
	return fmt.Sprintf("%s was changed by another writer: metadata.resourceVersion is %d now, not %s; get it again and make your change on that, or leave resourceVersion out to overwrite it",
		short(e.ref), e.is, e.seen)
}

// checkRevision refuses a change that was made on another revision than is stored.
func checkRevision(ref api.Ref, u api.Update, seen string) error {
	if seen == "" || seen == strconv.FormatInt(u.Revision, 10) {
		return nil
	}
	return &staleError{ref, seen, u.Revision}
}

// conflictTries is how often a change is made anew when another writer was first.
const conflictTries = 10

func retry(do func() (written, error)) (done written, err error) {
	for range conflictTries {
		if done, err = do(); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) {
			return done, err
		}
	}
	return done, fmt.Errorf("%w, %d times in a row; try again when its other writer is quiet", err, conflictTries)
}

func createOnce(ctx context.Context, s datastore.Store, r api.Resource) (written, error) {
	ref := api.RefOf(r)
	if builtIn(ref) {
		return written{}, &existsError{ref}
	}
	switch _, err := findStored(ctx, s, ref); {
	case err == nil:
		return written{}, &existsError{ref}
	case !errors.Is(err, datastore.ErrNotFound):
		return written{}, err
	}
	return createNew(ctx, s, r)
}

func createNew(ctx context.Context, s datastore.Store, r api.Resource) (written, error) {
	key, err := api.Key(r)
	if err != nil {
		return written{}, err
	}
	api.Prepare(r, uuid.NewString(), time.Now().UTC().Format(time.RFC3339))
	value, err := api.EncodeStored(r)
	if err != nil {
		return written{}, err
	}
	now, err := s.Create(ctx, api.Update{Key: key, Value: value})
	return written{what: "created", now: now}, err
}

func applyOnce(ctx context.Context, s datastore.Store, r api.Resource) (written, error) {
	if builtIn(api.RefOf(r)) {
		return written{what: "unchanged"}, nil
	}
	old, err := findStored(ctx, s, api.RefOf(r))
	if errors.Is(err, datastore.ErrNotFound) {
		return createNew(ctx, s, r)
	}
	if err == nil {
		err = checkRevision(api.RefOf(r), old, r.Meta().ResourceVersion)
	}
	if err != nil {
		return written{}, err
	}
	return mergeInto(ctx, s, old, r, "configured")
}

func replaceOnce(ctx context.Context, s datastore.Store, r api.Resource) (written, error) {
	ref := api.RefOf(r)
	if builtIn(ref) {
		return written{what: "unchanged"}, nil
	}
	old, err := findStored(ctx, s, ref)
	if errors.Is(err, datastore.ErrNotFound) {
		return written{}, &missingError{ref}
	}
	if err == nil {
		err = checkRevision(ref, old, r.Meta().ResourceVersion)
	}
	if err != nil {
		return written{}, err
	}
	return mergeInto(ctx, s, old, r, "replaced")
}

// builtIn reports whether a resource is never stored. What can be written of it is what it is anyway: [api.Validate] refuses the rest.
func builtIn(ref api.Ref) bool {
	return ref == api.Ref{Kind: api.KindProfile, Name: api.ProfileDefaultAllow}
}

// mergeInto makes a stored document say what r says.
func mergeInto(ctx context.Context, s datastore.Store, old api.Update, r api.Resource, what string) (written, error) {
	value, err := api.MergeRaw(old.Value, r)
	if err != nil {
		return written{}, err
	}
	if bytes.Equal(value, old.Value) {
		return written{"unchanged", old, old}, nil
	}
	now, err := s.Update(ctx, api.Update{Key: old.Key, Value: value, Revision: old.Revision})
	return written{what, old, now}, err
}
