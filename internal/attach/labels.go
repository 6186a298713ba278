package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/translate"
)

// Where somebody copies what Kubernetes says into the datastore (package kubemirror), a pod's labels come after its endpoint was written. Policy that selects
// by them must be in force before the pod begins.
const (
	labelsTimeout = 10 * time.Second // for the labels
	labelsLook    = 10 * time.Millisecond
	labelsMost    = 320 * time.Millisecond // between two looks
)

// labelsAreCopied reports whether the labels of a request's pod come later.
func (s *Server) labelsAreCopied(ctx context.Context, r wire.Request) (bool, error) {
	if r.Pod == nil {
		return false, nil
	}
	if _, derives := s.cfg.Store.(datastore.Deriving); derives {
		return false, nil // it has them from the pod
	}
	_, err := s.cfg.Store.Get(ctx, translate.KeyLabelsAreCopied)
	if errors.Is(err, datastore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// labelled waits until an endpoint that was written has its pod's labels, and returns it as it is then.
func (s *Server) labelled(ctx context.Context, r wire.Request, now api.Update) (api.Update, error) {
	bounded, cancel := context.WithTimeout(ctx, labelsTimeout)
	defer cancel()
	for wait := labelsLook; ; wait = min(2*wait, labelsMost) {
		u, err := s.cfg.Store.Get(bounded, now.Key)
		switch {
		case errors.Is(err, datastore.ErrNotFound):
			return now, &wire.Refusal{Reason: fmt.Sprintf("the endpoint of pod %s/%s was deleted while it was attached", r.Pod.Namespace, r.Pod.Name), Later: true}
		case err == nil:
			awaits, err := awaitsLabels(u, r.ContainerID)
			if err != nil || !awaits {
				return u, err
			}
		case bounded.Err() == nil:
			return now, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-bounded.Done():
			timer.Stop()
		}
		if ctx.Err() != nil {
			return now, ctx.Err()
		}
		return now, &wire.Refusal{Later: true, Reason: fmt.Sprintf("the labels of pod %s/%s have not come from Kubernetes within %s, and without them policy that selects by them is not in force: "+
			"twill kube-controllers copies them into this datastore; does it run (twill kube-controllers check)?", r.Pod.Namespace, r.Pod.Name, labelsTimeout)}
	}
}

// awaitsLabels reports whether a container's endpoint has not got its labels yet.
func awaitsLabels(u api.Update, container string) (bool, error) {
	st, err := api.DecodeStored(u)
	if err != nil {
		return false, fmt.Errorf("%s: %w", u.Key, err)
	}
	w, ok := st.Resource.(*api.WorkloadEndpoint)
	if !ok || w.Spec.ContainerID != container {
		return false, fmt.Errorf("%s is another container's by now", u.Key)
	}
	return w.Metadata.Annotations[translate.AnnotationAwaitsLabels] != "", nil
}
