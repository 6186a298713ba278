package endpointapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// errWritten is why a group's policy that was written is not in force.
type errWritten struct{ error }

func (e errWritten) Unwrap() error { return e.error }

// errOthers is why a group is none of this host's any more.
type errOthers struct{ why string }

func (e errOthers) Error() string { return e.why }

// group makes a group's policy what it should be, and waits until it is in force on this host.
func (w *Writer) group(ctx context.Context, j *Job) error {
	now, err := w.makeGroup(ctx, j)
	if err != nil {
		return err
	}
	waits, cancel := context.WithTimeout(ctx, inForceWait)
	defer cancel()
	err = w.Kernel.PolicyInForce(waits, now)
	switch {
	case err == nil:
		return nil
	case waits.Err() != nil:
		return errWritten{errNotYet{err.Error()}}
	}
	return errWritten{err}
}

// makeGroup brings into the datastore what is wanted, and returns it.
func (w *Writer) makeGroup(ctx context.Context, j *Job) (now api.Update, err error) {
	release, err := w.enter(ctx)
	if err != nil {
		return now, err
	}
	defer release()
	if j.Policy == nil {
		now, deleted, err := resources.DeleteIf(ctx, w.Store, j.Group, func(u api.Update) (bool, error) {
			if s, _ := readGroup(u); s.plugin != j.Plugin {
				return false, nil // what the plugin had is gone
			}
			return true, j.mayReplace(u)
		})
		if deleted {
			now.Value = nil
		}
		return now, err
	}
	seen, err := w.Store.Get(ctx, j.Group)
	switch {
	case errors.Is(err, datastore.ErrNotFound) && j.Fresh:
		seen = api.Update{Key: j.Group}
	case errors.Is(err, datastore.ErrNotFound):
		return now, errOthers{"somebody has deleted its policy"}
	case err != nil:
		return now, err
	}
	if err := j.mayReplace(seen); err != nil {
		return now, err
	}
	copied := *j.Policy // the datastore's fields are filled in
	done, err := over(ctx, w.Store, seen, &copied)
	return done.Now, err
}

// mayReplace returns an error if what is stored of a group is not this job's to change.
func (j *Job) mayReplace(u api.Update) error {
	if u.Value == nil {
		return nil
	}
	s, _ := readGroup(u)
	switch {
	case s.plugin != j.Plugin:
		return fmt.Errorf("NetworkPolicy %s/%s is not this plugin's", s.id.namespace, s.id.policyName())
	case !j.Fresh && s.node != j.Node:
		return errOthers{fmt.Sprintf("plugin %s has announced it at node %s since", s.plugin, s.node)}
	}
	return nil
}
