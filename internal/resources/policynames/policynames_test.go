package policynames_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/resources/policynames"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const old = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"default.web","namespace":"prod","uid":"u1","creationTimestamp":"2020-01-02T03:04:05Z",` +
	`"labels":{"app":"x"},"annotations":{"note":"kept"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"o"}]},` +
	`"spec":{"tier":"default","order":10,"selector":"all()","later":1}}`

const renamed = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1","creationTimestamp":"2020-01-02T03:04:05Z",` +
	`"labels":{"app":"x","projectcalico.org/tier":"default"},"annotations":{"note":"kept","projectcalico.org/metadata":"{\"name\":\"web\"}"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"o"}]},` +
	`"spec":{"tier":"default","order":10,"selector":"all()","later":1}}`

func put(t *testing.T, s datastore.Store, key, value string) {
	t.Helper()
	if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// keys are all policies, by key.
func keys(t *testing.T, s datastore.Store) map[string]string {
	t.Helper()
	snap, err := s.List(t.Context(), api.ResourcesPrefix)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range snap.Items {
		out[strings.TrimPrefix(u.Key, api.ResourcesPrefix)] = string(u.Value)
	}
	return out
}

// all renames everything, and says in a line each what became of it.
func all(t *testing.T, s datastore.Store, r policynames.Renaming) (out []string, err error) {
	t.Helper()
	found, err := policynames.Find(t.Context(), s)
	if err != nil {
		return nil, err
	}
	for _, step := range found {
		did, err := r.Rename(t.Context(), s, step)
		if err != nil {
			return out, err
		}
		line := did.Policy + " of " + did.Stored + " " + did.What
		if did.Note != "" {
			line += ": " + did.Note
		}
		out = append(out, line)
	}
	return out, nil
}

func TestPoliciesAreStoredByTheNamesOfTheirUsers(t *testing.T) {
	named := func(kind, name, spec string) string {
		return fmt.Sprintf(`{"kind":%q,"metadata":{"name":"x","annotations":{"projectcalico.org/metadata":"{\"name\":\"%s\"}"}},"spec":{%s}}`, kind, name, spec)
	}
	for _, tt := range []struct {
		name       string
		key, value string
		want       string // empty: it needs nothing
		now        string // its key afterwards
	}{
		{"of a namespace", "networkpolicies/prod/default.web", old, "networkpolicy/prod/web of default.web renamed", "networkpolicies/prod/web"},
		{"global, and says its name", "globalnetworkpolicies/default.a", named("GlobalNetworkPolicy", "a", ""), "globalnetworkpolicy/a of default.a renamed", "globalnetworkpolicies/a"},
		{"staged", "stagednetworkpolicies/prod/default.a", `{"kind":"StagedNetworkPolicy","spec":{"stagedAction":"Set"}}`, "stagednetworkpolicy/prod/a of default.a renamed", "stagednetworkpolicies/prod/a"},
		{"staged and global", "stagedglobalnetworkpolicies/default.a", `{"kind":"StagedGlobalNetworkPolicy","spec":{}}`, "stagedglobalnetworkpolicy/a of default.a renamed", "stagedglobalnetworkpolicies/a"},
		{"the user's own name begins so", "globalnetworkpolicies/default.a", named("GlobalNetworkPolicy", "default.a", ""), "", "globalnetworkpolicies/default.a"},
		{"of today", "globalnetworkpolicies/a", named("GlobalNetworkPolicy", "a", ""), "", "globalnetworkpolicies/a"},
		{"of another tier, whose names always began with it", "globalnetworkpolicies/sec.a", named("GlobalNetworkPolicy", "sec.a", `"tier":"sec"`), "", "globalnetworkpolicies/sec.a"},
		{
			"of another tier, with two names", "globalnetworkpolicies/sec.a", named("GlobalNetworkPolicy", "sec.b", `"tier":"sec"`),
			"globalnetworkpolicy/sec.b of sec.a left alone: it is in tier sec, and upstream gave another name to the keys of tier default alone", "globalnetworkpolicies/sec.a",
		},
		{"made of one of Kubernetes", "networkpolicies/prod/knp.default.web", `{"kind":"NetworkPolicy","spec":{"tier":"default"}}`, "", "networkpolicies/prod/knp.default.web"},
		{
			"without a meaning", "globalnetworkpolicies/default.a", `[]`,
			"globalnetworkpolicy/a of default.a refused: what is stored cannot be read; apply it anew, or delete it", "globalnetworkpolicies/default.a",
		},
		{
			"that is being deleted", "globalnetworkpolicies/default.a", `{"kind":"GlobalNetworkPolicy","metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{}}`,
			"globalnetworkpolicy/a of default.a left alone: it is being deleted, and goes with its last finalizer", "globalnetworkpolicies/default.a",
		},
		{"another kind", "globalnetworksets/default.a", `{"kind":"GlobalNetworkSet","spec":{}}`, "", "globalnetworksets/default.a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storetest.New(t)
			put(t, s, tt.key, tt.value)
			before := keys(t, s)
			dry, err := all(t, s, policynames.Renaming{Dry: true})
			if err != nil || !maps.Equal(keys(t, s), before) {
				t.Errorf("dry: %v, and what is stored is %v", err, keys(t, s))
			}
			did, err := all(t, s, policynames.Renaming{})
			if err != nil || strings.Join(did, "\n") != tt.want || !slices.Equal(dry, did) {
				t.Errorf("%v, got %q, dry %q, want %q", err, did, dry, tt.want)
			}
			if has := slices.Collect(maps.Keys(keys(t, s))); !slices.Equal(has, []string{tt.now}) {
				t.Errorf("stored are %q, want %q", has, tt.now)
			}
		})
	}
}

func TestAllElseThatIsStoredStays(t *testing.T) {
	s := storetest.New(t)
	put(t, s, "networkpolicies/prod/default.web", old)
	if _, err := all(t, s, policynames.Renaming{}); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s)["networkpolicies/prod/web"]; got != renamed {
		t.Errorf("got\n%s\nwant\n%s", got, renamed)
	}
}

func TestANameThatIsTakenIsRefused(t *testing.T) {
	const key = "networkpolicies/prod/web"
	another := strings.Replace(renamed, `"order":10`, `"order":20`, 1)
	for _, tt := range []struct {
		name, other string
		keep        bool
		want        string
		left        string // which keys
	}{
		{"by the same policy: a run was killed", renamed, false, "networkpolicy/prod/web of default.web removed", key},
		{"by one with other labels", strings.Replace(renamed, `"app":"x"`, `"app":"y"`, 1), false, "networkpolicy/prod/web of default.web removed", key},
		{"by one that says its tier", renamed, false, "networkpolicy/prod/web of default.web removed", key},
		{
			"by another", another, false,
			"networkpolicy/prod/web of default.web refused: another policy of that name is stored as web (spec.order 10 → 20): delete the one that is wrong, or keep the newer name with --keep-newer", "networkpolicies/prod/default.web " + key,
		},
		{"by another, which its user wants to keep", another, true, "networkpolicy/prod/web of default.web removed", key},
		{
			"by one of another name", strings.Replace(renamed, `\"web\"`, `\"api\"`, 1), true,
			"networkpolicy/prod/web of default.web refused: networkpolicy/prod/api is stored under that name; rename that first, or delete one of them", "networkpolicies/prod/default.web " + key,
		},
		{"by nothing that can be read", `"x"`, true, "networkpolicy/prod/web of default.web refused: what is stored as web cannot be read; delete that, and rename again", "networkpolicies/prod/default.web " + key},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storetest.New(t)
			put(t, s, "networkpolicies/prod/default.web", strings.Replace(old, `"tier":"default",`, "", 1))
			put(t, s, key, tt.other)
			found, err := policynames.Find(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			found = slices.DeleteFunc(found, func(s policynames.Step) bool { return s.Stored != "default.web" })
			did, err := policynames.Renaming{KeepNews: tt.keep}.Rename(t.Context(), s, found[0])
			if got := strings.TrimSuffix(did.Policy+" of "+did.Stored+" "+did.What+": "+did.Note, ": "); err != nil || got != tt.want {
				t.Errorf("%v, got %q, want %q", err, got, tt.want)
			}
			stored := keys(t, s)
			if has := strings.Join(slices.Sorted(maps.Keys(stored)), " "); has != tt.left || stored[key] != tt.other {
				t.Errorf("stored are %s, want %s; under the name is %s", has, tt.left, stored[key])
			}
		})
	}
}

// TestARunThatIsKilledAtAnyCallIsRepeated: at each moment each policy is there, once or, where there are no transactions, twice and equal, and the next
// run ends as one that was not disturbed.
func TestARunThatIsKilledAtAnyCallIsRepeated(t *testing.T) {
	for n := 0; ; n++ {
		s, calls, watching := storetest.New(t), 0, false
		for _, name := range []string{"a", "b"} {
			put(t, s, "globalnetworkpolicies/default."+name, `{"kind":"GlobalNetworkPolicy","metadata":{"name":"default.`+name+`"},"spec":{"order":7}}`)
		}
		s.Fail(func(memstore.Op) error {
			if watching {
				return nil // what this test reads itself
			}
			watching = true
			inForce(t, s)
			watching = false
			if calls++; calls > n {
				return datastore.ErrUnavailable
			}
			return nil
		})
		_, err := all(t, s, policynames.Renaming{})
		if err != nil && !errors.Is(err, datastore.ErrUnavailable) {
			t.Error(err)
		}
		s.Fail(nil)
		inForce(t, s)
		if _, again := all(t, s, policynames.Renaming{}); again != nil {
			t.Error(again)
		}
		if has := strings.Join(slices.Sorted(maps.Keys(keys(t, s))), " "); has != "globalnetworkpolicies/a globalnetworkpolicies/b" {
			t.Errorf("killed at call %d: stored are %s", n, has)
		}
		if err == nil {
			if n < 8 {
				t.Errorf("all is done after %d calls: this test kills nothing", n)
			}
			return
		}
	}
}

// TestAnotherWriterIsNotOverwritten: what somebody does to the policy meanwhile counts, under whichever name.
func TestAnotherWriterIsNotOverwritten(t *testing.T) {
	const older, newer = "globalnetworkpolicies/default.a", "globalnetworkpolicies/a"
	policy := func(order int) string {
		return fmt.Sprintf(`{"kind":"GlobalNetworkPolicy","metadata":{"name":"a","annotations":{"projectcalico.org/metadata":"{\"name\":\"a\"}"},"labels":{"projectcalico.org/tier":"default"}},"spec":{"order":%d}}`, order)
	}
	for _, tt := range []struct {
		name string
		does func(t *testing.T, s datastore.Store)
		want map[string]string
	}{
		{"changes it", func(t *testing.T, s datastore.Store) { put(t, s, older, policy(8)) }, map[string]string{newer: policy(8)}},
		{"deletes it", func(t *testing.T, s datastore.Store) {
			if err := s.Delete(t.Context(), api.ResourcesPrefix+older, api.Revision{}); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{}},
	} {
		for _, verb := range []string{"create", "delete", "transact"} {
			t.Run(tt.name+" before "+verb, func(t *testing.T) {
				s, once := storetest.New(t), false
				put(t, s, older, policy(7))
				s.Fail(func(op memstore.Op) error {
					if op.Verb == verb && !once {
						once = true
						tt.does(t, s)
					}
					return nil
				})
				if _, err := all(t, s, policynames.Renaming{}); err != nil {
					t.Error(err)
				}
				if has := keys(t, s); once && !maps.Equal(has, tt.want) {
					t.Errorf("stored are %v, want %v", has, tt.want)
				}
			})
		}
	}
}

func TestWhereOlderAgentsMayRun(t *testing.T) {
	const felix = api.Root + "felix/v2/no-region/host/"
	for _, tt := range []struct {
		name, version string
		reports       map[string]string // by the end of its key
		want          string
	}{
		{"nothing is known", "", nil, "no agent of Twill's reports on n1, n2, and the cluster's calicoVersion is not v3.32 or later"},
		{"Twill's on one", "v3.31.9", map[string]string{"n1/status": `{"time":"2026-01-02T03:04:05Z","version":"dev"}`}, "on n2,"},
		{
			"Twill's on all, that ended on one, where Calico's may run, which says nothing", "", map[string]string{
				"n1/last_reported_status": `{"time":"2026-01-02T03:04:05Z","version":"dev"}`, "n2/status": `{"version":"dev"}`,
			}, "on n1,",
		},
		{
			"the same, where keys do not expire", "", map[string]string{
				"n1/status": `{"time":"2026-01-02T03:04:05Z","version":"dev","expires":"2026-01-02T03:05:35Z"}`, "n2/status": `{"version":"dev"}`,
			}, "on n1,",
		},
		{"Twill's on all", "", map[string]string{"n1/status": `{"time":"2026-01-02T03:04:05Z","version":"dev"}`, "n2/status": `{"version":"dev"}`}, ""},
		{
			"Calico's, where Twill's was before", "", map[string]string{
				"n1/last_reported_status": `{"time":"2026-01-02T03:04:05Z","version":"dev"}`, "n1/status": `{"time":"2026-02-02T03:04:05Z"}`, "n2/status": `{"version":"dev"}`,
			}, "on n1,",
		},
		{"Calico of a version that knows", "v3.32.2", nil, ""},
		{"Calico of a later one", "v4.0.0", nil, ""},
		{"a version that cannot be read", "v3.x", nil, "on n1, n2,"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := storetest.New(t)
			put(t, s, "nodes/n1", `{}`)
			put(t, s, "nodes/n2", `{}`)
			if tt.version != "" {
				put(t, s, "clusterinformations/default", `{"spec":{"calicoVersion":"`+tt.version+`"}}`)
				put(t, s, "clusterinformations/other", `{"spec":{"calicoVersion":"v9.9.9"}}`)
			}
			for key, value := range tt.reports {
				if _, err := s.Create(t.Context(), api.Update{Key: felix + key, Value: []byte(value)}); err != nil {
					t.Fatal(err)
				}
			}
			err := policynames.CheckAgents(t.Context(), s)
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %q", got, tt.want)
			}
		})
	}
}

// inForce wants each policy to be there, and what is there of it to be equal.
func inForce(t *testing.T, s datastore.Store) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		has := 0
		for key, value := range keys(t, s) {
			var doc struct{ Spec struct{ Order int } }
			if strings.TrimPrefix(strings.TrimPrefix(key, "globalnetworkpolicies/"), "default.") != name {
				continue
			}
			if has++; json.Unmarshal([]byte(value), &doc) != nil || doc.Spec.Order != 7 {
				t.Errorf("%s is %s", key, value)
			}
		}
		if has == 0 || has > 1 && !storetest.IsPoor() {
			t.Errorf("%s is there %d times", name, has)
		}
	}
}
