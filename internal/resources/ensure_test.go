package resources_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources"
)

func TestADatastoreIsMadeReadyAndWhatIsThereStays(t *testing.T) {
	c := newCLI(t)
	c.Raw("tiers/default", `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"mine"},"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}}`)
	for range 2 {
		if _, err := resources.Ensure(t.Context(), c.Store); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Store.List(t.Context(), api.ResourcesPrefix)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range all.Sorted() {
		names = append(names, strings.TrimPrefix(kv.Key, api.ResourcesPrefix))
		st, err := api.DecodeStored(kv)
		if err != nil || len(st.Problems) > 0 || st.Closed != "" {
			t.Errorf("%s: %v, %v, %s", kv.Key, err, st.Problems, st.Closed)
		}
	}
	clitest.Equal(t, strings.Join(names, " "), "clusterinformations/default tiers/default tiers/kube-admin tiers/kube-baseline")
	clitest.Contains(t, c.Stored("tiers/default"), `"uid":"mine"`)
	clitest.Contains(t, c.Stored("tiers/kube-admin"), `"spec":{"order":1000,"defaultAction":"Pass"},"status":{}`)
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"datastoreReady":true`, `"clusterGUID":"`, `"clusterType":"twill"`)
}

// TestADatastoreThatIsReadyIsOnlyRead: a host's own role may read all, and write none of these (docs/etcd.md).
func TestADatastoreThatIsReadyIsOnlyRead(t *testing.T) {
	store := storetest.New(t)
	if _, err := resources.Ensure(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	store.Fail(func(o memstore.Op) error {
		if o.Verb != "get" && o.Verb != "list" {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	if _, err := resources.Ensure(t.Context(), store); err != nil {
		t.Errorf("all is there, and who may not write it got %v", err)
	}
}
