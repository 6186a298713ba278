package kubecontrollers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/autohep"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/resources/decommission"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/syncer"
)

// orchestrator is what Kubernetes is called in spec.orchRefs of a Node.
const orchestrator = "k8s"

// waiting is how long it takes until a node that is gone, and cannot be deleted yet, is looked at again.
const waiting = 30 * time.Second

// nodeConfig is what the controller of nodes needs.
type nodeConfig struct {
	Store    datastore.Store // of resources
	Cluster  datastore.Store // which shows Kubernetes' nodes; the same as Store where its API is the datastore
	Settings func() Settings
	Deleted  func() // is called when all of a node is deleted
	Turn     func(key string, err error)
	Log      *slog.Logger
}

// nodes deletes what hangs on nodes that Kubernetes does not have any more, and copies labels of those that it has. All nodes are one
// key: whether one is gone is judged by all there are.
type nodes struct {
	cfg  nodeConfig
	same bool
	loop *controller.Controller
	seen map[string]string // labels of each node, as observed; the loop's alone
	kept map[string]string // why a node that is gone is not deleted, as it was logged
}

const allNodes = "nodes"

// gather is for how long changes are gathered: nodes come and go in groups.
const gather = time.Second

func newNodes(cfg nodeConfig) *nodes {
	n := &nodes{cfg: cfg, same: cfg.Cluster == cfg.Store, seen: map[string]string{}, kept: map[string]string{}}
	n.loop = controller.New(controller.Config{
		Name: "nodes", Store: cfg.Store, Prefixes: []string{api.KeyPrefix(api.KindNode, "")}, Observe: n.observe, Log: cfg.Log,
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := n.reconcile(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	return n
}

// again has all nodes looked at now.
func (n *nodes) again() { n.loop.Enqueue(allNodes, 0) }

func (n *nodes) run(ctx context.Context) error {
	n.again()
	if n.same {
		return n.loop.Run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := syncer.New(n.cfg.Cluster, syncer.Config{Prefixes: []string{api.KeyPrefix(api.KindNode, "")}, Logger: n.cfg.Log})
	go func() { _ = source.Run(ctx) }() // ends with the context
	go func() {
		seen := map[string]string{}
		for b := range source.Batches() {
			changed := false
			for _, u := range b.Updates {
				changed = differs(seen, u) || changed
			}
			if changed {
				n.loop.Enqueue(allNodes, gather)
			}
		}
	}()
	return n.loop.Run(ctx)
}

// observe takes over a change. A node of Kubernetes changes every few minutes, by what its kubelet reports: that is not looked at.
func (n *nodes) observe(u api.Update) []string {
	if differs(n.seen, u) {
		n.loop.Enqueue(allNodes, gather)
	}
	return nil
}

// differs reports whether a node came, went, or has other labels than were seen, and takes them over.
func differs(seen map[string]string, u api.Update) bool {
	was, had := seen[u.Key]
	if u.Value == nil {
		delete(seen, u.Key)
		return had
	}
	st, _ := api.DecodeStored(u) // one that cannot be read has no labels
	now := ""
	if r, ok := st.Resource.(*api.Node); ok {
		text, _ := json.Marshal(r.Metadata.Labels) // texts always encode
		now = string(text)
	}
	seen[u.Key] = now
	return !had || was != now
}

// reconcile compares nodes with Kubernetes.
func (n *nodes) reconcile(ctx context.Context) (again time.Time, err error) {
	s := n.cfg.Settings().Node
	if s == nil {
		return time.Time{}, nil
	}
	again = time.Now().Add(s.Period)
	in, err := nodesOf(ctx, n.cfg.Cluster)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask Kubernetes for its nodes: %w", err)
	}
	if len(in) == 0 {
		return again, errors.New("Kubernetes says that it has no nodes: nothing is deleted")
	}
	gone, err := n.gone(ctx, in, s.Labels)
	for _, node := range slices.Sorted(maps.Keys(gone)) {
		why, derr := n.remove(ctx, node, gone[node])
		err = errors.Join(err, derr)
		if why != "" && n.kept[node] != why {
			n.cfg.Log.Info("a node has left Kubernetes, and what hangs on it stays for now", "node", node, "because", why)
		}
		if why != "" {
			again = time.Now().Add(min(waiting, s.Period))
		}
		n.kept[node] = why
	}
	maps.DeleteFunc(n.kept, func(node, why string) bool { _, is := gone[node]; return !is || why == "" })
	if err != nil {
		return time.Time{}, err
	}
	return again, nil
}

// nodesOf are the nodes that a store has, by name. One that cannot be read is there.
func nodesOf(ctx context.Context, s datastore.Store) (map[string]found, error) {
	snap, err := s.List(ctx, api.KeyPrefix(api.KindNode, ""))
	out := map[string]found{}
	for _, u := range snap.Items {
		ref, ok := api.ParseKey(u.Key)
		if !ok {
			continue
		}
		st, _ := api.DecodeStored(u)
		r, _ := st.Resource.(*api.Node)
		out[ref.Name] = found{u, r}
	}
	return out, err
}

// nodesInKubernetes are the names that nodes of Kubernetes have in the datastore.
func nodesInKubernetes(ctx context.Context, store, cluster datastore.Store) (map[string]bool, error) {
	in, err := nodesOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	if store == cluster {
		for name := range in {
			out[name] = true
		}
		return out, nil
	}
	stored, err := nodesOf(ctx, store)
	for name, n := range stored {
		if _, there := in[kubernetesName(n.node)]; there {
			out[name] = true
		}
	}
	return out, err
}

// found is a stored node.
type found struct {
	at   api.Update
	node *api.Node // nil: it cannot be read
}

// gone are nodes that are not Kubernetes' any more, each with the name that it had there. Of those that are, it copies the labels.
func (n *nodes) gone(ctx context.Context, in map[string]found, labels bool) (map[string]string, error) {
	if n.same {
		return n.left(ctx, in)
	}
	stored, err := nodesOf(ctx, n.cfg.Store)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		ours := stored[name]
		kube := kubernetesName(ours.node)
		is, there := in[kube]
		switch {
		case kube == "": // not of Kubernetes
		case !there:
			out[name] = kube
		case labels && is.node != nil:
			err = errors.Join(err, n.label(ctx, ours, is.node.Metadata.Labels))
		}
	}
	return out, err
}

// kubernetesName is the name that a node has in Kubernetes; empty: it is none of its.
func kubernetesName(n *api.Node) string {
	if n == nil {
		return ""
	}
	for _, o := range n.Spec.OrchRefs {
		if o.Orchestrator == orchestrator {
			return o.NodeName
		}
	}
	return ""
}

// left are names of nodes that Kubernetes does not have and that something is left of: addresses, automatic host endpoints, reports.
func (n *nodes) left(ctx context.Context, in map[string]found) (map[string]string, error) {
	names := map[string]string{}
	add := func(name string) {
		if _, there := in[name]; !there && name != "" {
			names[name] = name
		}
	}
	v, err := ipam.New(n.cfg.Store, ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range v.Hosts() {
		add(name)
	}
	snap, err := n.cfg.Store.List(ctx, api.KeyPrefix(api.KindHostEndpoint, ""))
	if err != nil {
		return nil, err
	}
	for _, u := range snap.Items {
		st, _ := api.DecodeStored(u)
		if h, ok := st.Resource.(*api.HostEndpoint); ok && autohep.Made(h) {
			add(h.Spec.Node)
		}
	}
	reports, err := status.Nodes(ctx, n.cfg.Store)
	for _, r := range reports {
		add(r.Node)
	}
	return names, err
}

// remove deletes what hangs on a node that is gone, or says why that stays.
func (n *nodes) remove(ctx context.Context, node, kube string) (kept string, err error) {
	// The list may be older than the node.
	if _, err := n.cfg.Cluster.Get(ctx, api.KeyPrefix(api.KindNode, "")+kube); !errors.Is(err, datastore.ErrNotFound) {
		return "", err
	}
	h, err := decommission.Look(ctx, n.cfg.Store, node)
	if err != nil {
		return "", err
	}
	spared, containers := h.SpareUsers(), h.SpareContainers()
	if len(containers) > 0 {
		kept = fmt.Sprintf("no agent has reported from there, and it has addresses that are neither a pod's nor a tunnel's: %v; `twill delete node %s --cascade` frees them", containers, node)
	}
	host := slices.ContainsFunc(spared, func(r api.Ref) bool { return r.Kind == api.KindHostEndpoint })
	switch {
	case h.Alive:
		return "its agent lives", nil
	case n.same && h.Endpoints() > 0:
		return fmt.Sprintf("%d pods on it are still there", h.Endpoints()), nil
	case len(h.UsedElsewhere()) > 0:
		return fmt.Sprintf("endpoints of other nodes have addresses that were allocated for it: %v", h.UsedElsewhere()), nil
	case n.same && host && !h.HasAddresses():
		return kept, nil // a host that was never the cluster's, with host endpoints that somebody made
	case h.Empty():
		return kept, nil
	}
	var did []string
	err = h.Delete(ctx, n.cfg.Store, func(ref api.Ref, words string) {
		if words == "" {
			words = resources.Short(ref)
		}
		did = append(did, words)
	})
	args := []any{"node", node, "deleted", did}
	for _, ref := range spared {
		args = append(args, "left", resources.Short(ref))
	}
	if err != nil {
		if len(did) > 0 {
			n.cfg.Log.Info("a node has left Kubernetes: part of what hung on it is deleted", args...)
		}
		return "", fmt.Errorf("delete what hangs on node %s: %w", node, err)
	}
	n.cfg.Log.Info("a node has left Kubernetes: what hung on it is deleted", args...)
	if kept == "" {
		n.cfg.Deleted()
	}
	return kept, nil
}

// annotationLabels says which labels of a Node are Kubernetes'.
const annotationLabels = "projectcalico.org/kube-labels"

// label gives a node the labels that it has in Kubernetes, and takes those away that it had there. What users gave it stays.
func (n *nodes) label(ctx context.Context, ours found, want map[string]string) error {
	var had map[string]string
	if text := ours.node.Metadata.Annotations[annotationLabels]; text != "" {
		if err := json.Unmarshal([]byte(text), &had); err != nil {
			return fmt.Errorf("node %s: annotation %s: %w", ours.node.Metadata.Name, annotationLabels, err)
		}
	}
	labels := maps.Clone(ours.node.Metadata.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(k, _ string) bool { _, was := had[k]; return was })
	maps.Copy(labels, want)
	if maps.Equal(labels, ours.node.Metadata.Labels) && maps.Equal(had, want) {
		return nil
	}
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	tree, err := resources.Tree(ours.at.Value)
	if err != nil {
		return err
	}
	change := map[string]any{}
	for k := range ours.node.Metadata.Labels {
		change[k] = nil
	}
	for k, v := range labels {
		change[k] = v
	}
	next := ours.at
	next.Value = resources.InOrderOf(ours.at.Value, resources.MergePatch(tree, map[string]any{
		"metadata": map[string]any{"labels": change, "annotations": map[string]any{annotationLabels: string(text)}},
	}))
	if _, err := n.cfg.Store.Update(ctx, next); err != nil {
		return fmt.Errorf("label node %s: %w", ours.node.Metadata.Name, err)
	}
	n.cfg.Log.Info("a node has the labels of its Kubernetes node", "node", ours.node.Metadata.Name, "labels", labels)
	return nil
}
