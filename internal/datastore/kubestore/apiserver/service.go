package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/twillnet/twill/internal/datastore"
)

// Service is what a Service (v1) asks of load balancers, and what they gave to it.
type Service struct {
	Namespace, Name, UID string
	Type                 string   // LoadBalancer, ClusterIP, NodePort, ExternalName
	Class                string   // spec.loadBalancerClass; empty: none
	Families             []string // IPv4, IPv6, in their order
	Annotations          map[string]string
	Ingress              []Ingress // status.loadBalancer.ingress

	version string // its resourceVersion
}

// Ingress is one of a load balancer's addresses or names, with all else that its author wrote there.
type Ingress map[string]any

// IP is its address; empty: it has a name.
func (i Ingress) IP() string {
	ip, _ := i["ip"].(string)
	return ip
}

// Service asks for one by its name; false: there is none.
func (c *Client) Service(ctx context.Context, namespace, name string) (Service, bool, error) {
	raw, err := ask(ctx, c.client.Get().AbsPath("/api/v1/namespaces", namespace, "services", name).SetHeader("Accept", mediaJSON))
	if errors.Is(err, datastore.ErrNotFound) {
		return Service{}, false, nil
	}
	if err != nil {
		return Service{}, false, fmt.Errorf("read service %s/%s: %w", namespace, name, err)
	}
	var o struct {
		Metadata struct {
			Namespace, Name, UID, ResourceVersion string
			Annotations                           map[string]string
		}
		Spec struct {
			Type, LoadBalancerClass string
			IPFamilies              []string
		}
		Status struct{ LoadBalancer struct{ Ingress []Ingress } }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Service{}, false, fmt.Errorf("read service %s/%s: %w", namespace, name, err)
	}
	m := o.Metadata
	return Service{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Type: o.Spec.Type, Class: o.Spec.LoadBalancerClass, Families: o.Spec.IPFamilies,
		Annotations: m.Annotations, Ingress: o.Status.LoadBalancer.Ingress, version: m.ResourceVersion,
	}, true, nil
}

// SetIngress writes what a service has of load balancers, if it has not changed since it was read.
func (c *Client) SetIngress(ctx context.Context, s Service, ingress []Ingress) error {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": s.version, "uid": s.UID},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": ingress}},
	}
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = ask(ctx, c.client.Patch(types.MergePatchType).AbsPath("/api/v1/namespaces", s.Namespace, "services", s.Name, "status").
			SetHeader("Accept", mediaJSON).Body(body))
	}
	return fault(fmt.Sprintf("write the status of service %s/%s", s.Namespace, s.Name), err)
}
