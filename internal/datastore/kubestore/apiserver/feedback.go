package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/translate"
)

// Conditions that are written here. Kubernetes' scheduler knows that of nodes.
const (
	conditionPod    = "twill.net/NetworkSetupFailed"
	conditionPolicy = "twill.net/Translated"
	conditionNode   = "NetworkUnavailable"
	// ConditionRealised of a policy is True while it is in force on all nodes.
	ConditionRealised = "Realised"
)

// Failure is why a pod could not be attached.
type Failure struct {
	Message     string
	Count       int       // how often
	First, Last time.Time // when
	Again       bool      // it was reported before
}

// Pods is what an agent reports on pods of its node.
type Pods struct {
	Client *Client
	Node   string
}

// Failed reports a failure in an event of the pod, and in a condition. A pod that is not there, or on another node by now, is
// datastore.ErrNotFound.
func (p Pods) Failed(ctx context.Context, namespace, name string, f Failure) error {
	o, err := p.read(ctx, namespace, name)
	if err != nil {
		return err
	}
	e := event{about: o, reason: "FailedNetworkSetup", message: f.Message, from: "twill-agent", host: p.Node, count: f.Count, first: f.First, last: f.Last}
	return errors.Join(p.Client.send(ctx, e, f.Again), p.Client.set(ctx, o,
		condition{kind: conditionPod, status: yes, reason: e.reason, message: f.Message}, map[string]any{translate.AnnotationSetupFailed: "true"}))
}

// Attached reports that a pod of which a failure was reported is attached, and its policy in force.
func (p Pods) Attached(ctx context.Context, namespace, name string) error {
	o, err := p.read(ctx, namespace, name)
	if err != nil {
		return err
	}
	return p.Client.set(ctx, o, condition{kind: conditionPod, status: no, reason: "InForce", message: "addresses, routes and policy are in force"},
		map[string]any{translate.AnnotationSetupFailed: nil})
}

func (p Pods) read(ctx context.Context, namespace, name string) (*object, error) {
	o, err := p.Client.read(ctx, form.Origin{
		APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, Path: "/api/v1/namespaces/" + namespace + "/pods/" + name,
	})
	if err == nil && o.Spec.NodeName != p.Node {
		err = fmt.Errorf("pod %s/%s is on node %q: %w", namespace, name, o.Spec.NodeName, datastore.ErrNotFound)
	}
	return o, err
}

// send sends an event, which may be there, or have been there, already.
func (c *Client) send(ctx context.Context, e event, again bool) error {
	first, second, but := c.create, c.update, datastore.ErrExists
	if again {
		first, second, but = c.update, c.create, datastore.ErrNotFound
	}
	err := first(ctx, e)
	if errors.Is(err, but) {
		err = second(ctx, e)
	}
	return err
}

// PolicyClosed reports in an event of a policy of Kubernetes what could not be translated. It is sent once for each text, whoever sends it.
func (c *Client) PolicyClosed(ctx context.Context, of form.Origin, uid, reasons string) error {
	o := &object{Origin: of}
	o.Metadata.UID = uid
	now := time.Now()
	err := c.create(ctx, event{
		about: o, reason: "NotTranslated", message: closedBecause + reasons, from: "twill-kube-controllers", count: 1, first: now, last: now, apart: reasons,
	})
	if errors.Is(err, datastore.ErrExists) {
		return nil
	}
	return err
}

const closedBecause = "what could not be translated is closed: "

// PolicyStatus has the condition of a policy of Kubernetes say what could not be translated of the version of it that is given; without
// reasons, that all was, if it says otherwise. Nothing is written if there is another version by now, if the policy has gone, or if its kind has no status.
func (c *Client) PolicyStatus(ctx context.Context, of form.Origin, version, reasons string) error {
	o, err := c.read(ctx, of)
	if errors.Is(err, datastore.ErrNotFound) || err == nil && (o.Metadata.ResourceVersion != version || reasons == "" && o.has(conditionPolicy) == "") {
		return nil
	}
	if err != nil {
		return err
	}
	want := condition{kind: conditionPolicy, status: yes, reason: "Translated", message: "all of it is in force as it is written", generation: o.Metadata.Generation}
	if reasons != "" {
		want.status, want.reason, want.message = no, "PartlyClosed", closedBecause+reasons
	}
	if err = c.set(ctx, o, want, nil); errors.Is(err, datastore.ErrNotFound) || errors.Is(err, datastore.ErrConflict) {
		return nil // the next version is asked for when it is seen
	}
	return err
}

// PolicyRealised has the condition Realised of a policy say of one generation of it, on an object with a UID, whether it is in force on all nodes, with a reason in one
// word and a message. It fails with datastore.ErrNotFound if the policy has gone, and with datastore.ErrConflict if another is in its place, or another generation.
func (c *Client) PolicyRealised(ctx context.Context, of form.Origin, uid string, generation int64, is bool, reason, message string) error {
	o, err := c.read(ctx, of)
	if err != nil {
		return err
	}
	if o.Metadata.UID != uid || o.Metadata.Generation != generation {
		return fmt.Errorf("%s is another by now: %w", of.Path, datastore.ErrConflict)
	}
	want := condition{kind: ConditionRealised, status: map[bool]string{true: yes, false: no}[is], reason: reason, message: message, generation: generation}
	return c.set(ctx, o, want, nil)
}

// NodeNetwork says whether a node of Kubernetes has a network, for a reason (in one word) and with a message. It reports whether that is a change; a
// node that says so already, for whichever reason, stays as it is.
func (c *Client) NodeNetwork(ctx context.Context, node string, available bool, reason, message string) (changed bool, err error) {
	o, err := c.read(ctx, form.Origin{APIVersion: "v1", Kind: "Node", Name: node, Path: "/api/v1/nodes/" + node})
	if err != nil {
		return false, err
	}
	status := map[bool]string{true: no, false: yes}[available]
	if o.has(conditionNode) == status {
		return false, nil
	}
	err = c.set(ctx, o, condition{kind: conditionNode, status: status, reason: reason, message: message}, nil)
	return err == nil, err
}
