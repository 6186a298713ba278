package crds

import (
	"strings"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// ControllersAccount is the service account of `twill kube-controllers`, and the name of its roles and its Deployment.
const ControllersAccount = "twill-kube-controllers"

// controlled are the kinds that the controllers use, by what they do.
var controlled = map[string][]any{
	"nodes": {"get", "list", "watch"}, "pods": {"get", "list"}, "namespaces": {"get", "list"}, // one of all, for the position of a watch
	"services":            {"get", "list", "watch"},
	"clusterinformations": read, "kubecontrollersconfigurations": {"get", "list", "watch", "create", "update"}, // in which they say what is in effect
	"ippools": keep, "tiers": keep, // their finalizers and conditions
	"networkpolicies": read, "globalnetworkpolicies": follow, "stagednetworkpolicies": follow, "stagedglobalnetworkpolicies": follow, "stagedkubernetesnetworkpolicies": follow, // and say where they are in force
	"clusternetworkpolicies": follow, "adminnetworkpolicies": follow, "baselineadminnetworkpolicies": follow, // and of those that say in their status what is closed
	"ipreservations": {"list"}, "ipamconfigurations": {"get", "list"}, "ipamconfigs": {"get", "list"},
	"hostendpoints": {"get", "list", "watch", "create", "update", "delete"},                                                   // automatic ones
	"bgppeers":      {"list"}, "caliconodestatuses": {"list"}, "bgpconfigurations": {"list"}, "felixconfigurations": {"list"}, // that name such a node, for the log
	"records":    {"list", "watch", "delete"}, // what agents report
	"ipamblocks": repair, "ipamhandles": repair, "blockaffinities": repair,
}

// follow is what is done to what is followed, of which one is also asked for.
var follow = []any{"get", "list", "watch"}

// keep is what is done to what is followed, and changed in parts.
var keep = []any{"get", "list", "watch", "update"}

// repair is what address management does to its own.
var repair = []any{"get", "list", "create", "update", "delete"}

// Controllers are the objects that let the controllers do what they must, and nothing more: a service account in a namespace, and what it
// may do in the cluster, and to the lease there.
func Controllers(g form.Group, namespace, lease string) []map[string]any {
	var rules []any
	for _, k := range form.Kinds(g) {
		if verbs := controlled[k.Plural]; verbs != nil && k.As == "" {
			group, _, ok := strings.Cut(strings.TrimPrefix(k.Path, "/apis/"), "/")
			if !ok || group == "" { // /api/v1
				group = ""
			}
			rules = append(rules, rule(group, k.Plural, verbs))
		}
	}
	group, _, _ := strings.Cut(string(g), "/")
	if g == form.V1 { // in the other group policies always had their names
		rules = append(rules, renamed(group))
	}
	if g == form.V3 { // else it is a part of the object
		rules = append(rules, rule(group, "ippools/status", []any{"update"}), rule(group, "tiers/status", []any{"update"}), rule(group, "kubecontrollersconfigurations/status", []any{"update"}))
	}
	rules = append(rules, ingress(), rule(group, "networkpolicies", []any{"get"}), realised(group)) // Kubernetes' own have no status
	rules = append(rules, machines()...)
	return append(account(ControllersAccount, namespace, append(rules, feedback()...)), leaseRole(namespace, lease)...)
}

// realised is the right to say of policies of a group where they are in force.
func realised(group string) map[string]any {
	out := rule(group, "", []any{"patch"})
	out["resources"] = []any{
		"networkpolicies/status", "globalnetworkpolicies/status", "stagednetworkpolicies/status", "stagedglobalnetworkpolicies/status", "stagedkubernetesnetworkpolicies/status",
	}
	return out
}

// renamed is the right to store policies of a group under other names.
func renamed(group string) map[string]any {
	out := rule(group, "", []any{"create", "delete"})
	out["resources"] = []any{"networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"}
	return out
}

// ingress is the right to publish addresses of services.
func ingress() map[string]any { return rule("", "services/status", []any{"patch"}) }

// machines is the right to ask whether there is a virtual machine still that has an address.
func machines() []any {
	return []any{rule(kubeVirt, "virtualmachines", []any{"get"}), rule(kubeVirt, "virtualmachineinstances", []any{"get"})}
}

// clusterWide is about Kubernetes' cluster-wide policies, or a part of them, such as /status.
func clusterWide(part string, verbs []any) map[string]any {
	out := rule("policy.networking.k8s.io", "", verbs)
	out["resources"] = []any{"clusternetworkpolicies" + part, "adminnetworkpolicies" + part, "baselineadminnetworkpolicies" + part}
	return out
}

// feedback is what lets them report on users' objects: policies that are closed in part, and nodes without an agent.
func feedback() []any {
	return []any{rule("", "events", []any{"create"}), clusterWide("/status", []any{"patch"}), rule("", "nodes/status", []any{"patch"})}
}

// ControllersWithEtcd is Controllers for a cluster whose datastore is etcd: they read what Kubernetes has itself, report on it, and publish
// addresses of services.
func ControllersWithEtcd(namespace, lease string) []map[string]any {
	look := []any{"get", "list", "watch"}
	rules := []any{rule("networking.k8s.io", "networkpolicies", look), clusterWide("", look), ingress()}
	for _, plural := range []string{"namespaces", "nodes", "pods", "serviceaccounts", "services"} {
		rules = append(rules, rule("", plural, look))
	}
	rules = append(rules, machines()...)
	return append(account(ControllersAccount, namespace, append(rules, feedback()...)), leaseRole(namespace, lease)...)
}

// leaseRole is what they may do to their lease.
func leaseRole(namespace, lease string) []map[string]any {
	const leases = "coordination.k8s.io"
	mine := rule(leases, "leases", []any{"get", "update"})
	mine["resourceNames"] = []any{lease}
	// The name of what is to be made is not known to who judges a request.
	return roleIn(namespace, ControllersAccount, rule(leases, "leases", []any{"create"}), mine)
}

// ControllersDeployment runs two replicas of an image, which has twill in its path. They must run where there are no addresses for pods yet.
func ControllersDeployment(namespace, image, health string) map[string]any {
	labels := map[string]any{"k8s-app": ControllersAccount}
	probe := func(args ...any) map[string]any {
		return map[string]any{"exec": map[string]any{"command": append([]any{"twill", "kube-controllers", "check", "--health", health}, args...)}, "periodSeconds": 10, "timeoutSeconds": 10}
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": ControllersAccount, "namespace": namespace, "labels": labels},
		"spec": map[string]any{
			"replicas": 2, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{
					"serviceAccountName": ControllersAccount, "priorityClassName": "system-cluster-critical",
					"nodeSelector": map[string]any{"kubernetes.io/os": "linux"},
					"tolerations": []any{
						map[string]any{"key": "CriticalAddonsOnly", "operator": "Exists"},
						map[string]any{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
					},
					"containers": []any{map[string]any{
						"name": "kube-controllers", "image": image, "args": []any{"kube-controllers", "--namespace", namespace, "--health", health},
						"env":            []any{map[string]any{"name": "DATASTORE_TYPE", "value": "kubernetes"}},
						"readinessProbe": probe(), "livenessProbe": probe("--live"),
						"resources": map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "64Mi"}},
					}},
				},
			},
		},
	}
}
