package memstore_test

import (
	"errors"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) datastore.Store { return memstore.New() })
}

func TestFaults(t *testing.T) {
	s := memstore.New()
	w, err := s.Watch(t.Context(), "/", s.Position())
	if err != nil {
		t.Fatal(err)
	}
	s.DropWatches(nil)
	if _, err := w.Next(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("dropped watch: got %v", err)
	}
	s.Fail(func(op memstore.Op) error {
		if op.Verb == "create" {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	if _, err := s.Create(t.Context(), api.Update{Key: "/a"}); !errors.Is(err, datastore.ErrUnauthorized) {
		t.Errorf("create: got %v", err)
	}
	if snap, err := s.List(t.Context(), "/"); err != nil || len(snap.Items) != 0 {
		t.Errorf("a failed create left %v, error %v", snap.Items, err)
	}
	s.Fail(nil)
	if _, err := s.Create(t.Context(), api.Update{Key: "/a"}); err != nil {
		t.Error(err)
	}
}
