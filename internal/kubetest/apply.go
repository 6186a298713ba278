package kubetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// fieldManager is who the API server says has applied.
const fieldManager = "kubetest"

// knownTimeout bounds the wait until the API server serves a kind whose definition was just applied.
const knownTimeout = 2 * time.Minute

// object is what any object has.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// resource is one of an API group and version, as discovery names it.
type resource struct {
	Name       string   `json:"name"` // in paths, such as pods; with a slash it is part of another
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced"`
	Verbs      []string `json:"verbs"`

	groupVersion string // such as v1 or apps/v1
}

// path is where objects of this resource are; an empty namespace stands for all.
func (r resource) path(namespace string) string {
	at := "/apis/" + r.groupVersion
	if !strings.Contains(r.groupVersion, "/") {
		at = "/api/" + r.groupVersion
	}
	if r.Namespaced && namespace != "" {
		at += "/namespaces/" + namespace
	}
	return at + "/" + r.Name
}

// resources are all that an API group and version has, but what is part of another.
func (s *Server) resources(ctx context.Context, groupVersion string) ([]resource, error) {
	var list struct{ Resources []resource }
	at := strings.TrimSuffix(resource{groupVersion: groupVersion}.path(""), "/")
	if err := s.Admin().Call(ctx, "GET", at, nil, &list); err != nil {
		return nil, err
	}
	list.Resources = slices.DeleteFunc(list.Resources, func(r resource) bool { return strings.Contains(r.Name, "/") })
	for i := range list.Resources {
		list.Resources[i].groupVersion = groupVersion
	}
	return list.Resources, nil
}

// Apply applies documents of YAML, in their order, as kubectl apply --server-side --force-conflicts does. A definition of a kind may
// stand before objects of it, and is in force when Apply returns. Objects that are in a namespace say in which.
func (s *Server) Apply(t testing.TB, manifests string) {
	t.Helper()
	s.applyAll(t, manifests, "")
	for _, doc := range documentEnd.Split(manifests, -1) {
		if err := s.awaitDefined(t.Context(), []byte(doc)); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
	}
}

// ApplyStatus applies the status in documents of YAML to objects that are there, as who reports it does: of a pod its kubelet.
func (s *Server) ApplyStatus(t testing.TB, manifests string) {
	t.Helper()
	s.applyAll(t, manifests, "/status")
}

// applyAll applies documents, or a part of their objects.
func (s *Server) applyAll(t testing.TB, manifests, part string) {
	t.Helper()
	for _, doc := range documentEnd.Split(manifests, -1) {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		if err := s.apply(t.Context(), []byte(doc), part); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
	}
}

// awaitDefined waits until the server serves what a document defines, if that is a custom resource definition.
func (s *Server) awaitDefined(ctx context.Context, doc []byte) error {
	var d struct {
		Kind string
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	if err := yaml.Unmarshal(doc, &d); err != nil || d.Kind != "CustomResourceDefinition" {
		return err
	}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		r, err := s.awaitKind(ctx, d.Spec.Group+"/"+v.Name, d.Spec.Names.Kind)
		for err == nil {
			if err = s.Admin().Call(ctx, "GET", r.path("")+"?limit=1", nil, nil); err == nil {
				break
			}
			if missing(err) { // it is known, and not served yet
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var documentEnd = regexp.MustCompile(`(?m)^---[ \t]*$`)

func (s *Server) apply(ctx context.Context, doc []byte, part string) error {
	var o object
	if err := yaml.Unmarshal(doc, &o); err != nil {
		return err
	}
	r, err := s.awaitKind(ctx, o.APIVersion, o.Kind)
	if err != nil {
		return err
	}
	if r.Namespaced && o.Metadata.Namespace == "" {
		return fmt.Errorf("%s %q does not say its namespace", o.Kind, o.Metadata.Name)
	}
	path := fmt.Sprintf("%s/%s%s?force=true&fieldManager=%s", r.path(o.Metadata.Namespace), o.Metadata.Name, part, fieldManager)
	return s.Admin().call(ctx, "PATCH", path, "application/apply-patch+yaml", doc, nil)
}

// awaitKind waits until the server serves a kind.
func (s *Server) awaitKind(ctx context.Context, groupVersion, kind string) (resource, error) {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := s.resources(ctx, groupVersion)
		if err != nil && !missing(err) {
			return resource{}, err
		}
		if i := slices.IndexFunc(all, func(r resource) bool { return r.Kind == kind }); i >= 0 {
			return all[i], nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return resource{}, errors.Join(fmt.Errorf("the API server has no kind %s in %s", kind, groupVersion), ctx.Err())
		}
	}
}
