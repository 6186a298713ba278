package ctl

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func TestADatastoreIsMadeReadyAndWhatIsThereStays(t *testing.T) {
	c := newCLI(t)
	c.raw("tiers/default", `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"mine"},"spec":{"order":1000000,"defaultAction":"Deny"},"status":{}}`)
	for range 2 {
		if err := ensure(t.Context(), c.store); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.store.List(t.Context(), api.ResourcesPrefix)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, kv := range all.Items {
		names = append(names, strings.TrimPrefix(kv.Key, api.ResourcesPrefix))
		st, err := api.DecodeStored(kv)
		if err != nil || len(st.Problems) > 0 || st.Closed != "" {
			t.Errorf("%s: %v, %v, %s", kv.Key, err, st.Problems, st.Closed)
		}
	}
	equal(t, strings.Join(names, " "), "clusterinformations/default tiers/default tiers/kube-admin tiers/kube-baseline")
	contains(t, c.stored("tiers/default"), `"uid":"mine"`)
	contains(t, c.stored("tiers/kube-admin"), `"spec":{"order":1000,"defaultAction":"Pass"},"status":{}`)
	contains(t, c.stored("clusterinformations/default"), `"datastoreReady":true`, `"clusterGUID":"`)
}
