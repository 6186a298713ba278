package migration_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/resources/migration"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const prefix = api.ResourcesPrefix

// export is a small one, with what is seen twice: the configuration of address management.
func export() []migration.Entry {
	return []migration.Entry{
		{Key: api.IPAMConfigKey, Value: []byte(`{"strict_affinity":true,"auto_allocate_blocks":true}`)},
		{Key: prefix + "clusterinformations/default", Value: []byte(`{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"g","datastoreReady":true}}`)},
		{Key: prefix + "globalnetworksets/a", Value: []byte(`{"kind":"GlobalNetworkSet","metadata":{"name":"a","uid":"u"},"spec":{"nets":["10.0.0.0/8"],"newer":1}}`)},
		{Key: prefix + "ipamconfigurations/default", Value: []byte(`{"kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":false,"autoAllocateBlocks":true}}`)},
		{Key: prefix + "tiers/default", Value: []byte(`{"kind":"Tier","metadata":{"name":"default"},"spec":{"order":1000000,"defaultAction":"Deny"}}`)},
		{Key: prefix + "unknowns/a", Value: []byte("no\x00json")},
	}
}

func nothing() {}

// into prepares and carries out an import, as a command does, to which the configuration of address management is a resource.
func into(t *testing.T, s datastore.Store) (migration.Plan, error) {
	t.Helper()
	s = resources.WithViews(s)
	plan, err := migration.Prepare(t.Context(), s, export(), nothing)
	if err == nil {
		err = plan.Carry(t.Context(), s, nothing)
	}
	return plan, err
}

func stored(t *testing.T, s datastore.Store) map[string]string {
	t.Helper()
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range snap.Items {
		out[u.Key] = string(u.Value)
	}
	return out
}

// want is what must be there: every value as it was, and the datastore locked.
func want(t *testing.T, s datastore.Store) {
	t.Helper()
	have := stored(t, s)
	for _, e := range export() {
		if value := strings.Replace(string(e.Value), `"datastoreReady":true`, `"datastoreReady":false`, 1); have[e.Key] != value {
			t.Errorf("%s is %q, want %q", e.Key, have[e.Key], value)
		}
	}
	if len(have) != len(export()) {
		t.Errorf("%d keys: %v", len(have), have)
	}
}

func TestAnImportThatFailedAtAnyWriteIsRepeated(t *testing.T) {
	for n := range len(export()) + 1 { // ClusterInformation takes two: it may be there
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s, writes := storetest.New(t), 0
			s.Fail(func(op memstore.Op) error {
				if op.Verb != "create" && op.Verb != "update" {
					return nil
				}
				if writes++; writes == n+1 {
					return datastore.ErrUnavailable
				}
				return nil
			})
			if _, err := into(t, s); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "import again") {
				t.Fatalf("a write that fails: %v", err)
			}
			s.Fail(nil)
			for range 2 { // the second time there is nothing to do but to keep it locked
				plan, err := into(t, s)
				if err != nil {
					t.Fatal(err)
				}
				want(t, s)
				if got := plan.Count(migration.Updated); got != 1 || plan.Count(migration.LeftOut) != 0 {
					t.Errorf("%+v", plan)
				}
			}
		})
	}
}

func TestWhatIsThereAndIsAnotherIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	for name, tt := range map[string]struct{ key, value, says string }{
		"another value":        {prefix + "globalnetworksets/a", `{"kind":"GlobalNetworkSet","metadata":{"name":"a"},"spec":{"nets":["10.0.0.0/9"],"newer":1}}`, `globalnetworkset/a is there already, and is another: spec.nets[0] 10.0.0.0/9 → 10.0.0.0/8`},
		"a field more":         {prefix + "globalnetworksets/a", `{"kind":"GlobalNetworkSet","metadata":{"name":"a"},"spec":{"nets":["10.0.0.0/8"],"newer":1,"x":false}}`, "spec.x false → nothing"},
		"other labels":         {prefix + "globalnetworksets/a", `{"kind":"GlobalNetworkSet","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"nets":["10.0.0.0/8"],"newer":1}}`, "metadata.labels"},
		"other bytes":          {prefix + "unknowns/a", "no\x01json", "unknowns/a is there already, and is another: its bytes differ"},
		"not in the export":    {prefix + "globalnetworkpolicies/open", `{"kind":"GlobalNetworkPolicy","metadata":{"name":"open"},"spec":{}}`, "globalnetworkpolicy/open is there already, and is not in the export"},
		"another address":      {api.IPAMPrefix + "handle/x", `{"block":{"10.65.0.0/26":1}}`, "/calico/ipam/v2/handle/x is there already"},
		"a setting of its own": {api.IPAMConfigKey, `{"strict_affinity":false,"auto_allocate_blocks":true}`, "strict_affinity false → true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			if _, err := s.Create(t.Context(), api.Update{Key: tt.key, Value: []byte(tt.value)}); err != nil {
				t.Fatal(err)
			}
			_, err := into(t, s)
			var refused *migration.RefusedError
			if !errors.As(err, &refused) || len(refused.Problems) != 1 || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want %q", err, tt.says)
			}
			if have := stored(t, s); len(have) != 1 || have[tt.key] != tt.value {
				t.Errorf("it holds %v", have)
			}
		})
	}
}

// What any first write makes is there in every datastore, and a running agent's report is of no harm.
func TestWhatEveryDatastoreHasIsNotInTheWay(t *testing.T) {
	s := storetest.New(t)
	report := migration.Transient + "v2/no-region/host/h1/status"
	for key, value := range map[string]string{
		prefix + "clusterinformations/default": `{"kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"clusterGUID":"other","datastoreReady":true}}`,
		prefix + "tiers/default":               `{"kind":"Tier","metadata":{"name":"default"},"spec":{"order":7}}`,
		report:                                 `{}`,
	} {
		if _, err := s.Create(t.Context(), api.Update{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := into(t, s); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), report, api.Revision{}); err != nil {
		t.Error(err)
	}
	want(t, s)
}

func TestADatastoreThatIsAwayIsNoRefusal(t *testing.T) {
	s := storetest.New(t)
	s.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	var refused *migration.RefusedError
	if _, err := into(t, s); !errors.Is(err, datastore.ErrUnavailable) || errors.As(err, &refused) {
		t.Errorf("error %v", err)
	}
}
