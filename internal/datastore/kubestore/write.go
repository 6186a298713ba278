package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// writeTries is how often an update that does not say of which revision is made again when somebody else was quicker.
const writeTries = 10

// writable is the kind in which a key can be written.
func (s *Store) writable(ctx context.Context, key string) (form.Kind, error) {
	kinds, err := s.known(ctx)
	if err != nil {
		return form.Kind{}, err
	}
	k, ok := holder(kinds, key)
	if !ok {
		return k, errors.New("no object of Kubernetes could hold this")
	}
	if !s.has(k) {
		if _, err := s.discover(ctx); err != nil {
			return k, err
		}
		if !s.has(k) {
			return k, fmt.Errorf("the cluster has no %s in %s; install what it lacks: twill kube crds | kubectl apply -f -", k.Plural, k.Path)
		}
	}
	return k, nil
}

// Derives implements [datastore.Deriving]: an endpoint is made of a pod.
func (s *Store) Derives(key string) bool {
	ref, ok := api.ParseKey(key)
	return ok && ref.Kind == api.KindWorkloadEndpoint
}

// Create writes a new key, or returns ErrExists.
func (s *Store) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	out, err := s.create(ctx, kv)
	return out, wrap("create", kv.Key, err)
}

func (s *Store) create(ctx context.Context, kv api.Update) (api.Update, error) {
	k, err := s.writable(ctx, kv.Key)
	if err != nil {
		return api.Update{}, err
	}
	req, err := k.Create(kv)
	if err != nil {
		return api.Update{}, err
	}
	if req.Method == "PATCH" { // of an object that is there, which may be of the key already
		switch _, _, err := s.object(ctx, kv.Key); {
		case err == nil:
			return api.Update{}, datastore.ErrExists
		case !isMissing(err):
			return api.Update{}, err
		}
	}
	for try := 1; ; try++ {
		out, err := s.write(ctx, k, kv, req)
		switch {
		case isMissing(err) && req.Method == "POST":
			return out, noNamespace(err)
		case !errors.Is(err, datastore.ErrExists) || try > 1:
			return out, err
		}
		gone, clearErr := s.clear(ctx, k, kv.Key)
		if clearErr != nil || !gone {
			return out, err
		}
	}
}

// clear deletes an object that somebody has marked as deleted, and says whether it did.
func (s *Store) clear(ctx context.Context, k form.Kind, key string) (bool, error) {
	namespace, name, _ := k.Name(key)
	raw, err := s.get(ctx, pathOf(k, namespace, name, ""), mediaJSON, nil)
	if err != nil {
		return isMissing(err), nil
	}
	e, err := k.Object(raw)
	if err != nil || e.Value != nil || e.Key != key {
		return false, err
	}
	req, err := k.Remove(key, api.RevisionOf(e.Version))
	if err == nil {
		_, err = s.send(ctx, k, req)
	}
	return err == nil || isMissing(err), nil
}

// Update replaces an existing key, if it still has the revision given. After ErrUnavailable it is not known whether it was done.
func (s *Store) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	k, err := s.writable(ctx, kv.Key)
	for try := 1; err == nil; try++ {
		var out api.Update
		out, err = s.replace(ctx, k, kv)
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, datastore.ErrConflict) || !kv.Revision.IsZero() || try == writeTries {
			break
		}
		err = nil
	}
	return api.Update{}, wrap("update", kv.Key, err)
}

func (s *Store) replace(ctx context.Context, k form.Kind, kv api.Update) (api.Update, error) {
	var was []byte
	if !k.Whole || kv.Revision.IsZero() {
		var err error
		if _, was, err = s.object(ctx, kv.Key); err != nil {
			return api.Update{}, err
		}
	}
	req, err := k.Replace(kv, was)
	if err != nil {
		return api.Update{}, err
	}
	return s.write(ctx, k, kv, req)
}

// write sends a change, and the status with it where that is written apart.
func (s *Store) write(ctx context.Context, k form.Kind, kv api.Update, req form.Request) (api.Update, error) {
	raw, err := s.send(ctx, k, req)
	if err != nil {
		return api.Update{}, err
	}
	if s.statusApart(k) && req.Subresource == "" {
		if raw, err = s.writeStatus(ctx, k, req, raw); err != nil {
			return api.Update{}, err
		}
	}
	e, err := k.Object(raw)
	switch {
	case err == nil && e.Key != kv.Key:
		err = fmt.Errorf("the object is that of another key, %q", e.Key)
	case err == nil && e.Value == nil:
		err = errors.New("the object says nothing of it: a pod in its host's network, or one that has ended, is no endpoint")
	}
	return updateOf(e), err
}

// writeStatus writes the status of a request's body if the object that resulted has another.
func (s *Store) writeStatus(ctx context.Context, k form.Kind, req form.Request, now []byte) ([]byte, error) {
	var want, have map[string]any
	if err := errors.Join(json.Unmarshal(req.Body, &want), json.Unmarshal(now, &have)); err != nil {
		return nil, err
	}
	status, ok := want["status"]
	if empty, isMap := status.(map[string]any); !ok || isMap && len(empty) == 0 && have["status"] == nil || reflect.DeepEqual(status, have["status"]) {
		return now, nil
	}
	have["status"] = status
	body, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	metadata, _ := have["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return s.send(ctx, k, form.Request{Method: "PUT", Namespace: req.Namespace, Name: name, Subresource: "status", ContentType: mediaJSON, Body: body})
}

// Delete removes a key, if it still has the revision given. After ErrUnavailable it is not known whether it was done.
func (s *Store) Delete(ctx context.Context, key string, revision api.Revision) error {
	k, err := s.writable(ctx, key)
	if err != nil {
		return wrap("delete", key, err)
	}
	req, err := k.Remove(key, revision)
	if err == nil {
		_, err = s.send(ctx, k, req)
	}
	return wrap("delete", key, err)
}
