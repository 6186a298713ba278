package crds

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// AgentAccount is the service account of agents that run alone, and NodeAccount that of all that a node runs; their roles have the same names.
const (
	AgentAccount = "twill-agent"
	NodeAccount  = "twill-node"
)

// read is what follows a kind; change is what keeps it.
var (
	read   = []any{"list", "watch"}
	change = []any{"get", "create", "update", "delete"}
)

// written are the kinds that an agent writes.
var written = map[string][]any{
	"ipamblocks": change, "ipamhandles": change, "blockaffinities": change, // addresses of containers
	"hostendpoints": change, // automatic ones of its node
}

// asked are kinds of which an agent also asks for one.
var asked = map[string][]any{
	"nodes": {"get"}, "pods": {"get"}, "namespaces": {"get"}, "serviceaccounts": {"get"}, // of a container that is attached
	"ipamconfigurations": {"get"}, "ipamconfigs": {"get"},
}

// more is what a node does in addition to its agent.
var more = map[string][]any{
	"clusterinformations": {"get", "create"}, "tiers": {"get", "create"}, "ippools": {"create"}, // what each cluster has, and the pools that the environment names
	"caliconodestatuses": {"get", "update"},
}

// Agent are the objects that let agents do what they must, and nothing more: a service account in a namespace, and what it may do.
func Agent(g form.Group, namespace string) []map[string]any {
	return account(AgentAccount, namespace, rules(g, nil))
}

// Node are the objects that let all that a node runs do what it must, and nothing more: with names of Secrets in that namespace, read these.
func Node(g form.Group, namespace string, secrets ...string) []map[string]any {
	all := rules(g, more)
	if g == form.V3 { // else it is a part of the object
		group, _, _ := strings.Cut(string(g), "/")
		all = append(all, rule(group, "caliconodestatuses/status", []any{"update"}))
	}
	out := account(NodeAccount, namespace, all)
	if len(secrets) > 0 { // passwords of BGP
		these := rule("", "secrets", read)
		these["resourceNames"] = secrets
		out = append(out, roleIn(namespace, NodeAccount, these)...)
	}
	return out
}

// rules are what an agent may do, and what else somebody may do, by kind.
func rules(g form.Group, extra map[string][]any) []any {
	var out []any
	for _, k := range form.Kinds(g) {
		group, _, ok := strings.Cut(strings.TrimPrefix(k.Path, "/apis/"), "/")
		if !ok || group == "" { // /api/v1
			group = ""
		}
		if k.As != "" {
			continue // the same objects as another kind
		}
		verbs := slices.Concat(read, written[k.Plural], asked[k.Plural], extra[k.Plural])
		switch k.Plural {
		case "ipamhandles", "records":
			verbs = slices.Concat([]any{"list"}, change) // nobody follows them; who looks for leaked addresses reads all
		}
		out = append(out, rule(group, k.Plural, verbs))
	}
	return append(out,
		rule("", "nodes/status", []any{"patch"}),                // addresses of its ends of tunnels, in annotations; a node writes its own there, too. It leaves the spec as it is
		rule("", "pods/status", []any{"patch"}),                 // notes of addresses, and that one could not be attached
		rule("", "events", []any{"create", "patch"}),            // why
		rule(kubeVirt, "virtualmachineinstances", []any{"get"}), // that a pod says that it runs
	)
}

// kubeVirt is the API group of virtual machines. Where there is no KubeVirt, nothing of it is asked for.
const kubeVirt = "kubevirt.io"

const rbac = "rbac.authorization.k8s.io"

// account is a service account that a role of its name is bound to.
func account(name, namespace string, rules []any) []map[string]any {
	return []map[string]any{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name, "namespace": namespace}},
		{"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": rules},
		{
			"apiVersion": rbac + "/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": namespace}},
		},
	}
}

// roleIn is a role in one namespace, bound to the service account of its name there.
func roleIn(namespace, name string, rules ...any) []map[string]any {
	at := map[string]any{"name": name, "namespace": namespace}
	return []map[string]any{
		{"apiVersion": rbac + "/v1", "kind": "Role", "metadata": at, "rules": rules},
		{
			"apiVersion": rbac + "/v1", "kind": "RoleBinding", "metadata": at,
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "Role", "name": name},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": name, "namespace": namespace}},
		},
	}
}

func rule(group, resource string, verbs []any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}
