package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
	if err := inPath(namespace, service); err != nil {
		return err
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
	return watched(ctx, request().Param("watch", "true").Param("resourceVersion", list.Metadata.ResourceVersion), func(event string, object json.RawMessage) error {
		if err := takeSlice(slicesOf, event, object); err != nil {
			return err
		}
		seen(ordered(slicesOf))
		return nil
	})
}

// takeSlice notes what an event says.
func takeSlice(has map[string]EndpointSlice, event string, object json.RawMessage) error {
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
