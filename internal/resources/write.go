package resources

import (
	"context"
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Written is what became of one resource.
type Written struct {
	What     string     // created, configured, replaced, unchanged, labeled …
	Was, Now api.Update // what was stored and what is; was has no value if nothing was
	Left     []Change   // what was to be changed, and the datastore has left as it was
}

// Changes are the fields that differ for users.
func (w Written) Changes() []Change {
	was, err1 := userTree(w.Was)
	now, err2 := userTree(w.Now)
	if err1 != nil || err2 != nil {
		return nil
	}
	return changes(was, now, "")
}

// userTree is a stored document as users see it, without its revision.
func userTree(u api.Update) (any, error) {
	u.Revision = api.Revision{}
	doc, err := UserDoc(u)
	if err != nil {
		return nil, err
	}
	return Tree(doc)
}

// ExistsError is a resource that was to be created and is there.
type ExistsError struct{ Ref api.Ref }

func (e *ExistsError) Error() string {
	return Short(e.Ref) + " exists already; use apply or replace to change it, or --skip-exists to leave it alone"
}

// MissingError is a resource that was to be changed and is not there.
type MissingError struct{ Ref api.Ref }

func (e *MissingError) Error() string {
	return Short(e.Ref) + " does not exist; use create or apply"
}

// StaleError is a change to what is no longer as it was seen.
type StaleError struct {
	ref  api.Ref
	seen string
	is   api.Revision
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s was changed by another writer: metadata.resourceVersion is %s now, not %s; get it again and make your change on that, or leave resourceVersion out to overwrite it",
		Short(e.ref), e.is, e.seen)
}

// CheckRevision refuses a change that was made on another revision than is stored.
func CheckRevision(ref api.Ref, u api.Update, seen string) error {
	if seen == "" || seen == u.Revision.String() {
		return nil
	}
	return &StaleError{ref, seen, u.Revision}
}

// conflictTries is how often a change is retried after a conflict.
const conflictTries = 10

func retry(do func() (Written, error)) (done Written, err error) {
	for range conflictTries {
		if done, err = do(); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) {
			return done, err
		}
	}
	return done, fmt.Errorf("%w, %d times in a row; try again when its other writer is quiet", err, conflictTries)
}

// Create writes a resource that must not exist; else it is *[ExistsError].
func Create(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	return retry(func() (Written, error) { return createOnce(ctx, s, r) })
}

// Apply creates a resource, or makes what is stored say what it says; what another version wrote beside that stays. With a
// resourceVersion, what somebody has changed since is *[StaleError].
func Apply(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	return retry(func() (Written, error) { return applyOnce(ctx, s, r) })
}

// Replace is Apply of what must exist; else it is *[MissingError].
func Replace(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	return retry(func() (Written, error) { return replaceOnce(ctx, s, r) })
}

func createOnce(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	ref := api.RefOf(r)
	if BuiltIn(ref) {
		return Written{}, &ExistsError{ref}
	}
	switch _, err := FindStored(ctx, s, ref); {
	case err == nil:
		return Written{}, &ExistsError{ref}
	case !errors.Is(err, datastore.ErrNotFound):
		return Written{}, err
	}
	return CreateNew(ctx, s, r)
}

// CreateNew is Create without a look at what is stored: if it exists, it is [datastore.ErrExists].
func CreateNew(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	kv, err := Stored(r)
	if err != nil {
		return Written{}, err
	}
	now, err := s.Create(ctx, kv)
	return Written{What: "created", Now: now}, err
}

func applyOnce(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	if BuiltIn(api.RefOf(r)) {
		return Written{What: "unchanged"}, nil
	}
	old, err := FindStored(ctx, s, api.RefOf(r))
	if errors.Is(err, datastore.ErrNotFound) {
		return CreateNew(ctx, s, r)
	}
	if err == nil {
		err = CheckRevision(api.RefOf(r), old, r.Meta().ResourceVersion)
	}
	if err != nil {
		return Written{}, err
	}
	return mergeInto(ctx, s, old, r, "configured")
}

func replaceOnce(ctx context.Context, s datastore.Store, r api.Resource) (Written, error) {
	ref := api.RefOf(r)
	if BuiltIn(ref) {
		return Written{What: "unchanged"}, nil
	}
	old, err := FindStored(ctx, s, ref)
	if errors.Is(err, datastore.ErrNotFound) {
		return Written{}, &MissingError{ref}
	}
	if err == nil {
		err = CheckRevision(ref, old, r.Meta().ResourceVersion)
	}
	if err != nil {
		return Written{}, err
	}
	return mergeInto(ctx, s, old, r, "replaced")
}

// BuiltIn reports whether a resource is never stored. What can be written of it is what it is anyway: [api.Validate] refuses the rest.
func BuiltIn(ref api.Ref) bool {
	return ref == api.Ref{Kind: api.KindProfile, Name: api.ProfileDefaultAllow}
}

// mergeInto makes a stored document say what r says.
func mergeInto(ctx context.Context, s datastore.Store, old api.Update, r api.Resource, what string) (Written, error) {
	value, err := api.MergeRaw(old.Value, r)
	if err != nil {
		return Written{}, err
	}
	if sameJSON(value, old.Value) { // Kubernetes keeps members in an order of its own
		return Written{What: "unchanged", Was: old, Now: old}, nil
	}
	return update(ctx, s, old, value, what)
}
