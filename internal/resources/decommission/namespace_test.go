package decommission

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// inProd is a cluster with all that can hang on the namespace prod, and what only looks so.
func inProd(t *testing.T) storetest.InMemory {
	t.Helper()
	s := cluster(t)
	for _, key := range []string{
		"networkpolicies/prod/web", "stagednetworkpolicies/prod/web", "stagedkubernetesnetworkpolicies/prod/web", "networksets/prod/lan", "kubernetesendpointslices/prod/web",
		"profiles/kns.prod", "profiles/ksa.prod.default",
		"networkpolicies/production/web", "profiles/kns.production", "profiles/ksa.production.default", "profiles/prod", "globalnetworkpolicies/prod",
	} {
		if err := datastore.Put(t.Context(), s, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(`{"metadata":{},"spec":{}}`)}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// ofProd reports whether a key goes with the namespace. Handles are those of its pods; n2's tunnel stays, and so do both nodes' blocks.
func ofProd(key string) bool {
	rest, _ := strings.CutPrefix(key, api.ResourcesPrefix)
	return strings.Contains(rest, "/prod/") && rest != key || rest == "profiles/kns.prod" || strings.HasPrefix(rest, "profiles/ksa.prod.") || strings.Contains(key, "/handle/pod.")
}

func deleteProd(t *testing.T, s storetest.InMemory) error {
	t.Helper()
	n, err := LookNamespace(t.Context(), s, "prod")
	if err != nil {
		return err
	}
	return n.Delete(t.Context(), s, func(api.Ref, string) {})
}

func TestWithANamespaceGoesAllThatIsInIt(t *testing.T) {
	s := inProd(t)
	want := slices.DeleteFunc(keys(t, s), ofProd)
	n, err := LookNamespace(t.Context(), s, "prod")
	if err != nil {
		t.Fatal(err)
	}
	what, refs := n.Loss()
	if len(what) != 5 || len(refs) != 5+5+2 || n.Empty() {
		t.Errorf("lost would be %q and %v", what, refs)
	}
	var went []string
	if err := n.Delete(t.Context(), s, func(ref api.Ref, words string) { went = append(went, ref.Kind+words) }); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s); !slices.Equal(got, want) {
		t.Errorf("left are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if found := leaks(t, s); len(found) > 0 {
		t.Errorf("a check finds %q", found)
	}
	first, last := strings.Join(went[:5], " "), strings.Join(went[len(went)-2:], " ")
	if first != strings.TrimSpace(strings.Repeat("WorkloadEndpoint ", 5)) || last != "Profile Profile" || !strings.HasPrefix(went[5], "address ") {
		t.Errorf("they went in the order %q", went)
	}
	if n, err := LookNamespace(t.Context(), s, "prod"); err != nil || !n.Empty() {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestANamespacesDeletionThatDiesIsRepeated(t *testing.T) {
	whole := inProd(t)
	want := slices.DeleteFunc(keys(t, whole), ofProd)
	died := errors.New("died")
	for k, done := 1, false; !done; k += 3 {
		s := inProd(t)
		n := 0
		s.Fail(func(memstore.Op) error {
			if n++; n >= k {
				return died
			}
			return nil
		})
		err := deleteProd(t, s)
		s.Fail(nil)
		if done = n < k; done != (err == nil) {
			t.Fatalf("dead from call %d on: %v", k, err)
		}
		if err := deleteProd(t, s); err != nil {
			t.Errorf("dead from call %d on, repeated: %v", k, err)
		}
		if storetest.IsPoor() {
			repairHandles(t, s)
		}
		if got := keys(t, s); !slices.Equal(got, want) {
			t.Errorf("dead from call %d on, repeated: left are\n%s\nwant\n%s", k, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
