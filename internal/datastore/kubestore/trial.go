package kubestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// theConfiguration is a second way to see the object of [api.IPAMConfigKey].
var theConfiguration = api.KeyPrefix(api.KindIPAMConfiguration, "") + api.IPAMConfigurationName

// PlaceOf implements [datastore.Judging].
func (s *Store) PlaceOf(ctx context.Context, key string) (datastore.Place, error) {
	kinds, err := s.known(ctx)
	if err != nil {
		return datastore.PlaceNone, wrap("place", key, err)
	}
	k, ok := holder(kinds, key)
	switch {
	case !ok:
		return datastore.PlaceNone, nil
	case key == theConfiguration:
		return datastore.PlaceView, nil
	case !k.View:
		return datastore.PlaceOwn, nil
	case k.Prefix == api.KeyPrefix(api.KindNode, ""), k.Prefix == api.KeyPrefix(api.KindWorkloadEndpoint, ""):
		return datastore.PlacePart, nil
	}
	return datastore.PlaceView, nil
}

// Try implements [datastore.Judging]: the API server judges a request as it would any, its defaults and admission included, and keeps nothing of it.
func (s *Store) Try(ctx context.Context, kv api.Update) (api.Update, error) {
	out, err := s.try(ctx, kv)
	return out, wrap("try", kv.Key, err)
}

func (s *Store) try(ctx context.Context, kv api.Update) (api.Update, error) {
	kv.Revision = api.Revision{}
	k, err := s.writable(ctx, kv.Key)
	if err != nil {
		return api.Update{}, err
	}
	var req form.Request
	_, was, err := s.object(ctx, kv.Key)
	switch {
	case err == nil:
		req, err = k.Replace(kv, was)
	case isMissing(err):
		req, err = k.Create(kv)
	}
	if err != nil {
		return api.Update{}, err
	}
	raw, err := s.sendWith(ctx, k, req, map[string]string{"dryRun": "All"})
	switch {
	case isMissing(err) && req.Method == "POST":
		return api.Update{}, noNamespace(err)
	case errors.Is(err, datastore.ErrExists): // somebody has marked it as deleted, and who creates it deletes it first
		return api.Update{Key: kv.Key, Value: kv.Value}, nil
	case err != nil:
		return api.Update{}, err
	}
	e, err := k.Object(raw)
	return api.Update{Key: e.Key, Value: e.Value}, err
}

// noNamespace is the error of what cannot be created since its namespace is not there. It is no ErrNotFound of the key.
func noNamespace(err error) error {
	return fmt.Errorf("there is no such namespace: %v", err) //nolint:errorlint // see above
}
