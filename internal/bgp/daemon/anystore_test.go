package daemon

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestThePlanDependsOnWhatTheDatastoreHoldsOnly: whatever it can do, however its watches end, and in whichever order it tells of kinds.
func TestThePlanDependsOnWhatTheDatastoreHoldsOnly(t *testing.T) {
	seedtest.Each(t, nil, 20, func(t *testing.T, seed uint64) {
		for name, open := range map[string]func() datastore.Store{
			"memstore": func() datastore.Store { return memstore.New() },
			"poor":     func() datastore.Store { p := storetest.NewPoor(t); p.Forgets = true; return p },
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { followAny(t, open(), rand.New(rand.NewPCG(seed, 0))) })
			})
		}
	})
}

// written are keys with what they may hold; nothing among it.
var written = map[string][]string{
	"nodes/h1":                  {`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`, `{"spec":{"bgp":{"ipv4Address":"192.0.2.9/24"}}}`},
	"nodes/h2":                  {``, `{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`, `{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24","asNumber":65001}}}`},
	"nodes/h3":                  {``, `{"metadata":{"labels":{"rr":"yes"}},"spec":{"bgp":{"ipv4Address":"192.0.2.3/24"}}}`},
	"bgpconfigurations/default": {``, `{"spec":{"nodeToNodeMeshEnabled":false}}`, `{"spec":{"asNumber":64999}}`, `{"spec":{"serviceLoadBalancerIPs":[{"cidr":"203.0.113.0/24"}]}}`},
	"kubernetesservices/ns/s": {
		``, `{"spec":{"clusterIPs":["10.96.0.9"],"externalTrafficPolicy":"Local"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.9"}]}}}`,
		`{"spec":{"clusterIPs":["10.96.0.9"],"externalTrafficPolicy":"Local"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}}`,
	},
	"kubernetesendpointslices/ns/s-1": {
		``, `{"metadata":{"labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","endpoints":[{"nodeName":"h1"}]}`,
		`{"metadata":{"labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","endpoints":[{"nodeName":"h2"}]}`,
	},
	"bgppeers/rr": {``, `{"spec":{"peerSelector":"has(rr)"}}`, `{"spec":{"peerIP":"198.51.100.1","asNumber":65100}}`},
	"ippools/p":   {``, `{"spec":{"cidr":"10.65.0.0/16"}}`, `{"spec":{"cidr":"10.65.0.0/16","disableBGPExport":true}}`},
}

func followAny(t *testing.T, store datastore.Store, rnd *rand.Rand) {
	out := make(chan plan.Plan)
	k := newPlanSource(Config{Node: "h1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, out, newSecretDir(t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- k.plans(ctx, store) }()
	var last plan.Plan
	go func() {
		for ctx.Err() == nil {
			select {
			case last = <-out:
			case <-ctx.Done():
			}
		}
		ended <- nil
	}()
	keys := slices.Sorted(maps.Keys(written))
	for range 60 {
		key := keys[rnd.IntN(len(keys))]
		values := written[key]
		if value := values[rnd.IntN(len(values))]; value == "" {
			_ = store.Delete(ctx, api.ResourcesPrefix+key, api.Revision{}) // may be missing
		} else if err := datastore.Put(ctx, store, api.Update{Key: api.ResourcesPrefix + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		if rnd.IntN(3) == 0 {
			<-time.After(time.Duration(rnd.IntN(300)) * time.Millisecond) // virtual
		}
	}
	<-time.After(time.Minute) // virtual
	synctest.Wait()
	cancel()
	for range cap(ended) {
		<-ended
	}
	all, err := store.List(t.Context(), api.ResourcesPrefix)
	if err != nil {
		t.Fatal(err)
	}
	want := plan.New()
	for _, u := range all.Sorted() {
		want.Update(u)
	}
	if want := want.Plan("h1"); !reflect.DeepEqual(last, want) {
		t.Errorf("the last plan is\n%+v\nand of what is stored\n%+v", last, want)
	}
}
