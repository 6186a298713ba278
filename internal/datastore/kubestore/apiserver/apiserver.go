// Package apiserver asks Kubernetes' API server for what is no resource of ours: a lease, what addresses a pod has, what a Service has of
// load balancers, and what is in a Secret; and reports to users on their objects, in events and conditions. For a user's own command it does
// what kubectl does ([Operator]).
//
// In: how to reach the server, as a datastore's configuration says it. Out: requests. Resources, and what Kubernetes has that is a view
// of one, are package kubestore's.
package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/leader"
)

// Client asks one server. Any goroutine may use it.
type Client struct{ client rest.Interface }

// New returns a client. It fails if the settings are wrong; that the server is away is an error of each call.
func New(cfg datastore.Config) (*Client, error) {
	client, err := kubestore.Client(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// timeout bounds a request.
const timeout = 10 * time.Second

// ConfigMap returns what a ConfigMap has; false: there is none, or this account may not read it.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (data map[string]string, has bool, err error) {
	raw, err := ask(ctx, c.client.Get().AbsPath("/api/v1/namespaces", namespace, "configmaps", name).SetHeader("Accept", mediaJSON))
	if errors.Is(err, datastore.ErrNotFound) || errors.Is(err, datastore.ErrUnauthorized) {
		return nil, false, nil
	}
	var o struct{ Data map[string]string }
	if err == nil {
		err = json.Unmarshal(raw, &o)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read configmap %s/%s: %w", namespace, name, err)
	}
	return o.Data, true, nil
}

// Lease is a Lease of coordination.k8s.io/v1, as client-go's leader election has it.
func (c *Client) Lease(namespace, name string) leader.Lock {
	return &lease{client: c.client, namespace: namespace, name: name}
}

// lease is one of these. What it says beyond a record stays as it is.
type lease struct {
	client          rest.Interface
	namespace, name string
	last            map[string]any // as it was read or written last
}

// microTime is the form of times in a Lease.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// path is that of all leases of the namespace.
func (l *lease) path() []string {
	return []string{"/apis/coordination.k8s.io/v1/namespaces", l.namespace, "leases"}
}

// Get implements [leader.Lock].
func (l *lease) Get(ctx context.Context) (leader.Record, string, error) {
	raw, err := ask(ctx, l.client.Get().AbsPath(append(l.path(), l.name)...).SetHeader("Accept", mediaJSON))
	if errors.Is(err, datastore.ErrNotFound) {
		l.last = nil
		return leader.Record{}, "", nil
	}
	if err != nil {
		return leader.Record{}, "", l.fault("read", err)
	}
	return l.take(raw)
}

// Put implements [leader.Lock].
func (l *lease) Put(ctx context.Context, r leader.Record, version string) (string, error) {
	object := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
	if version != "" && l.last != nil {
		object = l.last
	}
	metadata, _ := object["metadata"].(map[string]any)
	spec, _ := object["spec"].(map[string]any)
	metadata, spec = with(metadata, "name", l.name, "namespace", l.namespace), with(spec,
		"holderIdentity", r.Holder, "leaseDurationSeconds", max(1, int(r.Duration/time.Second)),
		"acquireTime", r.Acquired.UTC().Format(microTime), "renewTime", r.Renewed.UTC().Format(microTime), "leaseTransitions", r.Transitions)
	req := l.client.Post().AbsPath(l.path()...)
	if version != "" {
		metadata["resourceVersion"] = version
		req = l.client.Put().AbsPath(append(l.path(), l.name)...)
	}
	body, err := json.Marshal(with(object, "metadata", metadata, "spec", spec))
	if err != nil {
		return "", err
	}
	raw, err := ask(ctx, req.SetHeader("Accept", mediaJSON).SetHeader("Content-Type", mediaJSON).Body(body))
	switch {
	case errors.Is(err, datastore.ErrConflict), errors.Is(err, datastore.ErrExists), version != "" && errors.Is(err, datastore.ErrNotFound):
		return "", leader.ErrChanged
	case err != nil:
		return "", l.fault("write", err)
	}
	_, now, err := l.take(raw)
	return now, err
}

// with is a copy of an object with some members.
func with(object map[string]any, members ...any) map[string]any {
	out := map[string]any{}
	for k, v := range object {
		out[k] = v
	}
	for i := 0; i+1 < len(members); i += 2 {
		out[members[i].(string)] = members[i+1]
	}
	return out
}

func (l *lease) fault(verb string, err error) error {
	return fmt.Errorf("%s lease %s/%s: %w", verb, l.namespace, l.name, err)
}

// take reads an object and keeps it.
func (l *lease) take(raw []byte) (leader.Record, string, error) {
	var object map[string]any
	var o struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct {
			HolderIdentity         string
			LeaseDurationSeconds   int
			AcquireTime, RenewTime time.Time
			LeaseTransitions       int
		}
	}
	if err := errors.Join(json.Unmarshal(raw, &object), json.Unmarshal(raw, &o)); err != nil {
		return leader.Record{}, "", l.fault("read", err)
	}
	l.last = object
	s := o.Spec
	return leader.Record{
		Holder: s.HolderIdentity, Duration: time.Duration(s.LeaseDurationSeconds) * time.Second, Acquired: s.AcquireTime, Renewed: s.RenewTime, Transitions: s.LeaseTransitions,
	}, o.Metadata.ResourceVersion, nil
}
