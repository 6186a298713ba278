package kubestore

import (
	"context"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// StatusOf is the object of a key, if its status is written apart from it; false: there is no such object, or its kind has no status.
func (s *Store) StatusOf(ctx context.Context, key string) (form.Origin, bool, error) {
	kinds, err := s.known(ctx)
	if err != nil {
		return form.Origin{}, false, err
	}
	k, ok := holder(kinds, key)
	if !ok || !s.statusApart(k) {
		return form.Origin{}, false, nil
	}
	namespace, name, _ := k.Name(key)
	return form.Origin{Namespace: namespace, Name: name, Path: pathOf(k, namespace, name, "")}, true, nil
}
