package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// snapshot is what was stored of Neutron's before its database was read, by key.
type snapshot map[string]api.Update

// snapshot reads it. Whatever is not in Neutron's database, and has not changed since, is superfluous: had it been made later, it would not
// be here; had it been changed, it would have another revision.
func (w *writer) snapshot(ctx context.Context) (snapshot, error) {
	out := snapshot{}
	endpoints, policies := w.prefixes()
	for _, prefix := range []string{endpoints, policies, w.region.subnets()} {
		all, err := w.store.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, u := range all.Items {
			if _, _, ok := w.mine(u.Key); ok {
				out[u.Key] = u
			}
		}
	}
	return out, nil
}

// Report is what came of a resync.
type Report struct {
	Ports          int      `json:"ports"` // that have endpoints
	SecurityGroups int      `json:"security_groups"`
	Subnets        int      `json:"subnets"`
	Deleted        int      `json:"deleted"`
	Problems       []string `json:"problems,omitempty"` // what has no effect, or could not be written, by object
}

// resync makes the datastore hold what Neutron had, which was read after the snapshot. An object that cannot be read or written is a problem
// of its own: what is stored of it stays. An error is one of the datastore's.
func (w *writer) resync(ctx context.Context, was snapshot, s *State) (r Report, err error) {
	left := maps.Clone(was)
	for i := range s.SecurityGroups {
		g := &s.SecurityGroups[i]
		p, problems := w.region.policy(g)
		r.note("security group "+g.ID, problems)
		if err := w.one(ctx, &r, left, "security group "+g.ID, p); err != nil {
			return r, err
		}
		r.SecurityGroups++
	}
	for i := range s.Subnets {
		if err := w.oneSubnet(ctx, &r, left, &s.Subnets[i]); err != nil {
			return r, err
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		e, problems, err := w.region.endpoint(p)
		r.note("port "+p.ID, problems)
		switch {
		case err != nil:
			r.note("port "+p.ID, []string{err.Error()})
			w.keep(left, "port", p.ID)
		case e != nil:
			if err := w.one(ctx, &r, left, "port "+p.ID, e); err != nil {
				return r, err
			}
			r.Ports++
		}
	}
	return r, w.sweep(ctx, &r, left)
}

func (r *Report) note(what string, problems []string) {
	for _, p := range problems {
		r.Problems = append(r.Problems, what+": "+p)
	}
}

// one writes a resource over what the snapshot has of it.
func (w *writer) one(ctx context.Context, r *Report, left snapshot, what string, res api.Resource) error {
	key, err := api.Key(res)
	if err == nil {
		seen, ok := left[key]
		if !ok {
			seen = api.Update{Key: key}
		}
		delete(left, key)
		err = w.over(ctx, seen, res)
	}
	return w.only(r, what, err)
}

func (w *writer) oneSubnet(ctx context.Context, r *Report, left snapshot, s *Subnet) error {
	kv, err := w.region.subnet(s)
	if err != nil {
		w.keep(left, "subnet", s.ID)
		return w.only(r, "subnet "+s.ID, err)
	}
	if kv.Value == nil {
		return nil
	}
	r.Subnets++
	seen := left[kv.Key]
	delete(left, kv.Key)
	return w.only(r, "subnet "+s.ID, w.overKey(ctx, seen, kv))
}

// only notes an error that is of one object, and returns those of the datastore. That somebody was faster, who knows better, is none.
func (w *writer) only(r *Report, what string, err error) error {
	switch {
	case err == nil, errors.Is(err, datastore.ErrConflict), errors.Is(err, datastore.ErrExists), errors.Is(err, datastore.ErrNotFound):
		return nil
	case errors.Is(err, datastore.ErrUnavailable), errors.Is(err, datastore.ErrFull), errors.Is(err, datastore.ErrUnauthorized), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	}
	r.note(what, []string{err.Error()})
	return nil
}

// keep leaves alone what is stored of an object.
func (w *writer) keep(left snapshot, kind, id string) {
	maps.DeleteFunc(left, func(key string, _ api.Update) bool {
		k, of, _ := w.mine(key)
		return k == kind && of == id
	})
}

// sweep deletes what Neutron had not: endpoints first, since a policy that goes before them would open or cut what it is about.
func (w *writer) sweep(ctx context.Context, r *Report, left snapshot) error {
	endpoints, _ := w.prefixes()
	keys := slices.SortedFunc(maps.Keys(left), func(a, b string) int {
		if ea, eb := strings.HasPrefix(a, endpoints), strings.HasPrefix(b, endpoints); ea != eb {
			if ea {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, key := range keys {
		err := resources.DeleteSeen(ctx, w.store, left[key])
		if err == nil {
			r.Deleted++
			w.log.Debug("Neutron has it no more", "key", key)
		}
		if err := w.only(r, key, err); err != nil {
			return err
		}
	}
	return nil
}
