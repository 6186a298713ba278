package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// object is one of Kubernetes' objects, as far as its status and its events need it.
type object struct {
	form.Origin
	Metadata struct {
		UID, ResourceVersion string
		Generation           int64
	}
	Spec struct {
		NodeName string // of a pod
	}
	Status struct {
		Conditions []map[string]any // with what only others know
	}
}

// condition is one of an object's status.
type condition struct {
	kind, status, reason, message string // status is True or False
	generation                    int64  // of the object that was judged; 0: its kind's conditions do not say
}

const (
	mediaJSON  = "application/json"
	mediaMerge = "application/merge-patch+json"
	yes, no    = "True", "False"
)

// read asks for an object.
func (c *Client) read(ctx context.Context, of form.Origin) (*object, error) {
	for _, name := range []string{of.Namespace, of.Name} { // they are parts of its path
		if reasons := content.IsDNS1123Subdomain(name); name != "" && len(reasons) > 0 {
			return nil, fmt.Errorf("%q: %s", name, reasons[0])
		}
	}
	raw, err := ask(ctx, c.client.Get().AbsPath(of.Path).SetHeader("Accept", mediaJSON))
	o := &object{Origin: of}
	if err == nil {
		err = json.Unmarshal(raw, o)
	}
	return o, fault("read "+of.Path, err)
}

// set gives an object a condition, and annotations, of which nil takes one away. It writes nothing if the condition is as it should be; it
// fails with datastore.ErrConflict if the object has changed since it was read.
func (c *Client) set(ctx context.Context, o *object, want condition, annotations map[string]any) error {
	now := time.Now().UTC().Format(time.RFC3339)
	next := map[string]any{"type": want.kind, "status": want.status, "reason": want.reason, "message": want.message, "lastTransitionTime": now}
	if want.generation > 0 {
		next["observedGeneration"] = want.generation
	}
	all, found := make([]map[string]any, 0, len(o.Status.Conditions)+1), false
	for _, has := range o.Status.Conditions {
		if has["type"] != want.kind {
			all = append(all, has)
			continue
		}
		generation, _ := has["observedGeneration"].(float64)
		if has["status"] == want.status {
			next["lastTransitionTime"] = has["lastTransitionTime"]
			if has["reason"] == want.reason && has["message"] == want.message && int64(generation) == want.generation {
				return nil
			}
		}
		all, found = append(all, next), true
	}
	if !found {
		all = append(all, next)
	}
	metadata := map[string]any{"resourceVersion": o.Metadata.ResourceVersion, "uid": o.Metadata.UID}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": all}})
	if err != nil {
		return err
	}
	_, err = ask(ctx, c.client.Verb("PATCH").AbsPath(o.Path+"/status").SetHeader("Accept", mediaJSON).SetHeader("Content-Type", mediaMerge).Body(body))
	return fault("write the status of "+o.Path, err)
}

// has is the status of a condition; empty: there is none.
func (o *object) has(kind string) string {
	for _, c := range o.Status.Conditions {
		if c["type"] == kind {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}

// fault says what failed.
func fault(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
