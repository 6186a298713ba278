package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// EndpointSlice is one of discovery.k8s.io/v1, as far as who looks for a service's addresses needs it.
type EndpointSlice struct {
	Metadata    struct{ Name, ResourceVersion string }
	AddressType string // IPv4, IPv6, FQDN
	Ports       []EndpointPort
	Endpoints   []Endpoint
}

// EndpointPort is a port that all endpoints of a slice have.
type EndpointPort struct {
	Name     string // may be empty
	Port     uint16 // 0: all ports
	Protocol string // empty: TCP
}

// Endpoint is what answers for a service.
type Endpoint struct {
	Addresses  []string
	Conditions struct{ Ready *bool } // nil: not known, which counts as ready (the API's documentation)
	NodeName   string
}

// FollowEndpoints passes on what EndpointSlices a Service has, ordered by name: as it is now, and whenever it changes. It asks for those alone, by the
// label kubernetes.io/service-name. It returns nil when the server ends the watch, as it does after a while, and what is wrong else; then it must be called again.
func (c *Client) FollowEndpoints(ctx context.Context, namespace, service string, seen func([]EndpointSlice)) error {
	if err := c.followEndpoints(ctx, namespace, service, seen); err != nil {
		return fmt.Errorf("EndpointSlices of service %s/%s: %w", namespace, service, err)
	}
	return nil
}

func (c *Client) followEndpoints(ctx context.Context, namespace, service string, seen func([]EndpointSlice)) error {
	for _, part := range []string{namespace, service} { // one is a part of the path
		if reasons := content.IsDNS1123Subdomain(part); len(reasons) > 0 {
			return fmt.Errorf("%q: %s", part, reasons[0])
		}
	}
	request := func() *rest.Request {
		return c.client.Get().AbsPath("/apis/discovery.k8s.io/v1/namespaces", namespace, "endpointslices").
			Param("labelSelector", "kubernetes.io/service-name="+service).SetHeader("Accept", mediaJSON)
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []EndpointSlice
	}
	if err := listed(ctx, request(), &list); err != nil {
		return err
	}
	slicesOf := map[string]EndpointSlice{}
	for _, s := range list.Items {
		slicesOf[s.Metadata.Name] = s
	}
	seen(ordered(slicesOf))
	body, err := request().Param("watch", "true").Param("resourceVersion", list.Metadata.ResourceVersion).Stream(ctx)
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
		if err := takeSlice(slicesOf, event.Type, event.Object); err != nil {
			return err
		}
		seen(ordered(slicesOf))
	}
}

// takeSlice notes what an event says.
func takeSlice(has map[string]EndpointSlice, event string, object json.RawMessage) error {
	if event == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal(object, &status); err != nil {
			return err
		}
		return apierrors.FromObject(&status)
	}
	var s EndpointSlice
	if err := json.Unmarshal(object, &s); err != nil {
		return err
	}
	switch event {
	case "ADDED", "MODIFIED":
		has[s.Metadata.Name] = s
	case "DELETED":
		delete(has, s.Metadata.Name)
	}
	return nil
}

func ordered(has map[string]EndpointSlice) []EndpointSlice {
	out := make([]EndpointSlice, 0, len(has))
	for _, name := range slices.Sorted(maps.Keys(has)) {
		out = append(out, has[name])
	}
	return out
}

// HasService reports whether there is a Service of that name. It lists it, which is what a role of agents allows.
func (c *Client) HasService(ctx context.Context, namespace, name string) (bool, error) {
	var list struct{ Items []json.RawMessage }
	err := listed(ctx, c.client.Get().AbsPath("/api/v1/namespaces", namespace, "services").Param("fieldSelector", "metadata.name="+name).SetHeader("Accept", mediaJSON), &list)
	if err != nil {
		return false, fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	return len(list.Items) > 0, nil
}

// listed reads an answer that is no watch.
func listed(ctx context.Context, r *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // which has the server's reason; that of Raw has none
		return err
	}
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
