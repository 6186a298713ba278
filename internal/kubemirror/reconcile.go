package kubemirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// pause is the least time between two writes of the same value under a key, in case somebody else has other ideas of it, and how soon
// a key is looked at again that somebody else was faster with.
const pause = time.Second

// A server that hangs must not keep from their turn those keys of which nothing need be asked.
const (
	askTimeout = 5 * time.Second
	askAgain   = 10 * time.Second // after one that brought no answer
)

// observe takes over a change of either store, and returns the keys that it concerns: those that waited for it, too.
func (m *Mirror) observe(u api.Update) []string {
	key, wanted := strings.CutPrefix(u.Key, kubernetes)
	ref, ok := api.ParseKey(key)
	if !ok {
		return nil
	}
	if ref.Kind == api.KindWorkloadEndpoint || ref.Kind == api.KindHostEndpoint {
		if wanted {
			return m.observePod(key, u.Value)
		}
		return m.observeEndpoint(u, ref)
	}
	if controllerOf(ref) == "" {
		return nil
	}
	policy := ref.Kind != api.KindProfile
	was := policy && m.differs(key)
	switch {
	case wanted && u.Value == nil:
		delete(m.want, key)
	case wanted:
		m.want[key] = u.Value
	case u.Value == nil:
		delete(m.have, key)
	default:
		m.have[key] = u
	}
	m.count(was, policy && m.differs(key), ref.Namespace)
	return append(m.awake(namespaceOf(ref)), key)
}

// count keeps the number of policies of a namespace that are not as wanted.
func (m *Mirror) count(was, is bool, namespace string) {
	switch {
	case is && !was:
		m.behind[namespace]++
	case was && !is:
		m.behind[namespace]--
		if m.behind[namespace] == 0 {
			delete(m.behind, namespace)
		}
	}
}

// differs reports whether there is something to write under a key that Kubernetes has.
func (m *Mirror) differs(key string) bool {
	want := m.want[key]
	return want != nil && !bytes.Equal(want, m.have[key].Value)
}

// wait has a key reconciled again when something changes in a namespace.
func (m *Mirror) wait(namespace, key string) {
	if m.waiting[namespace] == nil {
		m.waiting[namespace] = keys{}
	}
	m.waiting[namespace][key] = true
}

// awake are the keys that waited for a change in a namespace; in none, which is that of cluster-wide policies: all that wait, once the
// last of those is as wanted.
func (m *Mirror) awake(namespace string) []string {
	if namespace == "" {
		if m.behind[""] > 0 {
			return nil
		}
		var all []string
		for _, ks := range m.waiting {
			all = slices.AppendSeq(all, maps.Keys(ks))
		}
		clear(m.waiting)
		return all
	}
	out := slices.Collect(maps.Keys(m.waiting[namespace]))
	delete(m.waiting, namespace)
	return out
}

// turn is one turn of the loop.
func (m *Mirror) turn(ctx context.Context, key string) (again time.Time, err error) {
	if key == theMark {
		again, err = m.mark(ctx)
	} else {
		again, err = m.reconcile(ctx, key)
	}
	m.cfg.Turn(key, err)
	return again, err
}

// reconcile makes To hold under a key what Kubernetes says.
func (m *Mirror) reconcile(ctx context.Context, key string) (again time.Time, err error) {
	ref, _ := api.ParseKey(key) // observe has read it
	if ref.Kind == api.KindWorkloadEndpoint {
		return m.label(ctx, key)
	}
	if !m.on[controllerOf(ref)] {
		return again, nil
	}
	switch want, have := m.want[key], m.have[key]; {
	case want != nil && m.differs(key):
		return m.write(ctx, ref, api.Update{Key: key, Value: want, Revision: have.Revision})
	case want == nil && have.Value != nil:
		return m.remove(ctx, ref, have)
	}
	if m.want[key] == nil {
		delete(m.wrote, key)
	}
	return again, nil
}

// write stores a value over what was seen: its revision, or none.
func (m *Mirror) write(ctx context.Context, ref api.Ref, kv api.Update) (again time.Time, err error) {
	namespace := namespaceOf(ref)
	if controllerOf(ref) == Namespaces && kv.Revision.IsZero() && m.behind[namespace]+m.behind[""] > 0 {
		m.wait(namespace, kv.Key) // it allows what no policy speaks of
		return again, nil
	}
	return m.put(ctx, kv)
}

// put writes what is wanted, if it was not written just now.
func (m *Mirror) put(ctx context.Context, kv api.Update) (again time.Time, err error) {
	last := m.wrote[kv.Key]
	undone := bytes.Equal(last.value, kv.Value)
	if next := last.at.Add(pause); undone && time.Now().Before(next) {
		return next, nil
	}
	did := "created"
	if kv.Revision.IsZero() {
		_, err = m.cfg.To.Create(ctx, kv)
	} else {
		did = "changed"
		_, err = m.cfg.To.Update(ctx, kv)
	}
	switch {
	case overtaken(err):
		return time.Now().Add(pause), nil
	case err != nil:
		return again, err
	}
	m.wrote[kv.Key] = written{kv.Value, time.Now()}
	if undone {
		m.cfg.Log.Info("somebody else changed what Kubernetes says: it is put right", "did", did, "key", kv.Key)
	} else {
		m.cfg.Log.Debug("as Kubernetes says", "did", did, "key", kv.Key)
	}
	return again, nil
}

// overtaken: somebody else was faster, of whom the watch will tell.
func overtaken(err error) bool {
	return errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
}

// remove deletes what Kubernetes no longer has, once nothing needs it.
func (m *Mirror) remove(ctx context.Context, ref api.Ref, have api.Update) (again time.Time, err error) {
	if m.needed(ref) {
		m.wait(namespaceOf(ref), have.Key)
		return again, nil
	}
	if time.Now().Before(m.down) {
		return m.down, nil
	}
	is, err := m.ask(ctx, have.Key)
	if err == nil && is.Value != nil { // what was read lacked it
		is, err = m.trust(ctx, have.Key)
	}
	if err != nil || is.Value != nil {
		return again, err
	}
	if goes, err := m.namespaceGoes(ctx, namespaceOf(ref)); err != nil {
		return again, err
	} else if goes {
		m.wait(namespaceOf(ref), have.Key)
		return again, nil
	}
	err = resources.DeleteSeen(ctx, m.cfg.To, have)
	if overtaken(err) {
		return time.Now().Add(pause), nil
	}
	if err == nil {
		m.cfg.Log.Debug("as Kubernetes says", "did", "deleted", "key", have.Key)
	}
	return again, err
}

// needed reports whether an endpoint would lose something that it is judged by.
func (m *Mirror) needed(ref api.Ref) bool {
	if ref.Kind == api.KindProfile && m.users[ref.Name] > 0 {
		return true
	}
	namespace := namespaceOf(ref)
	return namespace != "" && m.want[namespaceKey(namespace)] == nil && m.users[in(namespace)] > 0
}

// trust takes over what Kubernetes has under a key that it was said to lack. All that will be said of that key is heard from now on.
func (m *Mirror) trust(ctx context.Context, key string) (api.Update, error) {
	err := m.kube.Know(ctx, key)
	if err != nil {
		return api.Update{}, err
	}
	is, err := m.ask(ctx, key)
	if err != nil || is.Value == nil {
		return is, err
	}
	for _, concerned := range m.observe(api.Update{Key: kubernetes + key, Value: is.Value}) {
		m.loop.Enqueue(concerned, 0)
	}
	return is, nil
}

// namespaceGoes reports whether a namespace with endpoints is gone, of which the watch has yet to tell: policies go before it.
func (m *Mirror) namespaceGoes(ctx context.Context, namespace string) (bool, error) {
	if namespace == "" || m.users[in(namespace)] == 0 {
		return false, nil
	}
	u, err := m.ask(ctx, namespaceKey(namespace))
	return err == nil && u.Value == nil, err
}

// ask asks Kubernetes itself what is under a key; without a value it has nothing there. A server that does not know the one namespace
// that every cluster has knows nothing.
func (m *Mirror) ask(ctx context.Context, key string) (api.Update, error) {
	if _, err := m.get(ctx, alive); err != nil {
		return api.Update{}, unsure(key, err)
	}
	u, err := m.getOnce(ctx, key) // of a kind that it may not serve
	if errors.Is(err, datastore.ErrNotFound) {
		return api.Update{Key: key}, nil
	}
	if err != nil {
		return api.Update{}, unsure(key, err)
	}
	return u, nil
}

func unsure(key string, err error) error {
	return fmt.Errorf("%s stays, since Kubernetes does not say for sure that it is gone: %w", key, err)
}

// get asks Kubernetes for what is under a key that it always can tell of; without an answer it is left alone for a while.
func (m *Mirror) get(ctx context.Context, key string) (api.Update, error) {
	u, err := m.getOnce(ctx, key)
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		m.down = time.Now().Add(askAgain)
	}
	return u, err
}

func (m *Mirror) getOnce(ctx context.Context, key string) (api.Update, error) {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return m.cfg.From.Get(bounded, key)
}
