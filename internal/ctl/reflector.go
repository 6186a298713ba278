package ctl

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
)

// reflectorLabel is what the guide's BGPPeer selects reflectors by.
const reflectorLabel = "route-reflector"

// registration is what a dedicated reflector is told to write into its Node; empty: nothing.
type registration struct{ cluster string }

func (r *registration) addFlags(f *pflag.FlagSet) {
	f.StringVar(&r.cluster, "cluster-id", os.Getenv("TWILL_CLUSTER_ID"), "of a reflector: write this cluster id, and the label "+reflectorLabel+", into the Node (TWILL_CLUSTER_ID)")
}

// args hand it on to the child.
func (r *registration) args() []string {
	if r.cluster == "" {
		return nil
	}
	return []string{"--cluster-id=" + r.cluster}
}

// check refuses what is wrong, or is told to a host that is no dedicated reflector.
func (r *registration) check(reflector bool) error {
	if r.cluster == "" {
		return nil
	}
	if !reflector {
		return usage("--cluster-id is that of a dedicated reflector (twill bgp --reflector, twill node --bgp=reflector); of other hosts, see \"twill patch node\"")
	}
	if a, err := netip.ParseAddr(r.cluster); err != nil || !a.Is4() {
		return usage("--cluster-id=%s: want a number in the form of an IPv4 address, such as 244.0.0.1", r.cluster)
	}
	return nil
}

// registerLater writes it into the Node when the datastore answers, however long that takes.
func (r *registration) registerLater(ctx context.Context, cfg datastore.Config, node string, log *slog.Logger) {
	wait := time.NewTicker(2 * time.Second)
	defer wait.Stop()
	said := ""
	for {
		err := func() error {
			store, err := stores.Open(ctx, cfg)
			if err != nil {
				return err
			}
			defer store.Close()
			return r.register(ctx, store, node)
		}()
		if err == nil || ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			log.Error("this node is not registered yet", "node", node, "err", err, "retry_in", 2*time.Second)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
	}
}

// register makes the Node say so. What else is in it stays.
func (r *registration) register(ctx context.Context, s datastore.Store, name string) error {
	ref := api.Ref{Kind: api.KindNode, Name: name}
	_, err := rewriting(ctx, s, rewrite{ref, "registered", func(doc any) (any, error) { return registered(doc, r.cluster), nil }})
	var missing *missingError
	if !errors.As(err, &missing) {
		return err
	}
	node := api.New(api.KindNode).(*api.Node)
	node.Metadata.Name, node.Metadata.Labels = name, map[string]string{reflectorLabel: ""}
	node.Spec.BGP = &api.NodeBGPSpec{RouteReflectorClusterID: r.cluster}
	if err := api.Validate(node).Err(); err != nil {
		return err
	}
	_, err = createNew(ctx, s, node)
	return err
}

// registered puts a cluster id, and the label, into a Node's document.
func registered(doc any, cluster string) any {
	top, ok := doc.(map[string]any)
	if !ok {
		return doc // it is refused as it is
	}
	object(object(top, "spec"), "bgp")["routeReflectorClusterID"] = cluster
	if labels := object(object(top, "metadata"), "labels"); labels[reflectorLabel] == nil {
		labels[reflectorLabel] = ""
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
