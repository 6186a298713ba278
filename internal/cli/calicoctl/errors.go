package calicoctl

import (
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// id is how calicoctl calls a resource in messages.
func id(ref api.Ref) string {
	if ref.Namespace != "" {
		return ref.Kind + "(" + ref.Namespace + "/" + ref.Name + ")"
	}
	return ref.Kind + "(" + ref.Name + ")"
}

// notThere is a resource that does not exist.
func notThere(ref api.Ref) error {
	return fmt.Errorf("resource does not exist: %s with error: <nil>", id(ref))
}

// unsupported is what nobody may do.
func unsupported(operation, what, reason string) error {
	if reason != "" {
		reason = ": " + reason
	}
	return fmt.Errorf("operation %s is not supported on %s%s", operation, what, reason)
}

// worded gives an error of an operation calicoctl's words, where it has some.
func worded(ref api.Ref, err error) error {
	var there *resources.ExistsError
	var gone *resources.MissingError
	var stale *resources.StaleError
	switch {
	case errors.As(err, &there), errors.Is(err, datastore.ErrExists):
		return &existsError{fmt.Errorf("resource already exists: %s", id(ref))}
	case errors.As(err, &gone), errors.Is(err, datastore.ErrNotFound):
		return &goneError{notThere(ref)}
	case errors.As(err, &stale), errors.Is(err, datastore.ErrConflict):
		return fmt.Errorf("update conflict: %s", id(ref))
	}
	return err
}

// existsError and goneError are those that flags let pass.
type (
	existsError struct{ error }
	goneError   struct{ error }
)
