package world

// selectionCases: which policies apply, and whom a rule's selectors mean.
var selectionCases = []stageCase{
	{
		"a network policy is for its namespace alone", "MODEL: same namespace",
		`NetworkPolicy test/a {ingress: [{action: Deny}], egress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a global policy can ask for labels of namespaces", "MODEL: namespaceSelector (labels prefixed pcns.)",
		`GlobalNetworkPolicy a {namespaceSelector: env == "live", selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"a workload's own pcns labels count for nothing", "wrong-input: labels that begin with pcns. are ignored",
		`GlobalNetworkPolicy a {namespaceSelector: env == "live", ingress: [{action: Deny}]}
WorkloadEndpoint test/h1-k8s-evil-eth0 {labels: {pcns.env: live, projectcalico.org/namespace: prod}, workload: evil, pod: evil, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali4, ipNetworks: [10.0.0.4/32], profiles: [kns.test]}`,
		"test/cli > test/evil tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"a workload that lies about its namespace stays in its own", "MODEL: always forced to the real namespace",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: all()}}]}
WorkloadEndpoint test/h1-k8s-evil-eth0 {labels: {projectcalico.org/namespace: prod}, workload: evil, pod: evil, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali4, ipNetworks: [10.0.0.4/32], profiles: [kns.test]}`,
		"test/evil > prod/db tcp 80", endOfDefault,
	},
	{
		"a service account selector asks for its labels", "MODEL: serviceAccountSelector with labels prefixed pcsa.",
		`NetworkPolicy test/a {serviceAccountSelector: role == "bot", ingress: [{action: Deny}]}`,
		"prod/web > test/cli tcp 80", "Deny: rule NetworkPolicy/test/a#0",
	},
	{
		"an endpoint's own label beats its profile's", "S1: endpoint's own label beats the profile's",
		`Profile kns.prod {labelsToApply: {app: db}, ingress: [{action: Allow}], egress: [{action: Allow}]}
GlobalNetworkPolicy a {selector: app == "db", types: [Egress]}`,
		"prod/web > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"an earlier profile's label beats a later one's", "S1: an earlier profile beats a later one",
		`Profile kns.test {labelsToApply: {side: early}, ingress: [{action: Allow}], egress: [{action: Allow}]}
Profile ksa.test.robot {labelsToApply: {side: late}}
GlobalNetworkPolicy a {selector: side == "early", ingress: [{action: Deny}]}`,
		"prod/web > test/cli tcp 80", "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"not equal matches where the label is absent", "S1: != matches where the label is absent",
		`GlobalNetworkPolicy a {selector: 'nothing != "x" && app == "db"', ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/a#0",
	},
	{
		"a selector in a network policy's rule means its namespace", "MODEL: AND projectcalico.org/namespace == policy's namespace",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: app == "cli"}}]}`,
		"test/cli > prod/db tcp 80", endOfDefault,
	},
	{
		"a selector in a global policy's rule means everything", "MODEL: Profile and GNP rules: no namespace added",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {selector: app == "cli"}}]}`,
		"test/cli > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"a namespace selector widens a network policy's rule", "MODEL: if no namespaceSelector is given",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: app == "cli", namespaceSelector: env == "test"}}]}`,
		"test/cli > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"global() means what is in no namespace", "MODEL: global() → !has(projectcalico.org/namespace)",
		`GlobalNetworkSet out {nets: [203.0.113.0/24]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: global()}}]}`,
		"203.0.113.7 > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"global() does not mean what is in a namespace", "MODEL: global() → !has(projectcalico.org/namespace)",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: global()}}]}`,
		"test/cli > prod/db tcp 80", endOfDefault,
	},
	{
		"a policy without rules and types leaves egress alone", "MODEL: absent → no egress rules: [Ingress]",
		`NetworkPolicy prod/a {selector: app == "web"}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a service account selector leaves others alone", "MODEL: serviceAccountSelector with labels prefixed pcsa.",
		`NetworkPolicy test/a {serviceAccountSelector: role == "human", ingress: [{action: Deny}]}`,
		"prod/web > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"a network set is in its namespace whatever its labels say", "MODEL: label projectcalico.org/namespace forced",
		`NetworkSet test/out {labels: {projectcalico.org/namespace: prod, kind: out}, nets: [203.0.113.0/24]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: kind == "out"}}]}`,
		"203.0.113.7 > prod/db tcp 80", endOfDefault,
	},
	{
		"a network set of the policy's namespace is selected", "MODEL: label projectcalico.org/namespace forced",
		`NetworkSet prod/out {labels: {kind: out}, nets: [203.0.113.0/24]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: kind == "out"}}]}`,
		"203.0.113.7 > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"all() as a part of one excludes it, too", "upstream: each all() → has(projectcalico.org/namespace)",
		`GlobalNetworkSet out {nets: [203.0.113.0/24]}
GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: "all() || env == 'x'"}}]}`,
		"203.0.113.7 > prod/db tcp 80", endOfDefault,
	},
	{
		"and includes what is in one", "upstream: each all() → has(projectcalico.org/namespace)",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: "all() || env == 'x'"}}]}`,
		"test/cli > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"its negation means what is in none", "upstream: each all() → has(projectcalico.org/namespace)",
		`GlobalNetworkSet out {nets: [203.0.113.0/24]}
GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: "!all()"}}]}`,
		"203.0.113.7 > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"and nothing in one", "upstream: each all() → has(projectcalico.org/namespace)",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: "!all()"}}]}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
	{
		"all() as a namespace selector excludes what is in none", "MODEL: all() → has(projectcalico.org/namespace)",
		`GlobalNetworkSet out {nets: [203.0.113.0/24]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {namespaceSelector: all()}}]}`,
		"203.0.113.7 > prod/db tcp 80", endOfDefault,
	},
	{
		"selector all() means all that is selectable, not all addresses", "MODEL: nothing given → no address restriction",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {selector: all()}}]}`,
		"203.0.113.7 > prod/db tcp 80", endOfDefault,
	},
	{
		"notSelector matches sources that are nothing of ours", "API-29: non-Calico sources match notSelector",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {notSelector: app == "cli"}}]}`,
		"203.0.113.7 > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"notSelector alone in a network policy still means its namespace", "MODEL: selector, notSelector, serviceAccounts",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {notSelector: app == "nobody"}}]}`,
		"test/cli > prod/db tcp 80", endOfDefault,
	},
	{
		"notSelector beside a selector is not about addresses", "decision 104",
		`GlobalNetworkSet all {labels: {old: yes}, nets: [10.0.0.0/8]}
GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {selector: app == "web", notSelector: has(old)}}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"one endpoint meets both", "decision 104",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow, source: {selector: all(), notSelector: app == "web"}}]}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
	{
		"a lone notSelector in a network policy is not about addresses either", "decision 104",
		`GlobalNetworkSet all {labels: {old: yes}, nets: [10.0.0.0/8]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {notSelector: has(old)}}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"a network set inherits its namespace's labels", "MODEL: NetworkSet inherits labels of profile kns.<ns>",
		`NetworkSet prod/out {nets: [203.0.113.1/24]}
NetworkPolicy test/a {ingress: [{action: Allow, source: {namespaceSelector: env == "live"}}]}`,
		"203.0.113.77 > test/cli tcp 80", "Allow: rule NetworkPolicy/test/a#0",
	},
	{
		"service accounts go by name", "MODEL: names → projectcalico.org/serviceaccount in {…}",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {serviceAccounts: {names: [robot]}, namespaceSelector: all()}}]}`,
		"test/cli > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"of several names one is enough", "API-31: names OR-ed",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {serviceAccounts: {names: [human, robot]}, namespaceSelector: all()}}]}`,
		"test/cli > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"a name is not enough beside a selector", "API-31: names AND selector",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {serviceAccounts: {names: [robot], selector: role == "human"}, namespaceSelector: all()}}]}`,
		"test/cli > prod/db tcp 80", endOfDefault,
	},
	{
		"nor is a selector beside names", "API-31: names AND selector",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {serviceAccounts: {names: [human], selector: role == "bot"}, namespaceSelector: all()}}]}`,
		"test/cli > prod/db tcp 80", endOfDefault,
	},
	{
		"a service account selector is one condition of two", "API-07: ANDed with selector",
		`NetworkPolicy test/a {selector: app == "web", serviceAccountSelector: role == "bot", ingress: [{action: Deny}]}`,
		"prod/web > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"a host endpoint's expected addresses are selectable", "MODEL: their expectedIPs are members of selections by label",
		`HostEndpoint h2-eth0 {labels: {role: host}, node: h2, interfaceName: eth0, expectedIPs: [192.0.2.2], profiles: [projectcalico-default-allow]}
GlobalNetworkPolicy a {selector: app == "web", ingress: [{action: Allow, source: {selector: role == "host"}}]}`,
		"host/h2 > prod/web tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
}

// onDB is a global policy with one rule for what db is sent.
func onDB(rule string) string {
	return `GlobalNetworkPolicy a {selector: app == "db", ingress: [` + rule + `]}`
}

const dbAllowed = "Allow: rule GlobalNetworkPolicy/a#0"

var ruleCases = []stageCase{
	{"a port range holds both its ends", "API-33", onDB(`{action: Allow, protocol: TCP, destination: {ports: ["80:90"]}}`), "prod/web > prod/db tcp 90", dbAllowed},
	{"a port past the range does not match", "API-33", onDB(`{action: Allow, protocol: TCP, destination: {ports: ["80:90"]}}`), "prod/web > prod/db tcp 91", endOfDefault},
	{"a port of another protocol does not match", "API-25", onDB(`{action: Allow, protocol: TCP, destination: {ports: [80]}}`), "prod/web > prod/db udp 80", endOfDefault},
	{"source ports are the sender's", "API-33", onDB(`{action: Allow, protocol: UDP, source: {ports: [99]}}`), "prod/web > prod/db udp 80 from 99", dbAllowed},
	{"notPorts exclude", "API-33", onDB(`{action: Allow, protocol: TCP, destination: {notPorts: [80]}}`), "prod/web > prod/db tcp 80", endOfDefault},
	{"a named port is the endpoint's", "API-34", onDB(`{action: Allow, protocol: TCP, destination: {ports: [sql]}}`), "prod/web > prod/db tcp 5432", dbAllowed},
	{"a named port has its protocol", "API-34: ports[] with matching protocol", onDB(`{action: Allow, protocol: UDP, destination: {ports: [sql]}}`), "prod/web > prod/db udp 5432", endOfDefault},
	{"a named port is or-ed with numbers", "MODEL: OR-ed with numeric ports", onDB(`{action: Allow, protocol: TCP, destination: {ports: [sql, 80]}}`), "prod/web > prod/db tcp 80", dbAllowed},
	{"a named port is only that of who is selected", "MODEL: endpoints which match the positive selector of that side", onDB(`{action: Allow, protocol: TCP, destination: {ports: [sql], selector: app == "web"}}`), "prod/web > prod/db tcp 5432", endOfDefault},
	{"a negated named port excludes", "MODEL: negations: in none", onDB(`{action: Allow, protocol: TCP, destination: {notPorts: [sql]}}`), "prod/web > prod/db tcp 5432", endOfDefault},
	{"a net of the other family does not match", "MODEL: nets positive of the other family: no match by itself", onDB(`{action: Allow, source: {nets: ["fd00::/64"]}}`), "prod/web > prod/db tcp 80", endOfDefault},
	{"nets are or-ed", "MODEL: nets OR-ed", onDB(`{action: Allow, source: {nets: ["fd00::/64", 10.0.0.0/24]}}`), "prod/web > prod/db tcp 80", dbAllowed},
	{"notNets exclude", "MODEL: notNets none", onDB(`{action: Allow, source: {notNets: [10.0.0.1/32]}}`), "prod/web > prod/db tcp 80", endOfDefault},
	{"ipVersion restricts", "MODEL: ipVersion restricts", onDB(`{action: Allow, ipVersion: 6}`), "prod/web > prod/db tcp 80", endOfDefault},
	{"a rule without a family is for both", "API-24", onDB(`{action: Allow}`), "prod/web > prod/db tcp6 80", dbAllowed},
	{"protocol ICMP does not mean ICMPv6", "MODEL: protocol ICMP implies IPv4", onDB(`{action: Allow, protocol: ICMP}`), "prod/web > prod/db icmp6 128 0", endOfDefault},
	{"protocol ICMPv6 by its number", "MODEL: ICMPv6 (58) implies IPv6", onDB(`{action: Allow, protocol: 58}`), "prod/web > prod/db icmp6 128 0", dbAllowed},
	{"protocol ICMP is not in IPv6 even by its number", "MODEL: Protocol ICMP (name or 1) implies IPv4", onDB(`{action: Allow, protocol: 1}`), "prod/web > prod/db 1/6", endOfDefault},
	{"protocol ICMPv6 is not in IPv4", "MODEL: ICMPv6 (58) implies IPv6", onDB(`{action: Allow, protocol: ICMPv6}`), "prod/web > prod/db 58", endOfDefault},
	{"an ICMP type without a code means any code", "MODEL: icmp {type, code?}", onDB(`{action: Allow, protocol: ICMP, icmp: {type: 8}}`), "prod/web > prod/db icmp 8 3", dbAllowed},
	{"an ICMP code must be equal", "MODEL: icmp {type, code?}", onDB(`{action: Allow, protocol: ICMP, icmp: {type: 8, code: 0}}`), "prod/web > prod/db icmp 8 3", endOfDefault},
	{"notICMP with a code lets other codes match", "MODEL: unless type (and code if given) equal", onDB(`{action: Allow, protocol: ICMP, notICMP: {type: 8, code: 0}}`), "prod/web > prod/db icmp 8 3", dbAllowed},
	{"notICMP without a code excludes all codes", "MODEL: unless type (and code if given) equal", onDB(`{action: Allow, protocol: ICMP, notICMP: {type: 8}}`), "prod/web > prod/db icmp 8 3", endOfDefault},
	{"notProtocol lets others match", "API-25", onDB(`{action: Allow, notProtocol: UDP}`), "prod/web > prod/db 47", dbAllowed},
	{"notProtocol excludes", "API-25", onDB(`{action: Allow, notProtocol: UDP}`), "prod/web > prod/db udp 1", endOfDefault},
}

var wrongCases = []stageCase{
	{"an allow that is not understood matches nothing", "S3: an Allow or Pass matches nothing", onDB(`{action: Allow, source: {selector: "has("}}`), "prod/web > prod/db tcp 80", endOfDefault},
	{"a void rule keeps its place", "api.Rule: a rule's identity is its index", onDB(`{action: Allow, source: {selector: "has("}}, {action: Allow}`), "prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#1"},
	{"a deny keeps what is understood of it", "S3: a Deny keeps what is understood of it (wider)", onDB(`{action: Deny, protocol: TCP, source: {selector: "has("}}, {action: Allow}`), "prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/a#0"},
	{"a deny that lost a condition keeps the others", "S3: a Deny keeps what is understood of it (wider)", onDB(`{action: Deny, protocol: UDP, source: {selector: "has("}}, {action: Allow}`), "prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#1"},
	{"ports without a protocol are not understood", "MODEL: ports without protocol", onDB(`{action: Allow, destination: {ports: [80]}}`), "prod/web > prod/db tcp 80", endOfDefault},
	{
		"a namespaced policy that cannot be read denies all of its namespace", "S3: Deny for all endpoints of its namespace",
		`NetworkPolicy prod/a {selector: "app ==", ingress: [{action: Allow}]}
Tier first {order: -1}
GlobalNetworkPolicy b {tier: first, ingress: [{action: Allow}], egress: [{action: Allow}]}`,
		"test/cli > prod/db tcp 80", "Deny: a policy of the namespace cannot be read NetworkPolicy/prod/a",
	},
	{
		"a service as destination is its endpoints with their ports", "PARITY API-32: ports come from the service",
		`KubernetesEndpointSlice prod/db-1 {labels: {kubernetes.io/service-name: db}, addressType: IPv4, endpoints: [{addresses: [10.0.0.2]}], ports: [{port: 5432}]}
NetworkPolicy prod/a {selector: app == "web", egress: [{action: Allow, destination: {services: {name: db}}}]}`,
		"prod/web > prod/db tcp 5432", profileAllows,
	},
	{
		"and no other port", "PARITY API-32: ports come from the service",
		`KubernetesEndpointSlice prod/db-1 {labels: {kubernetes.io/service-name: db}, addressType: IPv4, endpoints: [{addresses: [10.0.0.2]}], ports: [{port: 5432}]}
NetworkPolicy prod/a {selector: app == "web", egress: [{action: Allow, destination: {services: {name: db}}}]}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
	{
		"a service as source is its addresses, from any port", "PARITY API-32: ingress: IPs only",
		`KubernetesEndpointSlice test/cli-1 {labels: {kubernetes.io/service-name: cli}, addressType: IPv4, endpoints: [{addresses: [10.0.0.3]}], ports: [{port: 1}]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {services: {name: cli, namespace: test}}}]}`,
		"test/cli > prod/db tcp 80 from 4000", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"a service that nobody knows is nobody", "closed by default",
		`NetworkPolicy prod/a {selector: app == "web", egress: [{action: Allow, destination: {services: {name: db}}}]}`,
		"prod/web > prod/db tcp 5432", endOfDefault,
	},
	{
		"a namespaced policy that cannot be read leaves other namespaces alone", "S3: of its namespace",
		`NetworkPolicy prod/a {selector: "app ==", ingress: [{action: Allow}]}`,
		"203.0.113.4 > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"a global policy that cannot be read applies to nothing", "S3: a global one: alarm and not ready, and the rest goes on",
		`GlobalNetworkPolicy a {selector: "app ==", ingress: [{action: Deny}], egress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"what is not JSON is absent", "S3: at a cold start it is absent",
		`NetworkPolicy prod/a not json`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a bad setting takes its default", "S3: field by field; the bad one takes its default",
		`FelixConfiguration default {defaultEndpointToHostAction: Sometimes}`,
		"prod/web > host/h1 tcp 22", "Deny: setting defaultEndpointToHostAction",
	},
	{
		"of two endpoints on one interface the smaller key lives", "MODEL: the smallest key lives, others are closed",
		`WorkloadEndpoint prod/h1-k8s-a-eth0 {workload: a, pod: a, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.0.0.9/32], profiles: [kns.prod]}`,
		"test/cli > prod/web tcp 80", "Deny: endpoint is closed",
	},
	{
		"a workload has no interface of the host's own", "decision 018: lo is refused whatever the prefixes are",
		`WorkloadEndpoint prod/h1-k8s-bad-eth0 {node: h1, orchestrator: k8s, pod: bad, endpoint: eth0, interfaceName: lo, ipNetworks: [10.0.0.77/32], profiles: [projectcalico-default-allow]}`,
		"test/cli > prod/bad tcp 80", "Deny: endpoint is closed",
	},
	{
		"nor one of a name that the kernel allows nobody", "decision 018",
		`WorkloadEndpoint prod/h1-k8s-bad-eth0 {node: h1, orchestrator: k8s, pod: bad, endpoint: eth0, interfaceName: cali/0, ipNetworks: [10.0.0.77/32], profiles: [projectcalico-default-allow]}`,
		"prod/bad > test/cli tcp 80", "Deny: endpoint is closed",
	},
	{
		"a host does not reach a closed workload either", "MODEL: closed endpoint: denies all both ways, no route",
		`WorkloadEndpoint prod/h1-k8s-a-eth0 {workload: a, pod: a, node: h1, orchestrator: k8s, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.0.0.9/32], profiles: [kns.prod]}`,
		"host/h1 > prod/web tcp 80", "Deny: endpoint is closed",
	},
	{
		"an endpoint without an address of the family carries no traffic of it", "S3: an endpoint without addresses carries no traffic",
		`WorkloadEndpoint prod/h2-k8s-db-eth0 {workload: db, pod: db, node: h2, orchestrator: k8s, endpoint: eth0, interfaceName: cali2, ipNetworks: [10.0.0.2/32], profiles: [kns.prod]}`,
		"prod/web > prod/db tcp6 80", "Deny: no address of this family",
	},
}
