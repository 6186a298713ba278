package crds

import (
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// AgentAccount is the service account of the agents, and the name of its role.
const AgentAccount = "twill-agent"

// read is what follows a kind; change is what keeps it.
var (
	read   = []any{"list", "watch"}
	change = []any{"get", "create", "update", "delete"}
)

// written are the kinds that an agent writes, by what it does.
var written = map[string][]any{
	"ipamblocks": change, "ipamhandles": change, "blockaffinities": change, // addresses of containers
	"hostendpoints": change, // automatic ones of its node
}

// asked are kinds of which an agent also asks for one.
var asked = map[string][]any{
	"nodes": {"get"}, "pods": {"get"}, "namespaces": {"get"}, "serviceaccounts": {"get"}, // of a container that is attached
	"ipamconfigurations": {"get"}, "ipamconfigs": {"get"},
}

// Agent are the objects that let agents do what they must, and nothing more: a service account in a namespace, and what it may do.
func Agent(g form.Group, namespace string) []map[string]any {
	var rules []any
	for _, k := range form.Kinds(g) {
		group, _, ok := strings.Cut(strings.TrimPrefix(k.Path, "/apis/"), "/")
		if !ok || group == "" { // /api/v1
			group = ""
		}
		if k.As != "" {
			continue // the same objects as another kind
		}
		verbs := slices.Concat(read, written[k.Plural], asked[k.Plural])
		switch k.Plural {
		case "ipamhandles", "records":
			verbs = change // nobody follows them
		}
		rules = append(rules, rule(group, k.Plural, verbs))
	}
	rules = append(rules, rule("", "pods/status", []any{"patch"})) // notes of addresses
	return []map[string]any{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": AgentAccount, "namespace": namespace}},
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": AgentAccount}, "rules": rules},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": AgentAccount},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": AgentAccount},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": AgentAccount, "namespace": namespace}},
		},
	}
}

func rule(group, resource string, verbs []any) map[string]any {
	return map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
}
