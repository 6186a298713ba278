package diags

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
)

// somePods is a cluster with three nodes: agents in a DaemonSet, one Typha, and a workload that is none of ours.
const somePods = `{"items": [
	{"metadata": {"name": "calico-node-a", "namespace": "calico-system", "ownerReferences": [{"kind": "DaemonSet", "name": "calico-node"}]}, "spec": {"nodeName": "h1", "containers": [{"name": "calico-node"}]}},
	{"metadata": {"name": "calico-node-b", "namespace": "calico-system", "ownerReferences": [{"kind": "DaemonSet", "name": "calico-node"}]}, "spec": {"nodeName": "h2", "containers": [{"name": "calico-node"}]}},
	{"metadata": {"name": "calico-node-c", "namespace": "calico-system", "ownerReferences": [{"kind": "DaemonSet", "name": "calico-node"}]}, "spec": {"nodeName": "h3", "containers": [{"name": "calico-node"}]}},
	{"metadata": {"name": "typha-7d-x", "namespace": "calico-system", "ownerReferences": [{"kind": "ReplicaSet", "name": "typha-7d"}]}, "spec": {"nodeName": "h1", "containers": [{"name": "typha"}]}},
	{"metadata": {"name": "typha-8e-y", "namespace": "calico-system", "ownerReferences": [{"kind": "ReplicaSet", "name": "typha-8e"}]}, "spec": {"nodeName": "h2", "containers": [{"name": "typha"}]}},
	{"metadata": {"name": "twill-z", "namespace": "kube-system"}, "spec": {"containers": [{"name": "agent"}]}},
	{"metadata": {"name": "web", "namespace": "prod", "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1"}]}, "spec": {"nodeName": "h1", "containers": [{"name": "web"}]}}
]}`

// TestPodsAreChosenByOwnerAndFocus: so many of each, those of the named nodes first; pods of others never.
func TestPodsAreChosenByOwnerAndFocus(t *testing.T) {
	for _, tt := range []struct {
		name    string
		maxLogs int
		focus   []string
		want    string
	}{
		{"all", 5, nil, "calico-node-a calico-node-b calico-node-c typha-7d-x typha-8e-y twill-z"},
		{"one of each, two ReplicaSets of a Deployment being one", 1, nil, "calico-node-a typha-7d-x twill-z"},
		{"those of nodes in focus, in the order of focus", 2, []string{"h3", "h2"}, "calico-node-c calico-node-b typha-8e-y typha-7d-x twill-z"},
		{"a node that there is not", 1, []string{"h9"}, "calico-node-a typha-7d-x twill-z"},
		{"none", 0, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, p := range (clusterWide{maxLogs: tt.maxLogs, focus: tt.focus}).choose(podsOf([]byte(somePods))) {
				got = append(got, p.name)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if got := podsOf([]byte("no JSON")); got != nil {
		t.Errorf("of no list there are %v", got)
	}
}

// TestAClusterIsCollectedWithKubectl: an archive of a cluster whose kubectl is a program of ours; without it there is what the datastore has.
func TestAClusterIsCollectedWithKubectl(t *testing.T) {
	dir := t.TempDir()
	exe := file(t, filepath.Join(dir, "twill"), "#!/bin/sh\necho \"twill $@\"\n", 0o700)
	pods := file(t, filepath.Join(dir, "pods.json"), somePods, 0o600)
	kubectl := file(t, filepath.Join(dir, "kubectl"), "#!/bin/sh\ncase \"$*\" in *'get pods --all-namespaces -o json') cat "+pods+";; *exec*ipset*) exit 1;; *) echo \"$@\"; echo token=hunter2;; esac\n", 0o700)
	w := clusterWide{since: time.Hour, maxLogs: 1, kubectl: []string{kubectl, "--context=c"}}
	c := collector{exe: exe, progress: &bytes.Buffer{}, within: time.Minute}
	var archive bytes.Buffer
	if _, err := c.archive(t.Context(), &archive, "top", w.sources(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, &archive)
	const hidden = "\ntoken=(hidden)\n"
	agent := "top/nodes/h1/calico-system/calico-node-a/"
	for name, want := range map[string]string{
		"top/resources/ippools.yaml": "twill get ippools -o yaml\n", "top/resources/networkpolicies.yaml": "twill get networkpolicies -o yaml -A\n", "top/twill/ipam-check.txt": "twill ipam check\n",
		"top/kubernetes/nodes.txt":                      "--context=c get nodes --all-namespaces -o wide" + hidden,
		agent + "log.txt":                               "--context=c logs -n calico-system calico-node-a --all-containers --prefix --since=1h0m0s" + hidden,
		agent + "describe.txt":                          "--context=c describe pod -n calico-system calico-node-a" + hidden,
		agent + "nftables.txt":                          "--context=c exec -n calico-system calico-node-a -c calico-node -- nft -n -a list ruleset" + hidden,
		"top/nodes/h1/calico-system/typha-7d-x/log.txt": "--context=c logs -n calico-system typha-7d-x --all-containers --prefix --since=1h0m0s" + hidden,
		"top/nodes/none/kube-system/twill-z/status.txt": "--context=c exec -n kube-system twill-z -c agent -- twill status -o wide" + hidden,
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for name := range got {
		if strings.Contains(name, "secret") || strings.Contains(name, "/web/") || strings.Contains(name, "typha-8e") || strings.HasSuffix(name, "typha-7d-x/nftables.txt") {
			t.Errorf("%s is there", name)
		}
	}
	if index := got["top/index.txt"]; !has(index, "nodes/h1/calico-system/calico-node-a/ipset.txt", "exit code 1") {
		t.Errorf("that ipset failed is not in the index:\n%s", index)
	}
	w.kubectl = []string{"no-such-kubectl-anywhere"}
	names := func(all []source) (out []string) {
		for _, s := range all {
			out = append(out, s.name)
		}
		return out
	}
	without := names(w.sources(t.Context(), c))
	if !slices.Contains(without, apiThere) || !slices.Contains(without, "resources/ippools.yaml") || slices.Contains(without, "kubernetes/nodes.txt") {
		t.Errorf("without kubectl there is %v", without)
	}
}

// TestKubectlHasTheClusterOfTheConnection if it is named there.
func TestKubectlHasTheClusterOfTheConnection(t *testing.T) {
	got := strings.Join(kubectlOf(datastore.Config{Kubeconfig: "/etc/k", Context: "c"}), " ")
	if want := "kubectl --kubeconfig=/etc/k --context=c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := kubectlOf(datastore.Config{}); len(got) != 1 {
		t.Errorf("without them there is %q", got)
	}
}

// TestSinceWantsAUnit: 5 alone is neither seconds nor hours.
func TestSinceWantsAUnit(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "0s": 0, "90s": 90 * time.Second, "5h": 5 * time.Hour, "5": -1, "0": -1, "-5h": -1, "soon": -1} {
		got, err := parseSince(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}
