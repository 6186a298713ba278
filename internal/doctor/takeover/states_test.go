package takeover

import (
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/doctor"
)

var ofStore = []planted{
	{
		"the datastore does not answer", func(f *Facts) { f.Store.Err = "datastore is unavailable" },
		"+blocks store: datastore is unavailable\n" + gone("addresses", "bgp", "cluster", "node", "resources", "workloads"),
	},
	{"a member is full, and another away", func(f *Facts) {
		f.Store.Members = []doctor.Member{{Endpoint: "a", Full: true}, {Endpoint: "b", Err: "refused"}, {Endpoint: "c"}}
	}, "+blocks store: a is full: nothing can be written, so no address can be assigned\n+changes store: b does not answer: refused [when Twill starts]"},
	{"the datastore is locked", func(f *Facts) {
		f.put("clusterinformations/default", `{"spec":{"datastoreReady":false}}`)
	}, "+blocks store: the datastore is locked (datastoreReady is false): neither agent changes anything, and a take-over cannot be checked"},
	{"a kind cannot be listed", func(f *Facts) { f.ListFailed("tiers", "forbidden") }, "+blocks store: tiers cannot be listed: forbidden"},
	{"rules that look into requests, in three policies", func(f *Facts) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			f.put("networkpolicies/shop/default."+name, `{"spec":{"types":["Ingress"],"ingress":[{"action":"Allow"},{"action":"Allow","http":{"methods":["GET"`+strings.Repeat(`,"GET"`, 20)+`]}}]}}`)
		}
	}, `+blocks resources: NetworkPolicy shop/a, NetworkPolicy shop/b, NetworkPolicy shop/c, NetworkPolicy shop/d and 1 more: spec.ingress[].http has more than 20 methods or paths; the rule matches nothing
+same resources: 1 global policy, 5 policies in namespaces, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"a rule that looks into requests", func(f *Facts) {
		f.put("globalnetworkpolicies/default.allow", `{"spec":{"types":["Ingress"],"ingress":[{"action":"Allow","http":{"methods":["GET"]}}]}}`)
	}, `+changes resources: GlobalNetworkPolicy allow: spec.ingress[].http allows nothing where no proxy of the workload reads policy from the agent: see policySyncPathPrefix and docs/policy-sync.md [when Twill starts]
+same resources: 2 global policies, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"policies without types", func(f *Facts) {
		f.put("networkpolicies/shop/default.in", `{"spec":{"ingress":[{"action":"Allow"}]}}`)
		f.put("networkpolicies/shop/default.none", `{"spec":{}}`)
		f.put("networkpolicies/shop/default.both", `{"spec":{"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}]}}`)
		f.put("networkpolicies/shop/default.typed", `{"spec":{"types":["Ingress"],"ingress":[{"action":"Allow"}]}}`)
		f.put("globalnetworkpolicies/default.out", `{"spec":{"egress":[{"action":"Allow"}]}}`)
	}, `+changes resources: GlobalNetworkPolicy out: spec.types is not there, and there are egress rules alone: Calico's agent takes that for Ingress and Egress, and denies ingress; Twill takes it for Egress, as Calico documents it, and leaves ingress to other policies and profiles [when Twill starts]
+changes resources: NetworkPolicy shop/in, NetworkPolicy shop/none: spec.types is not there, and there are no egress rules: Calico's agent takes that for Ingress and Egress, and denies egress; Twill takes it for Ingress, as Calico documents it, and leaves egress to other policies and profiles [when Twill starts]
+same resources: 2 global policies, 4 policies in namespaces, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"a value that is no resource", func(f *Facts) { f.put("tiers/x", "{") }, `+blocks resources: Tier x: cannot be read: not JSON
+same resources: 1 tier, 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"a setting without effect", func(f *Facts) { f.put("felixconfigurations/node.h2", `{"spec":{"bpfLogLevel":"Debug"}}`) }, "+changes resources: FelixConfiguration node.h2: spec.bpfLogLevel has no effect: policy is enforced with nftables, not eBPF [when Twill starts]"},
	{"a resource that acts, and would be refused of a user", func(f *Facts) {
		f.put("ippools/two", `{"spec":{"cidr":"10.66.0.0/16","blockSize":26,"disabled":true,"allowedUses":["Workload"],"natOutgoing":true,"nodeSelector":"all("}}`)
	}, `+changes resources: IPPool two: spec.nodeSelector selector "all(": character 5: want ) to end all(, found the end; write has(label), all() or global(); it acts as it is stored, and a change of it would be refused [when it is edited]
+same resources: 1 global policy, 1 workload endpoint, 2 nodes, 2 pools: read where they are, by the same keys
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"many resources that are each wrong in a way of its own", func(f *Facts) {
		for i := range mostResources + 2 {
			f.put(fmt.Sprintf("tiers/t%d", i), fmt.Sprintf("%d", i))
		}
	}, manyTiers()},
	{"endpoints that are not understood", func(f *Facts) {
		f.put("workloadendpoints/default/h2-k8s-x-eth0", `{"spec":{"node":"h2","interfaceName":"cali2","ipNetworks":7}}`)
		f.put("hostendpoints/h", `{"spec":{"node":"h1","interfaceName":"eth0"}}`)
	}, `+blocks resources: WorkloadEndpoint default/h2-k8s-x-eth0: spec.ipNetworks want a list, got 7
+same resources: 1 global policy, 1 host endpoint, 2 workload endpoints, 2 nodes, 1 pool: read where they are, by the same keys
+same workloads: 1 host endpoint of this node: policy of the host is in force with the first transaction
` + gone("resources")},
	{"what daemons write, and what is made of Kubernetes' objects, which no user writes again", func(f *Facts) {
		for _, tail := range []string{"networkpolicies/shop/knp.default.web", "profiles/kns.shop"} {
			ref, _ := api.ParseKey(api.ResourcesPrefix + tail)
			f.put(tail, fmt.Sprintf(`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":%q,"labels":{"a/b/c":"d"}},"spec":{}}`, ref.Kind, ref.Name, ref.Namespace))
		}
	}, `+same resources: 1 global policy, 1 policy in a namespace, 1 profile, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys
` + gone("resources")},
	{"kinds that are not known", func(f *Facts) { f.put("dreams/a", "{}"); f.put("dreams/b", "{}") }, "+changes resources: 2 resources of a kind that Twill does not know, dreams, have no effect [when Twill starts]"},
	{"an empty datastore", func(f *Facts) { f.listed = nil }, `+changes resources: the datastore has no resources [when Twill starts]
-same resources: 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys`},
	{"addresses that nobody has, and a block that cannot be read", func(f *Facts) {
		for _, a := range []string{"10.65.0.1", "10.65.0.2"} {
			f.IPAM = append(f.IPAM, Inconsistency{Of: a, Problem: "is allocated, and nobody has it", Proof: "no endpoint has " + a})
		}
		f.IPAM = append(f.IPAM, Inconsistency{Problem: "/calico/x cannot be read", Proof: "not JSON", Broken: true})
	}, `+blocks addresses: /calico/x cannot be read (not JSON)
+changes addresses: 10.65.0.1, 10.65.0.2: each is allocated, and nobody has it (the first: no endpoint has 10.65.0.1) [when Twill starts]`},
	{"address management cannot be read", func(f *Facts) { f.IPAMErr = "forbidden" }, "+blocks addresses: addresses cannot be checked: forbidden\n" + gone("addresses")},
	{"all nodes are Twill's", func(f *Facts) {
		f.Reports, f.HostErr = map[string]Reporting{"h1": Twills, "h2": Twills}, "not root"
	}, "+same cluster: Twill's agent reports from all of 2 nodes\n+blocks host: this host cannot be read, and nothing is known of what runs and is left here: not root\n" + gone("cluster", "kernel", "workloads")},
	{"half of the nodes are Twill's", func(f *Facts) { f.Reports = map[string]Reporting{"h1": Twills, "h2": Twills} }, `+same cluster: Twill's agent reports from 1 of 2 nodes; Twill's: h2; Calico's: h1
` + gone("cluster")},
	{"reports cannot be read", func(f *Facts) { f.ReportsErr = "forbidden" }, `+changes cluster: which nodes Twill has is not known: forbidden [when Twill starts]
` + gone("cluster")},
}

func manyTiers() string {
	var out []string
	for i := range mostResources {
		out = append(out, fmt.Sprintf("+blocks resources: Tier t%d: want an object, got %d", i, i))
	}
	return strings.Join(append(out, "+blocks resources: 2 more of that grade, of resources, which are not listed",
		"+same resources: 22 tiers, 1 global policy, 1 workload endpoint, 2 nodes, 1 pool: read where they are, by the same keys", gone("resources")), "\n")
}
