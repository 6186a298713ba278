package kubestore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

func TestAnnotationsOfAPodAreReadWithItsNamespaces(t *testing.T) {
	s := cluster(t)
	ns := s.Namespace(t)
	store, ok := open(t, s, form.V3).(datastore.Annotated)
	if !ok {
		t.Fatal("the store has no annotations")
	}
	s.Apply(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: %[1]s}
---
apiVersion: v1
kind: Pod
metadata: {name: web.0, namespace: %[1]s, annotations: {a: b, "cni.projectcalico.org/ipAddrs": '["10.65.0.7"]'}}
spec: {containers: [{name: c, image: i}]}
`, ns))
	call(t, s, "PUT", "/api/v1/namespaces/"+ns, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns, "annotations": map[string]string{"c": "d"}}})
	got, err := store.Annotations(t.Context(), ns, "web.0")
	if err != nil || fmt.Sprint(got) != `{map[a:b cni.projectcalico.org/ipAddrs:["10.65.0.7"]] map[c:d]}` {
		t.Errorf("got %v, %v", got, err)
	}
	for _, of := range [][2]string{{ns, "other"}, {"no-such", "web.0"}} {
		if _, err := store.Annotations(t.Context(), of[0], of[1]); !errors.Is(err, datastore.ErrNotFound) {
			t.Errorf("%v: %v", of, err)
		}
	}
	for _, of := range [][2]string{{ns, ""}, {"", "web.0"}, {ns, "../../secrets/x"}, {ns, ".."}, {ns, "web.0?x=y"}, {"a/b", "c"}} {
		if got, err := store.Annotations(t.Context(), of[0], of[1]); err == nil || errors.Is(err, datastore.ErrNotFound) {
			t.Errorf("%q is asked for: %v, %v", of, got, err)
		}
	}
}
