package calicoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// kubernetesPrefix begins the names of policies that are made of Kubernetes' own.
const kubernetesPrefix = "knp.default."

const kubernetesReason = "kubernetes network policies must be managed through the kubernetes API"

// action is create, apply or replace.
type action struct {
	verb, did string
	// write does it; checked before are validity, tiers and pools.
	write func(context.Context, datastore.Store, api.Resource) (resources.Written, error)
}

func (c *command) create(ctx context.Context) error {
	return c.writeAll(ctx, action{"create", "created", resources.Create})
}

func (c *command) apply(ctx context.Context) error {
	return c.writeAll(ctx, action{"apply", "applied", resources.Apply})
}

func (c *command) replace(ctx context.Context) error {
	return c.writeAll(ctx, action{"replace", "replaced", resources.Replace})
}

// given are the resources that a command is about. Of none it says so.
func (c *command) given() ([]item, error) {
	items, err := c.items()
	if bad := (badFile{}); errors.As(err, &bad) {
		return nil, fmt.Errorf("Failed to execute command: %w", err)
	}
	if err == nil && len(items) == 0 {
		fmt.Fprintln(c.Out, "No resources specified")
	}
	return items, err
}

// writeAll writes what is in the files, one after the other, in their order. What fails does not keep the rest.
func (c *command) writeAll(ctx context.Context, a action) error {
	items, err := c.given()
	if err != nil || len(items) == 0 {
		return err
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		var failed []error
		for _, i := range items {
			err := c.writeOne(ctx, s, &i, a)
			if there := (*existsError)(nil); errors.As(err, &there) && c.args.has("skip-exists") {
				err = nil
			}
			if err != nil {
				failed = append(failed, err)
			}
		}
		if len(failed) < len(items) {
			resources.EnsureBare(ctx, s, c.Log())
		}
		return c.sayWritten(items, failed, a)
	})
}

func (c *command) sayWritten(items []item, failed []error, a action) error {
	of, done, all := single(items), len(items)-len(failed), len(items)
	switch {
	case len(failed) == 0 && of != "":
		fmt.Fprintf(c.Out, "Successfully %s %d '%s' resource(s)\n", a.did, done, of)
	case len(failed) == 0:
		fmt.Fprintf(c.Out, "Successfully %s %d resource(s)\n", a.did, done)
	case done == 0 && all == 1:
		return fmt.Errorf("Failed to %s '%s' resource: %v", a.verb, of, failed)
	case done == 0 && of != "":
		return fmt.Errorf("Failed to %s any '%s' resources: %v", a.verb, of, failed)
	case done == 0:
		return fmt.Errorf("Failed to %s any resources: %v", a.verb, failed)
	default:
		fmt.Fprintf(c.Out, "Partial success: %s %d out of %d %sresources:\n", a.did, done, all, strings.TrimPrefix("'"+of+"' ", "'' "))
		return fmt.Errorf("Hit error: %v", failed)
	}
	return nil
}

// single is the kind of all items; empty: they are of several.
func single(items []item) string {
	for _, i := range items {
		if i.ref.Kind != items[0].ref.Kind {
			return ""
		}
	}
	return items[0].ref.Kind
}

func (c *command) writeOne(ctx context.Context, s datastore.Store, i *item, a action) error {
	if err := c.place(i); err != nil {
		return err
	}
	if err := i.valid(c.warn(i)); err != nil {
		return err
	}
	if err := untouchable(ctx, s, i.ref, a.verb); err != nil {
		return err
	}
	if err := worded(i.ref, fieldsOf(i, resources.CheckTiers(ctx, s, i.manifest()), resources.CheckPools(ctx, s, i.manifest()))); err != nil {
		return err
	}
	done, err := a.write(ctx, s, i.res)
	if err == nil && done.What == "unchanged" && !done.Now.Revision.IsZero() {
		_, err = s.Update(ctx, done.Now) // a write gives a new revision, and scripts count on that
	}
	return worded(i.ref, err)
}

// fieldsOf words errors of checks that name fields.
func fieldsOf(i *item, errs ...error) error {
	err := errors.Join(errs...)
	var all api.FieldErrors
	for _, e := range unjoin(err) {
		var one *api.FieldError
		if !errors.As(e, &one) {
			return err
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return err
	}
	return wording.WrongFields(all, i.raw)
}

// unjoin are the errors of which one was joined.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range many.Unwrap() {
			out = append(out, unjoin(e)...)
		}
		return out
	}
	return []error{err}
}

// untouchable refuses what calicoctl lets nobody write: it is the node's, or Kubernetes'.
func untouchable(ctx context.Context, s datastore.Store, ref api.Ref, verb string) error {
	isPolicy := ref.Kind == api.KindNetworkPolicy && strings.HasPrefix(ref.Name, kubernetesPrefix)
	if ref.Kind != api.KindClusterInformation && !isPolicy {
		return nil
	}
	_, err := resources.FindStored(ctx, s, ref)
	missing := errors.Is(err, datastore.ErrNotFound)
	switch {
	case err != nil && !missing:
		return err
	case verb == "apply" && ref.Kind == api.KindClusterInformation:
		return unsupported("apply", ref.Kind, "resource is readonly")
	case verb == "replace" && missing, verb == "apply" && missing:
		return &goneError{notThere(ref)}
	case ref.Kind == api.KindClusterInformation:
		return unsupported(operations[verb], ref.Kind, "")
	}
	return unsupported(operations[verb], id(ref), kubernetesReason)
}

// operations are how calicoctl calls commands in that message.
var operations = map[string]string{"create": "create or apply", "apply": "apply or replace", "replace": "apply or replace", "delete": "delete"}

// remove is calicoctl delete.
func (c *command) remove(ctx context.Context) error {
	items, err := c.given()
	if err != nil || len(items) == 0 {
		return err
	}
	if items[0].ref.Name == "" && items[0].res == nil && items[0].err == nil {
		return errors.New("resource name may not be empty")
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		var failed []error
		for _, i := range items {
			if err := c.removeOne(ctx, s, &i); err != nil {
				failed = append(failed, err)
			}
		}
		return c.sayRemoved(items, failed)
	})
}

func (c *command) sayRemoved(items []item, failed []error) error {
	of, done := single(items), len(items)-len(failed)
	quotedKind := ""
	if of != "" {
		quotedKind = "'" + of + "' "
	}
	if done > 0 {
		fmt.Fprintf(c.Out, "Successfully deleted %d %sresource(s)\n", done, quotedKind)
	}
	if len(failed) == 0 {
		return nil
	}
	var b strings.Builder
	for _, err := range failed {
		fmt.Fprintf(&b, "Failed to delete %sresource: %v\n", quotedKind, err)
	}
	return errors.New(b.String())
}

// removeOne deletes a resource, and with a node what hangs on it, as calicoctl does, though its agent be alive.
func (c *command) removeOne(ctx context.Context, s datastore.Store, i *item) error {
	if i.err != nil {
		return i.err
	}
	if err := c.place(i); err != nil {
		return err
	}
	if err := untouchable(ctx, s, i.ref, "delete"); err != nil {
		return err
	}
	if err := resources.CheckSeen(ctx, s, i.ref, i.seen); err != nil {
		return worded(i.ref, err)
	}
	err := worded(i.ref, resources.Delete(ctx, s, i.ref, resources.Deletion{Revision: i.seen, Cascade: true, Force: true}))
	if gone := (*goneError)(nil); errors.As(err, &gone) && c.args.has("skip-not-exists") {
		return nil
	}
	return err
}

// named is the one resource that patch and label are about.
func (c *command) named() (item, error) {
	k, err := wording.LookupKind(c.args.word(0))
	if err != nil {
		return item{}, err
	}
	i := item{kind: k, ref: api.Ref{Kind: k.Kind.Kind, Name: c.args.word(1)}}
	if i.ref.Name == "" {
		return i, errors.New("resource name may not be empty")
	}
	return i, c.place(&i)
}

func (c *command) patch(ctx context.Context) error {
	i, err := c.named()
	if err != nil {
		return err
	}
	patch, form := []byte(c.args.text("patch")), c.args.text("type")
	if len(patch) == 0 {
		return &invalidOption{text: "calicoctl patch " + strings.Join(c.args.words, " ")}
	}
	if !slices.Contains(manifests.PatchForms, form) {
		return fmt.Errorf("patch type %q: want strategic, merge or json", form)
	}
	edit, err := manifests.ParsePatch(form, patch)
	if err != nil {
		return err
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		_, err := resources.Rewriting(ctx, s, resources.Rewrite{Ref: i.ref, What: "patched", Edit: edit})
		if err != nil {
			return fmt.Errorf("Hit error: %w", worded(i.ref, err))
		}
		fmt.Fprintf(c.Out, "Successfully patched 1 '%s' resource\n", i.ref.Kind)
		return nil
	})
}

func (c *command) label(ctx context.Context) error {
	remove := c.args.has("remove")
	key, value, pair := strings.Cut(c.args.word(2), "=")
	if key == "" || pair == remove || strings.Contains(value, "=") || remove && c.args.has("overwrite") {
		return fmt.Errorf("invalid label %s", c.args.word(2))
	}
	i, err := c.named()
	if err != nil {
		return err
	}
	kindWord, name := c.args.word(0), c.args.word(1)
	did := "set label " + key + " on"
	edit := func(doc any) (any, error) {
		was, had := wording.LabelOf(doc, key)
		switch {
		case remove && !had:
			return nil, &plainError{fmt.Sprintf("can not remove label of %s %s, key %s does not exist", kindWord, name, key)}
		case remove:
			did = "removed label " + key + " from"
			return resources.MergePatch(doc, wording.LabelPatch(key, nil)), nil
		case had && was != value && !c.args.has("overwrite"):
			return nil, &plainError{fmt.Sprintf("failed to update label of %s %s, key %s is already present. please use '--overwrite' to set a new value.", kindWord, name, key)}
		case had:
			did = "updated label " + key + " on"
		}
		return resources.MergePatch(doc, wording.LabelPatch(key, value)), nil
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		_, err := resources.Rewriting(ctx, s, resources.Rewrite{Ref: i.ref, What: "labeled", Edit: edit})
		if plain := (*plainError)(nil); errors.As(err, &plain) {
			return plain
		}
		if err != nil {
			return worded(i.ref, err)
		}
		fmt.Fprintf(c.Out, "Successfully %s %s %s\n", did, kindWord, name)
		return nil
	})
}

// plainError is a sentence of calicoctl's that is printed without what stands around it.
type plainError struct{ text string }

// Error is part of error.
func (e *plainError) Error() string { return e.text }

func (c *command) validate(context.Context) error {
	items, _, err := c.checked("validate")
	if err != nil || len(items) == 0 {
		return err
	}
	if of := single(items); of != "" {
		fmt.Fprintf(c.Out, "Successfully validated %d '%s' resource(s)\n", len(items), of)
		return nil
	}
	fmt.Fprintf(c.Out, "Successfully validated %d resource(s)\n", len(items))
	return nil
}
