package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kubetest"
)

// group makes tests run with a real API server for their store, and not in memory. Its etcd is another process, which is started without flags.
var group = flag.String("on-api-server", "", "run tests on a real API server that keeps resources in this group (projectcalico.org/v3 or crd.projectcalico.org/v1), and not in memory")

// leftOut makes those run that are in memory alone, to see that each must be.
var leftOut = flag.Bool("left-out", false, "with -on-api-server: run only the tests that are left out there, and fail if one passes")

// MainHere is Main for tests that are in internal/cli itself.
func MainHere(m *testing.M) {
	os.Exit(kubetest.Main(func() int {
		flag.Parse()
		if *group == "" {
			return storetest.Main(m)
		}
		names, err := inMemoryAlone("testdata/in-memory-alone.tsv")
		if err == nil {
			err = errors.Join(flag.Set("test.skip", strings.Join(names, "|")), flag.Set("test.parallel", "1"))
		}
		switch {
		case err != nil:
			fmt.Println(err)
			return 1
		case *leftOut:
			return allFail(m, names)
		}
		return storetest.On(m, newOnServer)
	}, kubetest.Config{}))
}

// allFail runs tests one by one: 0 if none passes.
func allFail(m *testing.M, names []string) (code int) {
	for _, name := range names {
		if err := errors.Join(flag.Set("test.skip", ""), flag.Set("test.run", name)); err != nil || storetest.On(m, newOnServer) == 0 {
			fmt.Printf("%s passes on an API server, and need not be left out (%v)\n", name, err)
			code = 1
		}
	}
	return code
}

// OnAPIServer reports whether tests run on a real API server. A test asks it only to do less of the same there.
func OnAPIServer() bool { return *group != "" }

// inMemoryAlone are expressions of the tests of this package, and of parts of them, that cannot be on an API server, by a file with lines of:
// package, test, group (both, or one of them), reason.
func inMemoryAlone(file string) (names []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	this := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 || f[3] == "" {
			return nil, fmt.Errorf("%s: %q: want a package, a test, a group and a reason", file, line)
		}
		if f[0] == this && (f[2] == "both" || f[2] == *group) {
			parts := strings.Split(f[1], "/")
			for i, p := range parts {
				parts[i] = "^" + regexp.QuoteMeta(p) + "$"
			}
			names = append(names, strings.Join(parts, "/"))
		}
	}
	return names, nil
}

// onServer is an API server as a store of tests. What a cluster has by itself is there as soon as a test needs it: namespaces, and Nodes.
type onServer struct {
	datastore.Client
	t testing.TB
	s *kubetest.Server

	mu      sync.Mutex
	fail    func(memstore.Op) error
	changes int64
	open    map[*watch]bool
}

var install sync.Once

// newOnServer is an API server in which no resources are.
func newOnServer(t testing.TB) storetest.InMemory {
	t.Helper()
	s := kubetest.Start(t)
	install.Do(func() {
		text, err := crds.Documents(crds.Definitions(form.Group(*group)))
		if err != nil {
			t.Fatal(err)
		}
		s.Apply(t, text)
	})
	client, err := kubestore.New(datastore.Config{Kubeconfig: s.Kubeconfig, Group: *group, QPS: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	clear(t, s, client)
	return &onServer{Client: client, t: t, s: s, open: map[*watch]bool{}}
}

// namespaces are those that tests have made.
var namespaces []string

// written are the kinds of which tests have made objects, by group and version.
var written = map[string]map[string]bool{}

// held are keys that tests have written with finalizers, which nobody would take away.
var held = map[string]bool{}

// clear removes what tests before have left.
func clear(t testing.TB, s *kubetest.Server, client datastore.Store) {
	t.Helper()
	for key := range held {
		release(t, client, key)
	}
	for gv, kinds := range written {
		s.Clear(t, gv, slices.Collect(maps.Keys(kinds))...)
	}
	for _, name := range namespaces {
		if err := s.RemoveNamespace(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	written, namespaces, held = map[string]map[string]bool{}, nil, map[string]bool{}
}

// release takes the finalizers of an object away, if it is still there.
func release(t testing.TB, client datastore.Store, key string) {
	t.Helper()
	u, err := client.Get(t.Context(), key)
	var object map[string]any
	if err == nil {
		err = json.Unmarshal(u.Value, &object)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok && err == nil {
		delete(metadata, "finalizers")
		if u.Value, err = json.Marshal(object); err == nil {
			_, err = client.Update(t.Context(), u)
		}
	}
	if err != nil && !errors.Is(err, datastore.ErrNotFound) {
		t.Fatal(err)
	}
}

// wrote remembers that a key may have been made.
func wrote(key string, value []byte) {
	if bytes.Contains(value, []byte(`"finalizers"`)) {
		held[key] = true
	}
	note := func(gv string, kinds ...string) {
		if written[gv] == nil {
			written[gv] = map[string]bool{}
		}
		for _, k := range kinds {
			written[gv][k] = true
		}
	}
	plural, _, _ := strings.Cut(strings.TrimPrefix(key, api.ResourcesPrefix), "/")
	switch {
	case !strings.HasPrefix(key, api.ResourcesPrefix) && strings.HasPrefix(key, api.IPAMPrefix):
		note(*group, "ipamblocks", "ipamhandles", "blockaffinities", "ipamconfigurations", "ipamconfigs")
	case !strings.HasPrefix(key, api.ResourcesPrefix):
		note(string(form.Own), "records")
	case plural == "nodes":
		note("v1", "nodes")
	case plural == "profiles" || plural == "workloadendpoints": // which go with their namespace
	default:
		note(*group, plural)
	}
}

// Fail makes each call ask f first.
func (o *onServer) Fail(f func(memstore.Op) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = f
}

// Revision counts the changes.
func (o *onServer) Revision() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changes + 1
}

// DropWatches ends every watch that runs.
func (o *onServer) DropWatches(err error) {
	if err == nil {
		err = fmt.Errorf("watch dropped: %w", datastore.ErrUnavailable)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.open {
		w.drop(err)
	}
}

func (o *onServer) admit(verb, key string) error {
	o.mu.Lock()
	f := o.fail
	o.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(memstore.Op{Verb: verb, Key: key})
}

func (o *onServer) changed(err error) {
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.changes++
	}
}

// Get is part of datastore.Store.
func (o *onServer) Get(ctx context.Context, key string) (api.Update, error) {
	if err := o.admit("get", key); err != nil {
		return api.Update{}, err
	}
	return o.Client.Get(ctx, key)
}

// List is part of datastore.Store.
func (o *onServer) List(ctx context.Context, prefix string) (datastore.Snapshot, error) {
	if err := o.admit("list", prefix); err != nil {
		return datastore.Snapshot{}, err
	}
	return o.Client.List(ctx, prefix)
}

// Create is part of datastore.Store.
func (o *onServer) Create(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := o.admit("create", kv.Key); err != nil {
		return api.Update{}, err
	}
	wrote(kv.Key, kv.Value)
	made, err := o.native(ctx, kv)
	var u api.Update
	switch {
	case err != nil:
	case made:
		u, err = o.Client.Get(ctx, kv.Key)
	default:
		u, err = o.Client.Create(ctx, kv)
	}
	o.changed(err)
	return u, err
}

// native makes what a cluster has by itself: the namespace of what is created, the Node of a kubelet, with the annotations that Calico has there, the namespace of a
// profile, and the pod of an endpoint. It reports whether that is all.
func (o *onServer) native(ctx context.Context, kv api.Update) (made bool, err error) {
	parts := strings.Split(strings.TrimPrefix(kv.Key, api.ResourcesPrefix), "/")
	switch name := parts[len(parts)-1]; {
	case !strings.HasPrefix(kv.Key, api.ResourcesPrefix):
		return false, nil
	case parts[0] == "nodes":
		node := map[string]any{"metadata": map[string]any{"name": name}}
		if err := o.post(ctx, "/api/v1/nodes", node); err != nil {
			return true, err
		}
		_, err := o.Client.Update(ctx, api.Update{Key: kv.Key, Value: kv.Value})
		return true, err
	case parts[0] == "profiles" && strings.HasPrefix(name, "kns."):
		return true, o.namespace(ctx, strings.TrimPrefix(name, "kns."))
	case len(parts) == 3:
		if err := o.namespace(ctx, parts[1]); err != nil && !errors.Is(err, datastore.ErrExists) {
			return true, err
		}
		if parts[0] == "workloadendpoints" {
			return true, o.pod(ctx, parts[1], kv.Value)
		}
	}
	return false, nil
}

// namespace makes one, with the account that its pods have.
func (o *onServer) namespace(ctx context.Context, name string) error {
	if err := o.post(ctx, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}}); err != nil {
		return err
	}
	namespaces = append(namespaces, name)
	return o.post(ctx, "/api/v1/namespaces/"+name+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "default"}})
}

// pod makes the pod of an endpoint.
func (o *onServer) pod(ctx context.Context, namespace string, value []byte) error {
	var w api.WorkloadEndpoint
	if err := json.Unmarshal(value, &w); err != nil {
		return err
	}
	labels := maps.Clone(w.Metadata.Labels)
	maps.DeleteFunc(labels, func(k, _ string) bool { return strings.HasPrefix(k, "projectcalico.org/") })
	at := "/api/v1/namespaces/" + namespace + "/pods"
	pod := map[string]any{
		"metadata": map[string]any{"name": w.Spec.Pod, "labels": labels},
		"spec":     map[string]any{"nodeName": w.Spec.Node, "automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}
	if err := o.post(ctx, at, pod); err != nil {
		return err
	}
	var ips []any
	for _, n := range w.Spec.IPNetworks {
		ip, _, _ := strings.Cut(n, "/")
		ips = append(ips, map[string]any{"ip": ip})
	}
	if len(ips) == 0 {
		return nil
	}
	status := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": w.Spec.Pod, "namespace": namespace},
		"status": map[string]any{"phase": "Running", "podIP": ips[0].(map[string]any)["ip"], "podIPs": ips},
	}
	text, err := json.Marshal(status)
	if err == nil {
		o.s.ApplyStatus(o.t, string(text))
	}
	return err
}

// post makes an object of Kubernetes: datastore.ErrExists if it is there.
func (o *onServer) post(ctx context.Context, path string, object map[string]any) error {
	err := o.s.Admin().Call(ctx, http.MethodPost, path, object, nil)
	var answer *kubetest.StatusError
	if errors.As(err, &answer) && answer.Code == http.StatusConflict {
		return fmt.Errorf("%w: %w", datastore.ErrExists, err)
	}
	return err
}

// Update is part of datastore.Store.
func (o *onServer) Update(ctx context.Context, kv api.Update) (api.Update, error) {
	if err := o.admit("update", kv.Key); err != nil {
		return api.Update{}, err
	}
	wrote(kv.Key, kv.Value)
	u, err := o.Client.Update(ctx, kv)
	o.changed(err)
	return u, err
}

// Delete is part of datastore.Store.
func (o *onServer) Delete(ctx context.Context, key string, revision api.Revision) error {
	if err := o.admit("delete", key); err != nil {
		return err
	}
	var err error
	if name, ok := strings.CutPrefix(key, api.KeyPrefix(api.KindNode, "")); ok {
		if _, err = o.Client.Get(ctx, key); err == nil {
			err = o.s.Admin().Call(ctx, http.MethodDelete, "/api/v1/nodes/"+name, nil, nil)
		}
	} else {
		err = o.Client.Delete(ctx, key, revision)
	}
	o.changed(err)
	return err
}

// Watch is part of datastore.Store.
func (o *onServer) Watch(ctx context.Context, prefix string, after datastore.Position) (datastore.Watcher, error) {
	if err := o.admit("watch", prefix); err != nil {
		return nil, err
	}
	inner, err := o.Client.Watch(ctx, prefix, after)
	if err != nil {
		return nil, err
	}
	w := &watch{Watcher: inner, o: o, prefix: prefix, dropped: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[w] = true
	return w, nil
}

// watch is one that can be dropped.
type watch struct {
	datastore.Watcher
	o       *onServer
	prefix  string
	dropped chan struct{}
	once    sync.Once
	err     error
}

func (w *watch) drop(err error) {
	w.once.Do(func() {
		w.err = err
		close(w.dropped)
	})
}

// Next is part of datastore.Watcher.
func (w *watch) Next(ctx context.Context) (datastore.Changes, error) {
	if err := w.o.admit("next", w.prefix); err != nil {
		return datastore.Changes{}, err
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.dropped:
			cancel()
		case <-bounded.Done():
		}
	}()
	changes, err := w.Watcher.Next(bounded)
	select {
	case <-w.dropped:
		return datastore.Changes{}, w.err
	default:
		return changes, err
	}
}

// Close is part of datastore.Watcher.
func (w *watch) Close() {
	w.o.mu.Lock()
	delete(w.o.open, w)
	w.o.mu.Unlock()
	w.Watcher.Close()
}
