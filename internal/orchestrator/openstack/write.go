package openstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// writer brings into the datastore what Neutron has.
type writer struct {
	store  datastore.Store
	region region
	log    *slog.Logger
}

// prefixes are above all that is written, and above much that is others': see mine.
func (w *writer) prefixes() (endpoints, policies, migrations string) {
	of := func(kind string) string { return api.KeyPrefix(kind, w.region.namespace()) }
	return of(api.KindWorkloadEndpoint), of(api.KindNetworkPolicy), of(api.KindLiveMigration)
}

// mine reports whether a key is of Neutron's objects, and of which.
func (w *writer) mine(key string) (kind, id string, ok bool) {
	if id, ok = strings.CutPrefix(key, w.region.subnets()); ok {
		return "subnet", id, true
	}
	ref, ok := api.ParseKey(key)
	if !ok || ref.Namespace != w.region.namespace() {
		return "", "", false
	}
	switch ref.Kind {
	case api.KindNetworkPolicy:
		id, ok = strings.CutPrefix(ref.Name, policyPrefix)
		return "security group", id, ok
	case api.KindWorkloadEndpoint, api.KindLiveMigration: // which has the name of its target
		parts, ok := api.ParseWorkloadEndpointName(ref.Name)
		if ok = ok && parts.Orchestrator == orchestrator; !ok && ref.Kind == api.KindLiveMigration {
			return "migration", ref.Name, true // of no port: nobody else has any here
		}
		return "port", parts.Endpoint, ok
	}
	return "", "", false
}

// tries is how often a write is tried when others write the same.
const tries = 10

// again does something until nobody else was faster.
func again(do func() error) (err error) {
	for range tries {
		if err = do(); !errors.Is(err, datastore.ErrConflict) && !errors.Is(err, datastore.ErrExists) && !errors.Is(err, datastore.ErrNotFound) {
			return err
		}
	}
	return fmt.Errorf("others write it all the time: %w", err)
}

// errNewer: what is stored is of a later revision of Neutron's object.
var errNewer = errors.New("a later revision is stored")

// known is what errNewer comes to: that somebody was faster is no error.
func known(err error) error {
	if errors.Is(err, errNewer) {
		return nil
	}
	return err
}

// put writes a resource over whatever is stored; if that is of a later revision of Neutron's object, it is errNewer.
func (w *writer) put(ctx context.Context, r api.Resource) error {
	key, err := api.Key(r)
	if err != nil {
		return err
	}
	return again(func() error {
		seen, err := w.get(ctx, key)
		if err != nil {
			return err
		}
		_, err = w.over(ctx, seen, r)
		return err
	})
}

// get is what is stored under a key; without a value, nothing is.
func (w *writer) get(ctx context.Context, key string) (api.Update, error) {
	u, err := w.store.Get(ctx, key)
	if errors.Is(err, datastore.ErrNotFound) {
		return api.Update{Key: key}, nil
	}
	return u, err
}

// over writes a resource over what was seen, and returns what is stored then; if that is of a later revision, it is errNewer.
func (w *writer) over(ctx context.Context, seen api.Update, r api.Resource) (now api.Update, err error) {
	if errs := api.Validate(r); len(errs) > 0 {
		return now, fmt.Errorf("%s: %w", api.RefOf(r), errs)
	}
	if revisionOf(seen) > number(r.Meta().Annotations[annotationRevision]) {
		return now, errNewer
	}
	if seen.Value != nil && unreadable(seen) { // by somebody who is not the master
		seen.Value = nil
		if err := resources.DeleteSeen(ctx, w.store, seen); err != nil {
			return now, err
		}
	}
	done, err := resources.Over(ctx, w.store, seen, r)
	if err == nil && done.What != "unchanged" {
		w.log.Debug("as Neutron says", "did", done.What, "what", api.RefOf(r))
	}
	return done.Now, err
}

// unreadable reports whether a stored resource is none, so that nothing can be put right in it.
func unreadable(u api.Update) bool {
	_, err := api.DecodeStored(u)
	return err != nil
}

// revisionOf is the revision of Neutron's object that is stored; -1: it says none.
func revisionOf(u api.Update) int64 {
	if u.Value == nil {
		return -1
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		return -1
	}
	return number(st.Resource.Meta().Annotations[annotationRevision])
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// putGroup writes the policy of a security group.
func (w *writer) putGroup(ctx context.Context, g *SecurityGroup) (problems []string, err error) {
	p, problems := w.region.policy(g)
	return problems, known(w.put(ctx, p))
}

// putPort writes what becomes of a port, after what is no longer of it: endpoints of another host or another machine, and ended migrations.
//
// A port has several keys, and another server may write them at the same time. Whoever has written looks again, until all is as it left
// it. Then of two, whatever their order, one sees what the other wrote last: the later revision takes away what is not of it, and the earlier
// one takes back what it made.
func (w *writer) putPort(ctx context.Context, p *Port) (problems []string, err error) {
	want, problems := w.region.port(p)
	keys, err := want.keys()
	if err != nil {
		return problems, err
	}
	made := snapshot{}
	return problems, again(func() error { return w.look(ctx, p, want.resources(), keys, made) })
}

// look looks at what is stored of a port, and makes it as it should be; if it had to, it is an error of somebody who was faster, so that
// it is called again. made are the keys that it has created so far.
func (w *writer) look(ctx context.Context, p *Port, want []api.Resource, keys map[string]bool, made snapshot) error {
	of, err := w.ofPort(ctx, p.ID)
	if err != nil {
		return err
	}
	stored := snapshot{}
	for _, u := range of {
		if revisionOf(u) > p.Revision {
			return w.takeBack(ctx, of, made)
		}
		stored[u.Key] = u
	}
	keepNames(p, want, of)
	settled := true
	for _, u := range of {
		if keys[u.Key] {
			continue
		}
		settled = false
		if err := resources.DeleteSeen(ctx, w.store, u); err != nil {
			return err
		}
	}
	for _, r := range want {
		key, err := api.Key(r)
		if err != nil {
			return err
		}
		seen, ok := stored[key]
		if !ok {
			seen.Key = key
		}
		now, err := w.over(ctx, seen, r)
		if err != nil {
			return err
		}
		if !ok {
			made[key] = now
		}
		settled = settled && ok && now.Revision == seen.Revision
	}
	if !settled {
		return errLookAgain
	}
	return nil
}

// keepNames has endpoints keep the names of their project that are stored, if Keystone could not be asked: policies may select by them.
func keepNames(p *Port, want []api.Resource, of []api.Update) {
	if p.ProjectName != nil {
		return
	}
	for _, u := range of {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue
		}
		for _, label := range []string{labelProjectName, labelParent} {
			name, ok := st.Resource.Meta().Labels[label]
			for _, r := range want {
				if e, is := r.(*api.WorkloadEndpoint); is && ok && st.Resource.Meta().Labels[labelProject] == e.Metadata.Labels[labelProject] {
					e.Metadata.Labels[label] = name
				}
			}
		}
	}
}

// errLookAgain: something was written.
var errLookAgain = fmt.Errorf("written: %w", datastore.ErrConflict)

// takeBack deletes of what is stored what this writer has made and nobody has changed since: somebody knows better.
func (w *writer) takeBack(ctx context.Context, of []api.Update, made snapshot) error {
	for _, u := range of {
		if mine, ok := made[u.Key]; !ok || mine.Revision != u.Revision {
			continue
		}
		w.log.Debug("another server knew better", "key", u.Key)
		if err := resources.DeleteSeen(ctx, w.store, u); err != nil && !errors.Is(err, datastore.ErrConflict) {
			return err
		}
	}
	return nil
}

// ofPort is what is stored of a port, in the order of deleting.
func (w *writer) ofPort(ctx context.Context, id string) (out []api.Update, err error) {
	endpoints, _, migrations := w.prefixes()
	for _, prefix := range []string{endpoints, migrations} {
		all, err := w.store.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, u := range all.Items {
			if kind, of, ok := w.mine(u.Key); ok && kind == "port" && of == id {
				out = append(out, u)
			}
		}
	}
	slices.SortFunc(out, w.rank)
	return out, nil
}

// deletePort deletes what is stored of a port.
func (w *writer) deletePort(ctx context.Context, id string) error {
	return again(func() error {
		of, err := w.ofPort(ctx, id)
		if err != nil {
			return err
		}
		for _, u := range of {
			if err := resources.DeleteSeen(ctx, w.store, u); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteKey deletes what is stored under a key.
func (w *writer) deleteKey(ctx context.Context, key string) error {
	if err := w.store.Delete(ctx, key, api.Revision{}); !errors.Is(err, datastore.ErrNotFound) {
		return err
	}
	return nil
}

// deleteGroup deletes the policy of a security group.
func (w *writer) deleteGroup(ctx context.Context, id string) error {
	_, policies, _ := w.prefixes()
	return w.deleteKey(ctx, policies+policyPrefix+id)
}

// putSubnet writes the key of a subnet, or deletes it, if its addresses are not served.
func (w *writer) putSubnet(ctx context.Context, s *Subnet) error {
	kv, err := w.region.subnet(s)
	if err != nil {
		return err
	}
	if kv.Value == nil {
		return w.deleteKey(ctx, kv.Key)
	}
	return again(func() error {
		seen, err := w.get(ctx, kv.Key)
		if err != nil {
			return err
		}
		return w.overKey(ctx, seen, kv)
	})
}

func (w *writer) overKey(ctx context.Context, seen, kv api.Update) (err error) {
	switch kv.Revision = seen.Revision; {
	case seen.Value == nil:
		_, err = w.store.Create(ctx, kv)
	case !bytes.Equal(seen.Value, kv.Value):
		_, err = w.store.Update(ctx, kv)
	}
	return err
}
