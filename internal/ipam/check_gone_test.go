package ipam

import "strings"

// plantsWithoutNodes are of hosts that have no Node: they left, or Kubernetes never had them.
var plantsWithoutNodes = []planted{
	{
		"a container on a node that is gone, whose agent reported",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", `"node":"n9"`+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			lastReport:                             `{}`,
		},
		"leak 10.65.0.8: it was given to the container of handle k8s-pod-network.x of node n9, which does not exist, and no WorkloadEndpoint has it; free it | " +
			"claim 10.65.0.8/29: the datastore has no node n9, and its last report has expired; give it up",
		map[string]string{block8: "not found", handleX: "not found", strings.Replace(claim8, "n1", "n9", 1): "not found"},
	},
	{
		"a container on a host without a Node, of which nothing is known",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", `"node":"n9"`+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
		},
		"leak 10.65.0.8: it was given to the container of handle k8s-pod-network.x of node n9, which does not exist, and nothing says whether that host lives; kept: nothing proves that it is leaked: look on n9",
		map[string]string{block8: `[0,null`, handleX: "1", strings.Replace(claim8, "n1", "n9", 1): confirmed},
	},
	{
		"a container on a host without a Node, whose agent lives",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", `"node":"n9"`+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
			lastReport:                             `{}`, "/calico/felix/v2/no-region/host/n9/status": `{}`,
		},
		"leak 10.65.0.8: no WorkloadEndpoint has it, and nothing says that the container of handle k8s-pod-network.x was to have one; kept: nothing proves",
		map[string]string{block8: `[0,null`, handleX: "1", strings.Replace(claim8, "n1", "n9", 1): confirmed},
	},
	{
		"a pod on a node that is gone",
		map[string]string{
			block8: strings.Replace(blockWith(owned("k8s-pod-network.x", strings.Replace(stored, "n1", "n9", 1)+long)), "host:n1", "host:n9", 1), handleX: one8,
			strings.Replace(claim8, "n1", "n9", 1): confirmed,
		},
		"leak 10.65.0.8: it was given to prod/x of node n9, which does not exist, and no WorkloadEndpoint has it; free it | " +
			"claim 10.65.0.8/29: the datastore has no node n9, and no endpoint on it; give it up",
		map[string]string{block8: "not found", handleX: "not found", strings.Replace(claim8, "n1", "n9", 1): "not found"},
	},
}
