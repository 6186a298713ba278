package endpointapi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// Kernel is what a Writer needs of the rest of the agent.
type Kernel interface {
	// Overlay passes calc updates that are in the datastore, before its watch delivers them.
	Overlay(ctx context.Context, us []api.Update) error
	// InForce waits until an endpoint's policy and routes are in the kernel; an error says why they are not.
	InForce(ctx context.Context, id intent.EndpointID) error
	// PolicyInForce waits until what was written of a policy, or that it was deleted, is in the kernel; an error says why it is not.
	PolicyInForce(ctx context.Context, u api.Update) error
	// NotReady returns why nothing may be written now; none: it may.
	NotReady() []string
}

// Writer writes endpoints of plugins, and waits until they are in force.
type Writer struct {
	Store  datastore.Store
	Kernel Kernel
	// Know is that of the syncer that feeds calc. May be nil.
	Know func(ctx context.Context, keys ...string) error
	// Address returns what is known of an address. May be nil.
	Address func(ctx context.Context, a netip.Addr) (ipam.Lease, error)

	slots chan struct{} // bounds what is written at once
}

// NewWriter returns a Writer that reads and writes a few endpoints at once.
func NewWriter(w Writer) *Writer {
	w.slots = make(chan struct{}, atOnce)
	return &w
}

const atOnce = 16

// errLater is why something is not done now, although nothing is wrong with it.
type errLater struct{ why string }

func (e errLater) Error() string { return e.why }

// errNotYet is why something that was written is not in force yet.
type errNotYet struct{ why string }

func (e errNotYet) Error() string { return e.why }

// inForceWait is how long a plugin waits for policy and routes before it is told why they are not in the kernel.
const inForceWait = 20 * time.Second

// Do does a job.
func (w *Writer) Do(ctx context.Context, j *Job) error {
	if j.Group != "" {
		return w.group(ctx, j)
	}
	now, err := w.make(ctx, j)
	if err != nil || j.Want == nil {
		return err
	}
	waits, cancel := context.WithTimeout(ctx, inForceWait)
	defer cancel()
	if err = w.Kernel.Overlay(waits, []api.Update{now}); err == nil {
		err = w.Kernel.InForce(waits, intent.EndpointID{Kind: intent.Workload, Namespace: j.Want.Metadata.Namespace, Name: j.Want.Metadata.Name})
	}
	if err != nil && waits.Err() != nil {
		return errNotYet{err.Error()}
	}
	return err
}

// make brings into the datastore what is wanted, and returns it.
func (w *Writer) make(ctx context.Context, j *Job) (now api.Update, err error) {
	release, err := w.enter(ctx)
	if err != nil {
		return now, err
	}
	defer release()
	for _, key := range j.Remove {
		if err := w.remove(ctx, j.Plugin, key); err != nil {
			return now, err
		}
	}
	if j.Want == nil {
		return now, nil
	}
	if err := w.mayHave(ctx, j.Want); err != nil {
		return now, err
	}
	return w.write(ctx, j)
}

// enter waits for its turn, and returns what ends it. It is an error if the agent is not ready.
func (w *Writer) enter(ctx context.Context) (release func(), err error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release = func() { <-w.slots }
	if why := w.Kernel.NotReady(); len(why) > 0 {
		release()
		return nil, errLater{"the agent is not ready: " + why[0]}
	}
	return release, nil
}

// mayHave returns an error if IPAM has given one of an endpoint's addresses to somebody.
func (w *Writer) mayHave(ctx context.Context, e *api.WorkloadEndpoint) error {
	if w.Address == nil {
		return nil
	}
	for _, a := range addrsOf(e) {
		l, err := w.Address(ctx, a)
		if err != nil {
			return err
		}
		if l.Assigned {
			return fmt.Errorf("address %s is assigned to %s", a, l.Handle)
		}
	}
	return nil
}

// write writes an endpoint, if what is there is the plugin's.
func (w *Writer) write(ctx context.Context, j *Job) (api.Update, error) {
	key, err := api.Key(j.Want)
	if err != nil {
		return api.Update{}, err
	}
	if err := w.know(ctx, key); err != nil {
		return api.Update{}, err
	}
	seen, err := w.Store.Get(ctx, key)
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		seen = api.Update{Key: key}
	case err != nil:
		return api.Update{}, err
	}
	if mine, err := ofPlugin(seen, j.Plugin); err != nil {
		return api.Update{}, err
	} else if !mine {
		return api.Update{}, notThePlugins(j.Want)
	}
	copied := *j.Want // the datastore's fields are filled in
	done, err := over(ctx, w.Store, seen, &copied)
	return done.Now, err
}

// over is [resources.Over], which is tried again if somebody else was faster.
func over(ctx context.Context, s datastore.Store, seen api.Update, r api.Resource) (resources.Written, error) {
	done, err := resources.Over(ctx, s, seen, r)
	for _, faster := range []error{datastore.ErrConflict, datastore.ErrExists, datastore.ErrNotFound} {
		if errors.Is(err, faster) {
			return done, errLater{err.Error()}
		}
	}
	return done, err
}

// remove deletes an endpoint, if it is the plugin's.
func (w *Writer) remove(ctx context.Context, plugin, key string) error {
	if err := w.know(ctx, key); err != nil {
		return err
	}
	was, deleted, err := resources.DeleteIf(ctx, w.Store, key, func(u api.Update) (bool, error) { return ofPlugin(u, plugin) })
	if err != nil {
		return err
	}
	if deleted {
		was.Value = nil
	}
	return w.Kernel.Overlay(ctx, []api.Update{was})
}

func (w *Writer) know(ctx context.Context, key string) error {
	if w.Know == nil {
		return nil
	}
	return w.Know(ctx, key)
}

// ofPlugin reports whether a plugin may write what is stored under a key: nothing, or what it had written.
func ofPlugin(u api.Update, plugin string) (bool, error) {
	if u.Value == nil {
		return true, nil
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return false, fmt.Errorf("%s: %w", u.Key, err)
	}
	return st.Resource.Meta().Annotations[annotationPlugin] == plugin, nil
}
