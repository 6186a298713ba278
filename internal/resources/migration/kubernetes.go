package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// view leaves out what is made of an object of Kubernetes, which is the master of these. That it has none is for the user to know.
func (p preparation) view(e Entry) Step {
	step := Step{Key: e.Key, What: LeftOut}
	ref, _ := api.ParseKey(e.Key)
	if _, is := p.here[e.Key]; !is && ref.Kind != api.KindIPAMConfiguration { // that is the other way to see what is in force
		step.Note = "Kubernetes has no such object"
	}
	return step
}

// pod notes on a pod which addresses and container it has, as who attaches it would have: without that its addresses would not be given back with it. A pod that is
// not the same is left as it is.
func (p preparation) pod(e Entry) (Step, error) {
	w, err := endpointOf(e.Key, e.Value)
	if err != nil {
		return Step{}, err
	}
	step := Step{Key: e.Key, What: LeftOut}
	u, is := p.here[e.Key]
	if !is {
		step.Note = "its pod has no address in the cluster, or is gone"
		return step, nil
	}
	have, err := endpointOf(e.Key, u.Value)
	if err != nil {
		return Step{}, err
	}
	switch was, now := addressesOf(w), addressesOf(have); {
	case was != now:
		step.Note = fmt.Sprintf("its pod has %s in the cluster, and had %s", now, was)
	case w.Spec.ContainerID == "": // nobody noted it
	case have.Spec.ContainerID == w.Spec.ContainerID:
		step.What = Unchanged
	case have.Spec.ContainerID != "":
		step.Note = fmt.Sprintf("its pod has the container %s in the cluster, and had %s", have.Spec.ContainerID, w.Spec.ContainerID)
	default:
		step.What, step.value = Updated, e.Value
	}
	return step, nil
}

// homeless is why a value has no place, and what to do.
func homeless(key string) error {
	why := "is of a kind that Kubernetes has no resource for: take its line out of the export, or install what it is of"
	switch ref, _ := api.ParseKey(key); ref.Kind {
	case api.KindWorkloadEndpoint:
		why = "has no place in Kubernetes, where endpoints are pods, each with one interface: twill delete it before the export"
	case api.KindProfile:
		why = "has no place in Kubernetes, where profiles are namespaces and service accounts: say by policies what it says, and delete it before the export"
	}
	return errors.New(why)
}

func endpointOf(key string, value []byte) (*api.WorkloadEndpoint, error) {
	st, err := api.DecodeStored(api.Update{Key: key, Value: value})
	if err != nil {
		return nil, err
	}
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if !ok {
		return nil, errors.New("is no WorkloadEndpoint")
	}
	return w, nil
}

// addressesOf are those of an endpoint, for comparison and for messages.
func addressesOf(w *api.WorkloadEndpoint) string {
	if len(w.Spec.IPNetworks) == 0 {
		return "no address"
	}
	return strings.Join(slices.Sorted(slices.Values(w.Spec.IPNetworks)), ", ")
}

// node writes what Calico has of a Node and Kubernetes has not. What is there of it must be the same.
func (p preparation) node(ctx context.Context, e Entry) (Step, error) {
	st, err := api.DecodeStored(api.Update{Key: e.Key, Value: e.Value})
	if err != nil {
		return Step{}, err
	}
	n, ok := st.Resource.(*api.Node)
	if !ok {
		return Step{}, errors.New("is no Node")
	}
	for _, o := range n.Spec.OrchRefs {
		if o.Orchestrator == translate.Orchestrator && o.NodeName != "" && o.NodeName != n.Metadata.Name {
			return Step{}, fmt.Errorf("is called %s in Kubernetes, and there one name is for both: give it that name in the old datastore before the export", o.NodeName)
		}
	}
	have, is := p.here[e.Key]
	if !is {
		return Step{}, errors.New("is no node of the cluster: let its kubelet register it, or, if it is none, twill delete node before the export")
	}
	kv := api.Update{Key: e.Key, Value: e.Value}
	kept, err := p.judge.Try(ctx, kv)
	if err != nil {
		return Step{}, fmt.Errorf("is refused: %w", err)
	}
	diff := different(have.Value, kept.Value)
	if diff == "" {
		return Step{Key: e.Key, What: Unchanged}, nil
	}
	empty := api.New(api.KindNode)
	empty.Meta().Name = n.Metadata.Name
	if kv.Value, err = api.EncodeStored(empty); err != nil {
		return Step{}, err
	}
	bare, err := p.judge.Try(ctx, kv)
	if err != nil {
		return Step{}, fmt.Errorf("is refused: %w", err)
	}
	if different(have.Value, bare.Value) != "" {
		return Step{}, fmt.Errorf("has annotations of Calico's already that say something else: %s; remove them: kubectl annotate node %s projectcalico.org/NAME-", diff, n.Metadata.Name)
	}
	return Step{Key: e.Key, What: Updated, value: e.Value}, nil
}
