package diags

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/datastore"
)

// clusterWide is what a collection of a whole cluster takes of its pods.
type clusterWide struct {
	since   time.Duration // logs that are not older; 0: all
	maxLogs int           // pods of each DaemonSet, Deployment and StatefulSet
	focus   []string      // nodes whose pods are the first
	kubectl []string      // and what says where the API server is
}

// kubectlOf is kubectl with the cluster of a connection.
func kubectlOf(cfg datastore.Config) []string {
	out := []string{"kubectl"}
	for _, f := range [][2]string{{"kubeconfig", cfg.Kubeconfig}, {"context", cfg.Context}} {
		if f[1] != "" {
			out = append(out, "--"+f[0]+"="+f[1])
		}
	}
	return out
}

// kubernetesKinds are what is collected of Kubernetes, of all namespaces. Secrets are not.
var kubernetesKinds = []string{
	"nodes", "namespaces", "pods", "daemonsets", "deployments", "statefulsets", "jobs", "cronjobs", "services", "endpointslices", "configmaps",
	"networkpolicies.networking.k8s.io", "clusternetworkpolicies.policy.networking.k8s.io", "adminnetworkpolicies.policy.networking.k8s.io", "baselineadminnetworkpolicies.policy.networking.k8s.io",
	"persistentvolumes", "persistentvolumeclaims", "storageclasses", "customresourcedefinitions", "events",
}

// apiThere is the source without which nothing of Kubernetes is to be had.
const apiThere = "kubernetes/version.yaml"

// sources are those of a cluster: what its datastore says, then Kubernetes', then its pods'. Whatever there is not is named in the index.
func (w clusterWide) sources(ctx context.Context, c collector) []source {
	all := []source{
		{name: "twill/version.txt", args: []string{twill, "version"}},
		{name: "twill/status-of-all.txt", args: []string{twill, "status", "--all"}},
		{name: "twill/ipam.txt", args: []string{twill, "ipam", "show", "--show-blocks"}},
		{name: "twill/ipam-check.txt", args: []string{twill, "ipam", "check"}},
	}
	for _, k := range append(slices.Clone(kinds), "ipreservations", "caliconodestatuses", "blockaffinities") {
		all = append(all, resourceSource(k))
	}
	kubectl := func(name string, args ...string) source {
		return source{name: "kubernetes/" + name, args: slices.Concat(w.kubectl, args), needs: apiThere}
	}
	there := kubectl("version.yaml", "version", "-o", "yaml")
	there.needs = ""
	all = append(all, there)
	pods, err := w.pods(ctx, c)
	if err != nil {
		return all // which names in the index that there is no kubectl, or nobody who answers it
	}
	for _, k := range kubernetesKinds {
		all = append(all, kubectl(k+".yaml", "get", k, "--all-namespaces", "-o", "yaml"), kubectl(k+".txt", "get", k, "--all-namespaces", "-o", "wide"))
	}
	for _, p := range w.choose(pods) {
		all = append(all, p.sources(w)...)
	}
	return all
}

// resourceSource is the resources of a kind.
func resourceSource(kind string) source {
	args := []string{twill, "get", kind, "-o", "yaml"}
	if namespaced[kind] {
		args = append(args, "-A")
	}
	return source{name: "resources/" + kind + ".yaml", args: args, needs: "resources/nodes.yaml"}
}

// pod is one whose logs are collected.
type pod struct {
	namespace, name, node string
	of                    string // what made it: kind and name
	container             string // that of a node's agent; empty: it is none
}

// pods asks Kubernetes for those of the network.
func (w clusterWide) pods(ctx context.Context, c collector) ([]pod, error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	text, err := c.run(ctx, append(slices.Clone(w.kubectl), "get", "pods", "--all-namespaces", "-o", "json"))
	if err != nil {
		return nil, err
	}
	return podsOf(text), nil
}

// ofNetwork are namespaces, names of pods and of containers that are the network's own.
var ofNetwork = regexp.MustCompile(`calico|tigera|twill`)

// podsOf reads a list of pods, as JSON, and keeps those of the network.
func podsOf(text []byte) (out []pod) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name, Namespace string
				OwnerReferences []struct{ Kind, Name string }
			}
			Spec struct {
				NodeName   string
				Containers []struct{ Name string }
			}
		}
	}
	if json.Unmarshal(text, &list) != nil {
		return nil
	}
	for _, i := range list.Items {
		m := i.Metadata
		p := pod{namespace: m.Namespace, name: m.Name, node: i.Spec.NodeName, of: "Pod " + m.Name}
		for _, o := range m.OwnerReferences {
			p.of = o.Kind + " " + o.Name
			if o.Kind == "ReplicaSet" { // of a Deployment, whose name stands before the last dash
				p.of = "Deployment " + o.Name[:max(0, strings.LastIndex(o.Name, "-"))]
			}
		}
		for _, c := range i.Spec.Containers {
			if c.Name == "calico-node" || c.Name == "twill" || c.Name == "agent" {
				p.container = c.Name
			}
		}
		if ofNetwork.MatchString(m.Namespace) || ofNetwork.MatchString(m.Name) {
			out = append(out, p)
		}
	}
	return out
}

// choose takes so many of each owner, those on the nodes in focus first.
func (w clusterWide) choose(pods []pod) (out []pod) {
	rank := func(p pod) int {
		if i := slices.Index(w.focus, p.node); i >= 0 {
			return i
		}
		return len(w.focus)
	}
	byOwner := map[string][]pod{}
	for _, p := range pods {
		of := p.namespace + "/" + p.of
		byOwner[of] = append(byOwner[of], p)
	}
	for _, of := range slices.Sorted(maps.Keys(byOwner)) {
		all := byOwner[of]
		slices.SortStableFunc(all, func(a, b pod) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name)) })
		out = append(out, all[:min(len(all), w.maxLogs)]...)
	}
	return out
}

// inPods is what is asked of a node's agent in its pod. Which of it there is depends on the image.
var inPods = []source{
	{name: "status.txt", args: []string{"twill", "status", "-o", "wide"}},
	{name: "verify.txt", args: []string{"twill", "verify"}},
	{name: "nftables.txt", args: []string{"nft", "-n", "-a", "list", "ruleset"}},
	{name: "iptables.txt", args: []string{"iptables-save", "-c"}},
	{name: "ipset.txt", args: []string{"ipset", "list"}},
	{name: "routes.txt", args: []string{"ip", "route", "show", "table", "all"}},
	{name: "routes6.txt", args: []string{"ip", "-6", "route", "show", "table", "all"}},
	{name: "rules.txt", args: []string{"ip", "rule"}},
	{name: "addresses.txt", args: []string{"ip", "-d", "address"}},
	{name: "neighbours.txt", args: []string{"ip", "neigh"}},
	{name: "shaping.txt", args: []string{"tc", "qdisc", "show"}},
}

// sources are those of a pod: its log, what Kubernetes says of it, and of an agent's what it says itself.
func (p pod) sources(w clusterWide) (out []source) {
	dir := path.Join("nodes", cmp.Or(p.node, "none"), p.namespace, p.name)
	add := func(name string, args ...string) {
		out = append(out, source{name: path.Join(dir, name), args: slices.Concat(w.kubectl, args), needs: apiThere})
	}
	logs := []string{"logs", "-n", p.namespace, p.name, "--all-containers", "--prefix"}
	if w.since > 0 {
		logs = append(logs, "--since="+w.since.String())
	}
	add("log.txt", logs...)
	add("describe.txt", "describe", "pod", "-n", p.namespace, p.name)
	if p.container == "" {
		return out
	}
	for _, s := range inPods {
		add(s.name, slices.Concat([]string{"exec", "-n", p.namespace, p.name, "-c", p.container, "--"}, s.args)...)
	}
	return out
}

// parseSince reads how old logs may be: 90s, 10m, 5h. Nothing, and 0, mean of any age.
func parseSince(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if _, seconds := strconv.Atoi(text); err == nil && d >= 0 && seconds != nil {
		return d, nil
	}
	return 0, fmt.Errorf("--since is %q: want a time with its unit, as 90s, 10m or 5h", text)
}
