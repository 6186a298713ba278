package agent

import (
	"context"

	"github.com/twillnet/twill/internal/attach/feedback"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// newFeedback returns what reports on pods how their attachment ended, where Kubernetes' API is the datastore: a function that takes it, and
// one that runs until its context ends. Elsewhere nothing is reported, and the first is nil.
func newFeedback(cfg Config) (ended func(of wire.Pod, reported bool, err error), run func(context.Context) error, err error) {
	if cfg.Store.Type != "kubernetes" {
		return nil, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil
	}
	client, err := apiserver.New(cfg.Store)
	if err != nil {
		return nil, nil, err
	}
	r := feedback.New(apiserver.Pods{Client: client, Node: cfg.Node}, cfg.Log.With("part", "feedback"))
	return r.Ended, r.Run, nil
}
