package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
)

// Operator does what somebody with kubectl does: it reads, makes and deletes objects of any kind, and runs commands in pods. Any goroutine may use it.
type Operator struct {
	client rest.Interface
	config *rest.Config
}

// NewOperator returns one. It fails if the settings are wrong; that the server is away is an error of each call.
func NewOperator(cfg datastore.Config) (*Operator, error) {
	client, err := kubestore.Client(cfg)
	if err != nil {
		return nil, err
	}
	config, err := kubestore.RESTConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &Operator{client, config}, nil
}

// Read reads an object, or a list, by its path at the server.
func (o *Operator) Read(ctx context.Context, path string, params map[string]string, into any) error {
	r := o.client.Get().AbsPath(path).SetHeader("Accept", mediaJSON)
	for k, v := range params {
		r = r.Param(k, v)
	}
	return listed(ctx, r, into)
}

// Create makes an object in the list of this path.
func (o *Operator) Create(ctx context.Context, path string, object any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return o.client.Post().AbsPath(path).SetHeader("Content-Type", mediaJSON).SetHeader("Accept", mediaJSON).Body(body).Do(ctx).Error()
}

// Delete deletes an object. That there is none is no error.
func (o *Operator) Delete(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := o.client.Delete().AbsPath(path).SetHeader("Accept", mediaJSON).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Gone reports whether an error of Read says that there is no such object.
func (o *Operator) Gone(err error) bool { return apierrors.IsNotFound(err) }

// Exec runs a command in the only container of a pod, and returns what it printed. It is an error if it cannot be run, or exits with another code than 0.
func (o *Operator) Exec(ctx context.Context, namespace, pod string, command []string) ([]byte, error) {
	r := o.client.Get().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "exec").Param("stdout", "true").Param("stderr", "true")
	for _, c := range command {
		r = r.Param("command", c)
	}
	executor, err := remotecommand.NewWebSocketExecutor(o.config, "GET", r.URL().String())
	if err != nil {
		return nil, err
	}
	var out, complaint bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &complaint}); err != nil {
		return nil, fmt.Errorf("run in pod %s: %w %s", pod, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), nil
}
