package apiserver

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Secrets are those of one namespace.
type Secrets struct {
	Client    *Client
	Namespace string
}

// secret is one (v1), as far as it is read.
type secret struct {
	Metadata struct{ ResourceVersion string }
	Data     map[string][]byte
}

// Follow passes on what a Secret has, by key: as it is now, and whenever it changes; nil if there is none. It asks for that one alone, so
// that a role can allow it by its name (list and watch, with resourceNames). It returns nil when the server ends the watch, as it does after a
// while, and what is wrong else; then it must be called again.
func (s Secrets) Follow(ctx context.Context, name string, seen func(data map[string][]byte)) error {
	err := s.follow(ctx, name, seen)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("Secret %s/%s: %w; \"twill kube node --bgp-secrets %s\" prints the right to", s.Namespace, name, err, name)
	case err != nil:
		return fmt.Errorf("Secret %s/%s: %w", s.Namespace, name, err)
	}
	return nil
}

func (s Secrets) follow(ctx context.Context, name string, seen func(data map[string][]byte)) error {
	if err := inPath(s.Namespace, name); err != nil {
		return err
	}
	only := "metadata.name=" + name
	version, err := s.list(ctx, only, seen)
	if err != nil {
		return err
	}
	return watched(ctx, s.request(only).Param("watch", "true").Param("resourceVersion", version), func(event string, object json.RawMessage) error {
		return take(event, object, seen)
	})
}

// list passes on what there is now, and returns its version.
func (s Secrets) list(ctx context.Context, only string, seen func(data map[string][]byte)) (version string, err error) {
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []secret
	}
	if err := listed(ctx, s.request(only), &list); err != nil {
		return "", err
	}
	var data map[string][]byte
	for _, o := range list.Items { // one, or none
		data = o.given()
	}
	seen(data)
	return list.Metadata.ResourceVersion, nil
}

// take passes on what an event says.
func take(event string, object json.RawMessage, seen func(data map[string][]byte)) error {
	switch event {
	case "ADDED", "MODIFIED":
		var o secret
		if err := json.Unmarshal(object, &o); err != nil {
			return err
		}
		seen(o.given())
	case "DELETED":
		seen(nil)
	}
	return nil
}

func (s Secrets) request(only string) *rest.Request {
	return s.Client.client.Get().AbsPath("/api/v1/namespaces", s.Namespace, "secrets").Param("fieldSelector", only).SetHeader("Accept", mediaJSON)
}

// given is what a secret that is there has; an empty one is there, too.
func (o secret) given() map[string][]byte {
	if o.Data == nil {
		return map[string][]byte{}
	}
	return o.Data
}
