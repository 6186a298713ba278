package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Namespace makes a namespace for this test, and removes it and all that is in it when the test ends: at once, with or without
// Kubernetes' controllers.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t-%08x", rand.Uint32())
	if err := s.Admin().Call(t.Context(), "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.RemoveNamespace(context.WithoutCancel(t.Context()), name); err != nil {
			t.Errorf("namespace %s: %v", name, err)
		}
	})
	return name
}

// RemoveNamespace deletes a namespace and all that is in it, as Kubernetes' controller of namespaces does. What has finalizers of its own
// stays as long as these do.
func (s *Server) RemoveNamespace(ctx context.Context, name string) error {
	all, err := s.groupVersions(ctx)
	if err != nil {
		return err
	}
	at := "/api/v1/namespaces/" + name
	if err := s.Admin().Call(ctx, "DELETE", at, nil, nil); err != nil {
		return err
	}
	for _, gv := range all { // after that nothing new comes into it
		if err := s.clear(ctx, gv, nil, name); err != nil {
			return err
		}
	}
	var ns map[string]any
	if err := s.Admin().Call(ctx, "GET", at, nil, &ns); missing(err) {
		return nil // the controller was faster
	} else if err != nil {
		return err
	}
	ns["spec"] = map[string]any{"finalizers": []string{}}
	if err := s.Admin().Call(ctx, "PUT", at+"/finalize", ns, nil); !missing(err) {
		return err
	}
	return nil
}

// groupVersions are the preferred versions of all API groups.
func (s *Server) groupVersions(ctx context.Context) ([]string, error) {
	var list struct {
		Groups []struct {
			PreferredVersion struct{ GroupVersion string }
		}
	}
	if err := s.Admin().Call(ctx, "GET", "/apis", nil, &list); err != nil {
		return nil, err
	}
	all := []string{"v1"}
	for _, g := range list.Groups {
		all = append(all, g.PreferredVersion.GroupVersion)
	}
	return all, nil
}

// Clear deletes all objects of an API group and version, such as projectcalico.org/v3, in all namespaces; with names of resources,
// such as ippools, those of these alone. Objects with finalizers stay until these are gone. Definitions of kinds stay.
func (s *Server) Clear(t testing.TB, groupVersion string, resources ...string) {
	t.Helper()
	if err := s.clear(t.Context(), groupVersion, resources, ""); err != nil {
		t.Fatal(err)
	}
}

// clear deletes objects in one namespace, or, if it is empty, in all and in none.
func (s *Server) clear(ctx context.Context, groupVersion string, only []string, namespace string) error {
	all, err := s.resources(ctx, groupVersion)
	if err != nil {
		return err
	}
	for _, r := range all {
		if !slices.Contains(r.Verbs, "deletecollection") || len(only) > 0 && !slices.Contains(only, r.Name) || namespace != "" && !r.Namespaced {
			continue
		}
		in := []string{namespace}
		if r.Namespaced && namespace == "" {
			if in, err = s.namespacesWith(ctx, r); err != nil {
				return err
			}
		}
		for _, ns := range in {
			// A pod would else wait for its node to say that it has ended.
			now := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
			if err := s.Admin().Call(ctx, "DELETE", r.path(ns), now, nil); err != nil && !missing(err) {
				return err
			}
		}
	}
	return nil
}

// namespacesWith are the namespaces that have objects of a resource.
func (s *Server) namespacesWith(ctx context.Context, r resource) (names []string, err error) {
	var list struct{ Items []object }
	if err := s.Admin().Call(ctx, "GET", r.path(""), nil, &list); err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		if !slices.Contains(names, o.Metadata.Namespace) {
			names = append(names, o.Metadata.Namespace)
		}
	}
	return names, nil
}
