package podtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// audited is a server that notes what service accounts ask of it.
func audited(t testing.TB, flags ...string) (*kubetest.Server, string) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata, userGroups: ['system:serviceaccounts']}, {level: None}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubetest.New(t, kubetest.Config{Flags: append(flags, "--audit-policy-file="+policy, "--audit-log-path="+log)}), log
}

// request is what somebody asked of the server.
type request struct {
	Verb      string
	ObjectRef struct{ APIGroup, Resource, Subresource string }
	Response  struct{ Code int } `json:"responseStatus"`
}

func (r request) String() string {
	what := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	if r.ObjectRef.APIGroup != "" {
		what += "." + r.ObjectRef.APIGroup
	}
	return r.Verb + " " + what
}

// asked reads the log: what was asked for, and what of it was refused.
func asked(t testing.TB, log string) (all, refused map[string]bool) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, refused = map[string]bool{}, map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil || r.ObjectRef.Resource == "" {
			continue // the last line, which is being written, and requests for what there is
		}
		all[r.String()] = true
		if r.Response.Code == 403 {
			refused[r.String()] = true
		}
	}
	return all, refused
}

// allowed are the requests that a role allows, as [request] writes them. Groups that this cluster has not are left out.
func allowed(t testing.TB, s *kubetest.Server, path string) []string {
	t.Helper()
	var role struct {
		Rules []struct{ APIGroups, Resources, Verbs []string }
	}
	if err := s.Admin().Call(t.Context(), "GET", "/apis/rbac.authorization.k8s.io/v1/"+path, nil, &role); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range role.Rules {
		if group := r.APIGroups[0]; group != "" && s.Admin().Call(t.Context(), "GET", "/apis/"+group, nil, nil) != nil {
			continue
		}
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				q := request{Verb: verb}
				q.ObjectRef.APIGroup = r.APIGroups[0]
				q.ObjectRef.Resource, q.ObjectRef.Subresource, _ = strings.Cut(resource, "/")
				out = append(out, q.String())
			}
		}
	}
	return out
}

// rare are requests that agents make only when they run into each other, or a container has more than one address (ipam's tests have
// them), or that depend on when something is written.
var rare = map[string]string{
	"delete ipamblocks.GROUP":      "a block that was created is taken back when another step fails",
	"delete blockaffinities.GROUP": "a claim to a block that another node was first to take is taken back",
	"update ipamhandles.GROUP":     "a handle of several addresses gets one more, or gives one back",
	"delete records.twill.net":     "the settings end what is reported",
	"list records.twill.net":       "an address is a host's that has no Node",
}

// TestTheAgentsRoleIsWhatTheyAskForAndNothingMore has an agent with the rights of its role alone do what agents do.
func TestTheAgentsRoleIsWhatTheyAskForAndNothingMore(t *testing.T) {
	s, log := audited(t)
	n := newNode(t, s, "n3")
	n.define()
	s.Apply(t, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: pods}\nspec: {cidr: 10.67.0.0/24, blockSize: 26, nodeSelector: all(), vxlanMode: Always}\n")
	n.agent(n.account("agent"))
	n.worksWithItsRights(log, "clusterroles/twill-agent")
}

// TestTheNodesRoleIsWhatTheyAskForAndNothingMore is the same of all that a node runs, in both forms of resources.
func TestTheNodesRoleIsWhatTheyAskForAndNothingMore(t *testing.T) {
	for _, group := range []form.Group{form.V3, form.V1} {
		t.Run(string(group), func(t *testing.T) {
			s, log := audited(t)
			n := newNode(t, s, "n4")
			n.group = group
			n.define()
			n.Veth("eth0", "router")
			n.Addr("eth0", "192.0.2.4/24")
			s.Apply(t, "apiVersion: "+string(group)+"\nkind: CalicoNodeStatus\nmetadata: {name: n4}\nspec: {node: n4, classes: [BGP], updatePeriodSeconds: 1}\n")
			s.Apply(t, "apiVersion: "+string(group)+"\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {node: n4, peerIP: 192.0.2.99, asNumber: 65001, password: {secretKeyRef: {name: bgp, key: tor}}}\n")
			n.whole(n.account("node", "--bgp-secrets", "bgp"), "CALICO_IPV4POOL_CIDR=10.67.0.0/24", "CALICO_IPV4POOL_BLOCK_SIZE=26")
			n.worksWithItsRights(log, "clusterroles/twill-node", "namespaces/kube-system/roles/twill-node")
		})
	}
}

// account makes the service account that `twill kube` prints for agents or nodes, and returns a kubeconfig of it.
func (n *node) account(of string, flags ...string) (kubeconfig string) {
	n.t.Helper()
	out, err := exec.Command(n.twill, append([]string{"kube", of, "--namespace", "kube-system", "--group", string(n.group)}, flags...)...).Output()
	if err != nil {
		n.t.Fatal(err)
	}
	n.s.Apply(n.t, string(out))
	return n.s.KubeconfigFor(n.t, "kube-system", "twill-"+of)
}

// worksWithItsRights has a node that runs do all that it may, and fails if it was refused anything, or never asked for what it may.
func (n *node) worksWithItsRights(log string, roles ...string) {
	t, s := n.t, n.s
	t.Helper()
	s.Apply(t, `apiVersion: `+string(n.group)+`
kind: KubeControllersConfiguration
metadata: {name: default}
spec: {controllers: {node: {hostEndpoint: {autoCreate: Enabled}}}}
`)
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: "+ns+"}\n")
	n.ready()
	n.awaitPool()
	p := n.plugin()
	for _, container := range []string{"c-1", "c-2"} { // what is written of a pod that fails, and fails again
		p.fails(ns, "wrong", container)
	}
	s.DefineKubeVirt(t)
	n.launcher(ns, "virt-launcher-vm", "vm", s.Machine(t, ns, "vm"))
	p.attach(ns, "virt-launcher-vm")
	web := p.add(ns, "web", "app: web")
	p.add(ns, "more", "app: web")
	gc := p
	gc.conf += `,"cniVersion":"1.1.0","cni.dev/valid-attachments":[{"containerID":"c-web","ifname":"eth0"},{"containerID":"c-more","ifname":"eth0"}]`
	if text, err := gc.call("GC", ns, "", "", web.NS); err != nil {
		t.Errorf("GC: %v\n%s", err, text)
	}
	if text, err := p.call("DEL", ns, "web", "c-web", web.NS); err != nil {
		t.Errorf("DEL: %v\n%s", err, text)
	}
	var may []string
	for _, role := range roles {
		may = append(may, allowed(t, s, role)...)
	}
	exempt := map[string]bool{}
	for a := range rare {
		a = strings.Replace(a, "GROUP", string(n.group[:strings.IndexByte(string(n.group), '/')]), 1)
		if exempt[a] = true; !slices.Contains(may, a) {
			t.Errorf("%s is not allowed", a)
		}
	}
	lacks := func() (unused, refused []string) {
		did, not := asked(t, log)
		for _, a := range may {
			if !did[a] && !exempt[a] {
				unused = append(unused, a)
			}
		}
		for a := range not {
			refused = append(refused, a)
		}
		return unused, refused
	}
	// What only comes with time: reports, and host endpoints that change and go.
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-look.C {
		if unused, _ := lacks(); len(unused) == 0 {
			break
		}
		auto := map[string]any{"autoCreate": []string{"Enabled", "Disabled"}[time.Now().Second()%2]}
		n.patch("/apis/"+string(n.group)+"/kubecontrollersconfigurations/default", map[string]any{"spec": map[string]any{"controllers": map[string]any{"node": map[string]any{"hostEndpoint": auto}}}})
		n.patch("/api/v1/nodes/"+n.name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"turn": fmt.Sprint(time.Now().UnixMilli())}}})
	}
	unused, refused := lacks()
	slices.Sort(unused)
	if len(unused) > 0 || len(refused) > 0 {
		t.Errorf("allowed, and not asked for: %v; asked for, and refused: %v", unused, refused)
	}
}
