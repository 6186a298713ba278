package kubestore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// pageSize is how many objects are in one answer, unless the settings say so.
const pageSize = 500

// holder is the kind that holds a key.
func holder(kinds []form.Kind, key string) (form.Kind, bool) {
	for _, k := range kinds {
		if _, _, ok := k.Name(key); ok && (k.Prefix != "" || isRecord(key)) {
			return k, true
		}
	}
	return form.Kind{}, false
}

// isRecord: no resource or address management can have the key, so a record may.
func isRecord(key string) bool {
	return !strings.HasPrefix(key, api.ResourcesPrefix) && !strings.HasPrefix(key, api.IPAMPrefix)
}

// under are the kinds that may hold keys with a prefix.
func under(kinds []form.Kind, prefix string) []form.Kind {
	var out []form.Kind
	for _, k := range kinds {
		if k.Prefix == "" && isRecord(prefix) || k.Prefix != "" && (strings.HasPrefix(k.Prefix, prefix) || strings.HasPrefix(prefix, k.Prefix)) {
			out = append(out, k)
		}
	}
	return out
}

// namespaceOf is the namespace to which a prefix keeps; empty if it does not, or not all.
func namespaceOf(k form.Kind, prefix string) string {
	rest, ok := strings.CutPrefix(prefix, k.Prefix)
	namespace, _, whole := strings.Cut(rest, "/")
	if !k.Namespaced || k.Prefix == "" || !ok || !whole || !strings.HasPrefix(k.Prefix, api.ResourcesPrefix) || strings.HasPrefix(k.Prefix, api.KeyPrefix(api.KindProfile, "")) {
		return ""
	}
	return namespace
}

// Get returns the present value of a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (api.Update, error) {
	e, _, err := s.object(ctx, key)
	if err != nil {
		return api.Update{}, wrap("get", key, err)
	}
	return updateOf(e), nil
}

// object reads the object of a key, as an entry and as the server sent it.
func (s *Store) object(ctx context.Context, key string) (form.Entry, []byte, error) {
	kinds, err := s.known(ctx)
	if err != nil {
		return form.Entry{}, nil, err
	}
	k, ok := holder(kinds, key)
	if ok && s.cfg.Views && !s.has(k) { // its reader must know whether it is gone, or nobody can say
		return form.Entry{}, nil, s.lacks(k)
	}
	if !ok || !s.has(k) {
		return form.Entry{}, nil, datastore.ErrNotFound
	}
	namespace, name, _ := k.Name(key)
	raw, err := s.get(ctx, pathOf(k, namespace, name, ""), mediaJSON, nil)
	if err != nil {
		return form.Entry{}, nil, err
	}
	e, err := k.Object(raw)
	if err == nil && (e.Key != key || e.Value == nil) {
		err = datastore.ErrNotFound
	}
	return e, raw, err
}

func updateOf(e form.Entry) api.Update {
	return api.Update{Key: e.Key, Value: e.Value, Revision: api.RevisionOf(e.Version)}
}

// List returns all keys under prefix. Those of one kind of objects are of one moment.
func (s *Store) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	var all datastore.Snapshot
	err := s.Pages(ctx, prefix, func(piece datastore.Snapshot, first bool) error {
		if first {
			all = datastore.Snapshot{}
		}
		all.Items, all.Position = append(all.Items, piece.Items...), piece.Position
		return nil
	})
	if err != nil {
		return datastore.Snapshot{}, err
	}
	return all, nil
}

// Pages implements [datastore.Paged].
func (s *Store) Pages(ctx context.Context, prefix string, page func(piece datastore.Snapshot, first bool) error) error {
	kinds, err := s.known(ctx)
	for attempt := 1; err == nil; attempt++ {
		err = s.pages(ctx, under(kinds, prefix), prefix, attempt, page)
		if err == nil {
			return nil
		}
		if !errors.Is(err, datastore.ErrCompacted) || attempt > pagedAttempts {
			break
		}
		err = nil // a piece came too late; the list begins once more
	}
	return wrap("list", prefix, err)
}

// pagedAttempts is how often a list is begun again in pieces. After that each kind is asked for as a whole, which cannot come too late.
const pagedAttempts = 3

func (s *Store) pages(ctx context.Context, kinds []form.Kind, prefix string, attempt int, page func(piece datastore.Snapshot, first bool) error) error {
	versions, first := map[string]string{}, true
	var served []form.Kind
	for _, k := range kinds {
		if s.has(k) {
			served = append(served, k)
		} else {
			versions[k.ID()] = absent
		}
	}
	for _, k := range served {
		params := map[string]string{"limit": strconv.FormatInt(s.pageSize(), 10)}
		if attempt > pagedAttempts {
			params = map[string]string{}
		}
		for more := true; more; {
			raw, err := s.get(ctx, pathOf(k, namespaceOf(k, prefix), "", ""), listAccept(k), params)
			if isMissing(err) { // it was there: see discover
				err = fmt.Errorf("%w: %w", datastore.ErrUnavailable, err)
			}
			if err != nil {
				return err
			}
			p, err := k.List(raw)
			if err == nil && p.Version == "" { // as in whatever else is an object: a proxy's own answer must not empty a cluster
				err = errors.New("the answer is no list: it has no version")
			}
			if err != nil {
				return fmt.Errorf("%w: %s: %w", datastore.ErrUnavailable, k.ID(), err)
			}
			if versions[k.ID()] == "" {
				versions[k.ID()] = p.Version
			}
			if err := page(datastore.Snapshot{Items: within(p.Entries, prefix), Position: positionOf(versions)}, first); err != nil {
				return err
			}
			first, more = false, p.Next != ""
			params["continue"] = p.Next
		}
	}
	if first { // there is no kind to ask for
		return page(datastore.Snapshot{Position: positionOf(versions)}, true)
	}
	return nil
}

// listAccept is the one form in which a kind is asked for.
func listAccept(k form.Kind) string {
	accept, _, _ := strings.Cut(k.Accept(), ",")
	return accept
}

func (s *Store) pageSize() int64 {
	if s.cfg.PageSize > 0 {
		return s.cfg.PageSize
	}
	return pageSize
}

// within are the updates of entries that say something under a prefix.
func within(entries []form.Entry, prefix string) []api.Update {
	out := make([]api.Update, 0, len(entries))
	for _, e := range entries {
		if e.Value != nil && e.Key != "" && strings.HasPrefix(e.Key, prefix) {
			out = append(out, updateOf(e))
		}
	}
	return out
}

func wrap(verb, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, key, err)
}
