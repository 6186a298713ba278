package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// DefineKubeVirt applies definitions of KubeVirt's kinds of virtual machines, which take anything. Nothing runs machines here: a test makes the
// objects and pods that KubeVirt would.
func (s *Server) DefineKubeVirt(t testing.TB) {
	t.Helper()
	all := ""
	for _, kind := range []string{"VirtualMachine", "VirtualMachineInstance"} {
		singular := strings.ToLower(kind)
		all += fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.kubevirt.io}
spec:
  group: kubevirt.io
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, singular, kind)
	}
	s.Apply(t, all)
}

// Runs has a VirtualMachineInstance run on a node, as KubeVirt says it: at once with its first pod, and at the end of a live migration.
func (s *Server) Runs(t testing.TB, namespace, name, node string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"nodeName": node}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Admin().Do(t.Context(), http.MethodPatch, "/apis/kubevirt.io/v1/namespaces/"+namespace+"/virtualmachineinstances/"+name, "application/merge-patch+json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("virtual machine %s/%s on %s: %s", namespace, name, node, resp.Status)
	}
}

// Machine makes a VirtualMachine and the VirtualMachineInstance of it, and returns the UID of the latter.
func (s *Server) Machine(t testing.TB, namespace, name string) (uid string) {
	t.Helper()
	of := "/apis/kubevirt.io/v1/namespaces/" + namespace + "/"
	make := func(kind string, owners ...any) string {
		var made struct{ Metadata struct{ UID string } }
		object := map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": kind, "spec": map[string]any{},
			"metadata": map[string]any{"name": name, "namespace": namespace, "ownerReferences": owners},
		}
		if err := s.Admin().Call(t.Context(), http.MethodPost, of+strings.ToLower(kind)+"s", object, &made); err != nil {
			t.Fatal(err)
		}
		return made.Metadata.UID
	}
	machine := make("VirtualMachine")
	return make("VirtualMachineInstance", map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": machine, "controller": true})
}
