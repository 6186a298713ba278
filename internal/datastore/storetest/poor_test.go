package storetest_test

import (
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func TestAPoorStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) datastore.Store { return storetest.NewPoor(t) })
}

func TestAPoorStoreHasNothingElse(t *testing.T) {
	var s datastore.Store = storetest.NewPoor(t)
	_, txn := s.(datastore.Transactional)
	_, expiring := s.(datastore.Expiring)
	_, compacter := s.(datastore.Compacter)
	if txn || expiring || compacter || datastore.OrderOf(s) != nil {
		t.Error("it has what Kubernetes has not")
	}
}
