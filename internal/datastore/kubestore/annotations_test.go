package kubestore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

func TestAPodSaysWhichVirtualMachineItRuns(t *testing.T) {
	s := cluster(t)
	ns := s.Namespace(t)
	store := open(t, s, form.V3)
	if _, err := store.(datastore.Hosting).Instance(t.Context(), ns, "vm"); !errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("without KubeVirt: %v", err)
	}
	s.DefineKubeVirt(t)
	uid := s.Machine(t, ns, "vm")
	s.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: %s}\n", ns))
	for _, tt := range []struct{ name, owner, labels, want string }{
		{"runs", `apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: vm, controller: true`, "", "{vm UID }"},
		{"migrates", `apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: vm, controller: true`, "kubevirt.io/migrationJobUID: m", "{vm UID m}"},
		{"is-not-its-own", `apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: vm`, "", "none"},
		{"another-group", `apiVersion: example.org/v1, kind: VirtualMachineInstance, name: vm, controller: true`, "", "none"},
		{"another-kind", `apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, name: vm, controller: true`, "", "none"},
	} {
		s.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {%s}, ownerReferences: [{%s, uid: %s}]}\nspec: {containers: [{name: c, image: i}]}\n",
			tt.name, ns, tt.labels, tt.owner, uid))
		has, err := store.(datastore.Annotated).Annotations(t.Context(), ns, tt.name)
		got := "none"
		if has.Instance != nil {
			got = strings.ReplaceAll(fmt.Sprint(*has.Instance), uid, "UID")
		}
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	if got, err := store.(datastore.Hosting).Instance(t.Context(), ns, "vm"); err != nil || got.UID != uid || got.Machine == "" || got.Machine == uid || got.Node != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	s.Runs(t, ns, "vm", "n1")
	if got, err := store.(datastore.Hosting).Instance(t.Context(), ns, "vm"); err != nil || got.UID != uid || got.Node != "n1" {
		t.Errorf("once it runs: %+v, %v", got, err)
	}
	for _, of := range [][2]string{{ns, "other"}, {"no-such", "vm"}} {
		if _, err := store.(datastore.Hosting).Instance(t.Context(), of[0], of[1]); !errors.Is(err, datastore.ErrNotFound) {
			t.Errorf("%v: %v", of, err)
		}
	}
	if _, err := store.(datastore.Hosting).Instance(t.Context(), ns, "../vm"); err == nil || errors.Is(err, datastore.ErrNotFound) {
		t.Errorf("a name that is none: %v", err)
	}
}

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
	if err != nil || fmt.Sprint(got) != `{map[a:b cni.projectcalico.org/ipAddrs:["10.65.0.7"]] map[c:d] <nil>}` {
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
