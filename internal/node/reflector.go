package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/resources"
)

// ReflectorLabel is what the guide's BGPPeer selects reflectors by.
const ReflectorLabel = "route-reflector"

// RegisterLater writes a cluster id into the Node when the datastore answers, however long that takes.
func RegisterLater(ctx context.Context, cfg datastore.Config, node, cluster string, log *slog.Logger) {
	wait := time.NewTicker(2 * time.Second)
	defer wait.Stop()
	logged := ""
	for {
		err := func() error {
			store, err := stores.Open(ctx, cfg)
			if err != nil {
				return err
			}
			defer store.Close()
			return Register(ctx, store, node, cluster)
		}()
		if err == nil || ctx.Err() != nil {
			return
		}
		if logged != err.Error() {
			log.Error("this node is not registered yet", "node", node, "err", err, "retry_in", 2*time.Second)
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
	}
}

// Register makes the Node say that it is a reflector of a cluster. What else is in it stays.
func Register(ctx context.Context, s datastore.Store, name, cluster string) error {
	ref := api.Ref{Kind: api.KindNode, Name: name}
	_, err := resources.Rewriting(ctx, s, resources.Rewrite{Ref: ref, What: "registered", Edit: func(doc any) (any, error) { return registered(doc, cluster), nil }})
	var missing *resources.MissingError
	if !errors.As(err, &missing) {
		return err
	}
	node := api.New(api.KindNode).(*api.Node)
	node.Metadata.Name, node.Metadata.Labels = name, map[string]string{ReflectorLabel: ""}
	node.Spec.BGP = &api.NodeBGPSpec{RouteReflectorClusterID: cluster}
	if err := api.Validate(node).Err(); err != nil {
		return err
	}
	_, err = resources.CreateNew(ctx, s, node)
	return err
}

// registered puts a cluster id, and the label, into a Node's document.
func registered(doc any, cluster string) any {
	top, ok := doc.(map[string]any)
	if !ok {
		return doc // it is refused as it is
	}
	object(object(top, "spec"), "bgp")["routeReflectorClusterID"] = cluster
	if labels := object(object(top, "metadata"), "labels"); labels[ReflectorLabel] == nil {
		labels[ReflectorLabel] = ""
	}
	return doc
}

// object is a member of an object that is one itself; it is made if it is not there.
func object(in map[string]any, name string) map[string]any {
	o, ok := in[name].(map[string]any)
	if !ok {
		o = map[string]any{}
		in[name] = o
	}
	return o
}
