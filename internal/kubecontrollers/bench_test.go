package kubecontrollers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/metrics"
)

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// bench has the controllers of nodes and addresses run on stores in memory, in virtual time.
type bench struct {
	*testing.T
	store, kube storetest.InMemory // the same, unless etcd is the datastore
	addresses   *ipam.Allocator
	registry    *prometheus.Registry
	nodes       *nodes
	collector   *collector
	balancer    *balancer
	stops       []func() // of what runs beside these

	mu       sync.Mutex
	log      bytes.Buffer
	settings Settings
	pods     map[string]bool              // namespace/name of those that Kubernetes has
	says     map[string]apiserver.Pod     // what it says of them, if it says something
	machines map[string]bool              // the same of virtual machines
	services map[string]apiserver.Service // by namespace/name
	podErr   error
	deleted  int
	counted  func(map[string]ipam.Usage) // nil: nobody asks
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// run starts the controllers, with nodes n1 and n2 and a pool, and ends them after the test.
func run(t *testing.T, etcd bool, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bench{T: t, store: storetest.New(t), registry: prometheus.NewRegistry(), pods: map[string]bool{}, says: map[string]apiserver.Pod{}, machines: map[string]bool{}, services: map[string]apiserver.Service{}}
		if b.kube = b.store; etcd {
			b.kube = storetest.New(t)
		}
		b.settings, _ = Environment{}.Resolve(nil, !etcd)
		b.addresses = ipam.New(b.store, ipam.Config{})
		b.put("ippools/p", `{"spec":{"cidr":"10.0.0.0/24","blockSize":30}}`)
		b.put("nodes/n1", `{"metadata":{"labels":{"rack":"a"}}}`)
		b.put("nodes/n2", `{}`)
		log := slog.New(slog.NewTextHandler(b, nil))
		get := func() Settings { b.mu.Lock(); defer b.mu.Unlock(); return b.settings }
		m := metrics.NewControllers(b.registry)
		b.collector = newCollector(collectConfig{Store: b.store, Cluster: b.kube, Settings: get, Pod: b.pod, HasMachine: b.hasMachine, Services: b, Counted: b.count, Metrics: m, Turn: func(string, error) {}, Log: log})
		b.nodes = newNodes(nodeConfig{Store: b.store, Cluster: b.kube, Settings: get, Deleted: func() { b.deleted++ }, Turn: func(string, error) {}, Log: log})
		var done sync.WaitGroup
		for _, run := range []func(context.Context) error{b.collector.run, b.nodes.run} {
			done.Go(func() { _ = run(ctx) })
		}
		defer func() {
			cancel()
			for _, stop := range b.stops {
				stop()
			}
			done.Wait()
			if t.Failed() {
				t.Log(b.log.String())
			}
		}()
		test(b)
	})
}

// count passes what the collector counted to who asks for it.
func (b *bench) count(usage map[string]ipam.Usage) {
	b.mu.Lock()
	counted := b.counted
	b.mu.Unlock()
	if counted != nil {
		counted(usage)
	}
}

func (b *bench) pod(_ context.Context, namespace, name string) (apiserver.Pod, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.says[namespace+"/"+name], b.pods[namespace+"/"+name], b.podErr
}

func (b *bench) hasMachine(_ context.Context, namespace, name string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.machines[namespace+"/"+name], b.podErr
}

func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bench) after(d time.Duration) { <-time.After(d); synctest.Wait() } // virtual

func (b *bench) put(key, value string) { b.Helper(); b.putIn(b.store, api.ResourcesPrefix+key, value) }

func (b *bench) putIn(s datastore.Store, key, value string) {
	b.Helper()
	if err := datastore.Put(b.Context(), s, api.Update{Key: key, Value: []byte(value)}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) remove(s datastore.Store, key string) {
	b.Helper()
	if err := s.Delete(b.Context(), api.ResourcesPrefix+key, api.Revision{}); err != nil {
		b.Fatal(err)
	}
}

// assign gives an address to a pod on a node. With a note it is one of Twill's plugin, which promises an endpoint.
func (b *bench) assign(node, pod, note string) string {
	b.Helper()
	attrs := attributes(node, pod)
	if note != "" {
		attrs[api.AttributeNote] = note
	}
	return b.assignTo(node, "h-"+pod, attrs)
}

func (b *bench) assignTo(node, handle string, attrs map[string]string) string {
	b.Helper()
	got, err := b.addresses.Assign(b.Context(), ipam.AutoArgs{Node: node, Handle: handle, Num4: 1, Attributes: attrs})
	if err != nil {
		b.Fatal(err)
	}
	return got[0].Addr.String()
}

// endpoint makes that of a pod.
func (b *bench) endpoint(node, pod, addr string) {
	b.put("workloadendpoints/prod/"+node+"-k8s-"+pod+"-eth0", fmt.Sprintf(`{"spec":{"orchestrator":"k8s","node":%q,"pod":%q,"endpoint":"eth0","interfaceName":"cali%s","ipNetworks":["%s/32"]}}`, node, pod, pod, addr))
}

// attributes are those of an allocation that upstream's plugin makes now.
func attributes(node, pod string) map[string]string {
	return map[string]string{api.AttributeNode: node, api.AttributePod: pod, api.AttributeNamespace: "prod", api.AttributeTimestamp: time.Now().UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST")}
}

// inUse are the addresses that are allocated.
func (b *bench) inUse() (out []string) {
	b.Helper()
	v, err := b.addresses.ReadSurvey(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, block := range v.Blocks {
		for _, l := range ipam.Allocations(block) {
			out = append(out, l.Addr.String())
		}
	}
	return out
}

func (b *bench) wantInUse(what string, want ...string) {
	b.Helper()
	if got := b.inUse(); !slices.Equal(got, want) {
		b.Errorf("%s: in use are %v, want %v", what, got, want)
	}
}

// keys are those of the store.
func (b *bench) keys() (out []string) {
	b.Helper()
	snap, err := b.store.List(b.Context(), api.Root)
	if err != nil {
		b.Fatal(err)
	}
	for _, u := range snap.Sorted() {
		out = append(out, u.Key)
	}
	return out
}

// of are keys that name a node.
func (b *bench) of(node string) []string {
	b.Helper()
	return slices.DeleteFunc(b.keys(), func(k string) bool { return !strings.Contains(k, node) })
}

var errAway = errors.New("the API server is away")
