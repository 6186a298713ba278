package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	endpoints, policies, migrations := w.prefixes()
	for _, prefix := range []string{endpoints, policies, migrations, w.region.subnets()} {
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
		if _, err := w.one(ctx, &r, left, "security group "+g.ID, p); err != nil {
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
		if err := w.onePort(ctx, &r, left, &s.Ports[i]); err != nil {
			return r, err
		}
	}
	return r, w.sweep(ctx, &r, left)
}

func (r *Report) note(what string, problems []string) {
	for _, p := range problems {
		r.Problems = append(r.Problems, what+": "+p)
	}
}

// onePort writes what becomes of a port. If somebody was faster with one part of it, what is stored of the other parts is theirs to say, too.
func (w *writer) onePort(ctx context.Context, r *Report, left snapshot, p *Port) error {
	what := "port " + p.ID
	want, problems, err := w.region.port(p)
	r.note(what, problems)
	if err != nil {
		r.note(what, []string{err.Error()})
		w.keep(left, "port", p.ID)
		return nil
	}
	for _, res := range want.resources() {
		done, err := w.one(ctx, r, left, what, res)
		if err != nil {
			return err
		}
		if !done {
			w.keep(left, "port", p.ID)
			break
		}
	}
	if want.endpoint != nil {
		r.Ports++
	}
	return nil
}

// one writes a resource over what the snapshot has of it, and returns whether it could.
func (w *writer) one(ctx context.Context, r *Report, left snapshot, what string, res api.Resource) (done bool, err error) {
	key, err := api.Key(res)
	if err == nil {
		seen, ok := left[key]
		if !ok {
			seen = api.Update{Key: key}
		}
		delete(left, key)
		err = w.over(ctx, seen, res)
	}
	return err == nil, w.only(r, what, err)
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
	case err == nil, errors.Is(err, errNewer), errors.Is(err, datastore.ErrConflict), errors.Is(err, datastore.ErrExists), errors.Is(err, datastore.ErrNotFound):
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

// sweep deletes what Neutron had not.
func (w *writer) sweep(ctx context.Context, r *Report, left snapshot) error {
	for _, u := range slices.SortedFunc(maps.Values(left), w.rank) {
		err := resources.DeleteSeen(ctx, w.store, u)
		if err == nil {
			r.Deleted++
			w.log.Debug("Neutron has it no more", "key", u.Key)
		}
		if err := w.only(r, u.Key, err); err != nil {
			return err
		}
	}
	return nil
}
