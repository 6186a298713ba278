package lab

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// TestEndpointsAndAgentsAreReportedInTheDatastore follows an endpoint up, down
// and away at the key where upstream's agent reports it.
func TestEndpointsAndAgentsAreReportedInTheDatastore(t *testing.T) {
	g := newGround(t)
	b := &g.Spec.Workloads[1]
	key := func() string {
		all, err := g.store.List(t.Context(), api.Root+"felix/v2/no-region/host/h1/workload/")
		must(t, err)
		for _, kv := range all.Items {
			if strings.Contains(kv.Key, "demo%2f"+b.Name) {
				return kv.Key
			}
		}
		return ""
	}
	await(t, "a status of demo/b", func() bool { return key() != "" })
	at := key()
	is := func(what string) {
		t.Helper()
		await(t, what, func() bool {
			kv, err := g.store.Get(context.Background(), at)
			return err == nil && string(kv.Value) == what
		})
	}
	is(`{"status":"up"}`)
	g.inHost(t, "ip link set "+b.link()+" down")
	is(`{"status":"down","reason":"interface ` + b.link() + ` is down"}`)
	g.inHost(t, "ip link set "+b.link()+" up")
	is(`{"status":"up"}`)
	await(t, "the agent's own status", func() bool {
		kv, err := g.store.Get(context.Background(), api.Root+"felix/v2/no-region/host/h1/status")
		return err == nil && strings.Contains(string(kv.Value), `"ready":true`)
	})
	all, err := g.store.List(t.Context(), api.ResourcesPrefix+"workloadendpoints/demo/")
	must(t, err)
	for _, kv := range all.Items {
		if strings.Contains(kv.Key, "-"+b.Name+"-") {
			must(t, g.store.Delete(t.Context(), kv.Key, api.Revision{}))
		}
	}
	await(t, "no status of what is gone", func() bool {
		_, err := g.store.Get(context.Background(), at)
		return errors.Is(err, datastore.ErrNotFound)
	})
}
