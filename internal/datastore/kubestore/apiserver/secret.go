package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for _, part := range []string{s.Namespace, name} { // one is a part of the path
		if reasons := content.IsDNS1123Subdomain(part); len(reasons) > 0 {
			return fmt.Errorf("%q: %s", part, reasons[0])
		}
	}
	only := "metadata.name=" + name
	version, err := s.list(ctx, only, seen)
	if err != nil {
		return err
	}
	body, err := s.Client.client.Get().AbsPath(s.path()...).Param("watch", "true").Param("fieldSelector", only).
		Param("resourceVersion", version).SetHeader("Accept", mediaJSON).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := take(event.Type, event.Object, seen); err != nil {
			return err
		}
	}
}

// list passes on what there is now, and returns its version.
func (s Secrets) list(ctx context.Context, only string, seen func(data map[string][]byte)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := s.Client.client.Get().AbsPath(s.path()...).Param("fieldSelector", only).SetHeader("Accept", mediaJSON).Do(ctx)
	if err := answer.Error(); err != nil { // which has the server's reason; that of Raw has none
		return "", err
	}
	raw, err := answer.Raw()
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []secret
	}
	if err := json.Unmarshal(raw, &list); err != nil {
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
	case "ERROR":
		var status metav1.Status
		if err := json.Unmarshal(object, &status); err != nil {
			return err
		}
		if err := apierrors.FromObject(&status); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
	}
	return nil
}

func (s Secrets) path() []string { return []string{"/api/v1/namespaces", s.Namespace, "secrets"} }

// given is what a secret that is there has; an empty one is there, too.
func (o secret) given() map[string][]byte {
	if o.Data == nil {
		return map[string][]byte{}
	}
	return o.Data
}
