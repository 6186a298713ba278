package openstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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

// withoutRegion counts the resources of Neutron's that were written without a region, if this server has one. Subnets do not count: no server with
// a region reads them.
func (w *writer) withoutRegion(ctx context.Context) (int, error) {
	if w.region == "" {
		return 0, nil
	}
	of := &writer{store: w.store}
	all, err := of.snapshot(ctx)
	maps.DeleteFunc(all, func(key string, _ api.Update) bool { kind, _, _ := of.mine(key); return kind == "subnet" })
	return len(all), err
}

// regionRetry is when a datastore that was away is asked once more.
const regionRetry = 10 * time.Second

// warnOfRegion warns of what was left when a deployment came to have a region. It may as well be of other servers, which have none.
func (w *writer) warnOfRegion(ctx context.Context) {
	n, err := w.withoutRegion(ctx)
	for err != nil && !errors.Is(err, datastore.ErrUnauthorized) { // in the latter case whoever gave the rights knows of regions
		select {
		case <-ctx.Done():
			return
		case <-time.After(regionRetry):
			n, err = w.withoutRegion(ctx)
		}
	}
	if n > 0 {
		w.log.Warn("resources of Neutron's are there that were written without a region; unless other servers still write them, they are left over, "+
			"and go with: twill delete namespace openstack", "resources", n)
	}
}

// Report is what came of a resync.
type Report struct {
	Ports          int      `json:"ports"` // that have endpoints
	SecurityGroups int      `json:"security_groups"`
	Subnets        int      `json:"subnets"`
	Written        int      `json:"written"` // keys that were not as they are now
	Deleted        int      `json:"deleted"`
	Problems       []string `json:"problems,omitempty"` // what has no effect, or could not be written, by object
}

// pass is a resync that goes on.
type pass struct {
	Report
	left  snapshot                // of what was stored, what Neutron has not, as far as is known
	made  snapshot                // what was created
	raced map[string]bool         // what somebody else has written meanwhile, as one names it
	known map[string][]api.Update // what was stored, by ID of a port
	ports map[string]*Port        // that were written, by ID
}

// resync makes the datastore hold what Neutron had, which was read after the snapshot. An object that cannot be expressed or written is a problem
// of its own. An error is one of the datastore's.
func (w *writer) resync(ctx context.Context, was snapshot, s *State) (Report, error) {
	r := &pass{left: maps.Clone(was), made: snapshot{}, known: map[string][]api.Update{}, raced: map[string]bool{}, ports: map[string]*Port{}}
	for key, u := range was {
		if kind, id, _ := w.mine(key); kind == "port" {
			r.known[id] = append(r.known[id], u)
		}
	}
	for i := range s.SecurityGroups {
		g := &s.SecurityGroups[i]
		p, problems := w.region.policy(g)
		r.note("security group "+g.ID, problems)
		if _, err := w.one(ctx, r, "security group "+g.ID, p); err != nil {
			return r.Report, err
		}
		r.SecurityGroups++
	}
	for i := range s.Subnets {
		if err := w.oneSubnet(ctx, r, &s.Subnets[i]); err != nil {
			return r.Report, err
		}
	}
	for i := range s.Ports {
		if err := w.onePort(ctx, r, &s.Ports[i]); err != nil {
			return r.Report, err
		}
	}
	err := w.sweep(ctx, r)
	if err == nil && (r.Written > 0 || len(r.raced) > 0) {
		err = w.lookAgain(ctx, r)
	}
	return r.Report, err
}

// lookAgain is for ports what putPort does after it has written: other servers may have written the same ports since the snapshot. What the
// resync made of a port of which there is a later revision is taken back; a port that is not as it should be is written once more. One of
// which nothing is stored was deleted meanwhile.
func (w *writer) lookAgain(ctx context.Context, r *pass) error {
	now, err := w.snapshot(ctx)
	if err != nil {
		return err
	}
	stored := map[string][]api.Update{}
	for _, u := range slices.SortedFunc(maps.Values(now), w.rank) {
		if kind, id, _ := w.mine(u.Key); kind == "port" && r.ports[id] != nil {
			stored[id] = append(stored[id], u)
		}
	}
	for id, of := range stored {
		p := r.ports[id]
		switch { // revisions of one port: later than that of the resync, or earlier
		case slices.ContainsFunc(of, func(u api.Update) bool { return revisionOf(u) > p.Revision }):
			err = w.takeBack(ctx, of, r.made)
		case r.raced["port "+id], slices.ContainsFunc(of, func(u api.Update) bool { return revisionOf(u) < p.Revision }):
			_, err = w.putPort(ctx, p)
		}
		if err := w.only(&r.Report, "port "+id, err); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) note(what string, problems []string) {
	for _, p := range problems {
		r.Problems = append(r.Problems, what+": "+p)
	}
}

// onePort writes what becomes of a port. If somebody was faster with one part of it, what is stored of the other parts is theirs to say, too.
func (w *writer) onePort(ctx context.Context, r *pass, p *Port) error {
	what := "port " + p.ID
	want, problems := w.region.port(p)
	r.note(what, problems)
	r.ports[p.ID] = p
	if slices.ContainsFunc(r.known[p.ID], func(u api.Update) bool { return revisionOf(u) > p.Revision }) { // of a database that lags behind another
		w.keep(r.left, "port", p.ID)
		return nil
	}
	all := want.resources()
	keepNames(p, all, r.known[p.ID])
	for _, res := range all {
		done, err := w.one(ctx, r, what, res)
		if err != nil {
			return err
		}
		if !done {
			w.keep(r.left, "port", p.ID)
			break
		}
	}
	if want.endpoint != nil {
		r.Ports++
	}
	return nil
}

// one writes a resource over what the snapshot has of it, and returns whether it could.
func (w *writer) one(ctx context.Context, r *pass, what string, res api.Resource) (done bool, err error) {
	key, err := api.Key(res)
	if err == nil {
		seen, ok := r.left[key]
		if !ok {
			seen = api.Update{Key: key}
		}
		delete(r.left, key)
		var now api.Update
		now, err = w.over(ctx, seen, res)
		if errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) { // its revision says who knows better; what is gone is gone
			if seen, err = w.store.Get(ctx, key); err == nil {
				ok = true
				now, err = w.over(ctx, seen, res)
			}
		}
		if err != nil {
			r.raced[what] = true
		}
		if err == nil && now.Revision != seen.Revision {
			r.Written++
			if !ok {
				r.made[key] = now
			}
		}
	}
	return err == nil, w.only(&r.Report, what, err)
}

func (w *writer) oneSubnet(ctx context.Context, r *pass, s *Subnet) error {
	kv, err := w.region.subnet(s)
	if err != nil {
		w.keep(r.left, "subnet", s.ID)
		return w.only(&r.Report, "subnet "+s.ID, err)
	}
	if kv.Value == nil {
		return nil
	}
	r.Subnets++
	seen := r.left[kv.Key]
	delete(r.left, kv.Key)
	err = w.overKey(ctx, seen, kv)
	if err == nil && !bytes.Equal(seen.Value, kv.Value) {
		r.Written++
	}
	return w.only(&r.Report, "subnet "+s.ID, err)
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
func (w *writer) sweep(ctx context.Context, r *pass) error {
	for _, u := range slices.SortedFunc(maps.Values(r.left), w.rank) {
		err := resources.DeleteSeen(ctx, w.store, u)
		if err == nil {
			r.Deleted++
			w.log.Debug("Neutron has it no more", "key", u.Key)
		}
		if err := w.only(&r.Report, u.Key, err); err != nil {
			return err
		}
	}
	return nil
}
