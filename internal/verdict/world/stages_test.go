package world

import "testing"

// stageCase is derived by hand from the sentence that is cited; what world itself says had no part in it. S1 is
// docs/design/stages.md, S3 docs/wrong-input.md, MODEL the reference of projectcalico.org/v3, PARITY a row of docs/parity.tsv.
type stageCase struct {
	name, cite string
	add        string // lines added to base
	ask, want  string
}

const (
	profileAllows = "Allow: profile rule Profile/kns.prod#0"
	endOfDefault  = "Deny: end of tier default default"
)

func TestWhatAPacketGoesThrough(t *testing.T) {
	for _, cases := range [][]stageCase{tierCases, placeCases, profileCases, pathCases, transitCases, hostCases, uplinkCases, selectionCases, ruleCases, wrongCases, metadataCases, dnsCases, loopCases} {
		for _, tt := range cases {
			t.Run(tt.name, func(t *testing.T) {
				w := New(append(updates(t, base), updates(t, tt.add)...))
				if got := say(ask(t, w, tt.ask).Decided); got != tt.want {
					t.Errorf("%s\n%s\n got %s\nwant %s", tt.cite, tt.ask, got, tt.want)
				}
			})
		}
	}
}

var tierCases = []stageCase{
	{
		"a tier without an applicable policy is skipped", "S1: otherwise the tier is skipped",
		`Tier sec {order: 1}
GlobalNetworkPolicy a {tier: sec, selector: app == "nobody", types: [Ingress, Egress]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a tier with only a staged policy is skipped", "S1: at least one non-staged policy",
		`Tier sec {order: 1}
StagedGlobalNetworkPolicy a {tier: sec, types: [Ingress, Egress]}
StagedNetworkPolicy prod/b {types: [Ingress, Egress]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a tier whose policy applies in the other direction only is skipped", "S1: applies to this endpoint in this direction",
		`NetworkPolicy prod/a {selector: app == "db", types: [Egress]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a policy without rules isolates", "MODEL: a type with zero rules isolates",
		`NetworkPolicy prod/a {selector: app == "db"}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
	{
		"a log-only policy counts for the end of its tier", "S1: a Log-only policy counts",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Log}]}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
	{
		"pass goes on to the next tier", "MODEL: Pass → next tier",
		`Tier sec {order: 1}
GlobalNetworkPolicy a {tier: sec, selector: app == "db", ingress: [{action: Pass}]}
NetworkPolicy prod/b {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule NetworkPolicy/prod/b#0",
	},
	{
		"pass skips the rest of its tier", "MODEL: first matching rule over the tier's policies",
		`GlobalNetworkPolicy a {order: 1, selector: app == "db", ingress: [{action: Pass}]}
GlobalNetworkPolicy b {order: 2, selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"pass out of the last tier reaches the profiles", "MODEL: after the last tier, profiles in order",
		`GlobalNetworkPolicy a {tier: kube-baseline, selector: app == "db", ingress: [{action: Pass}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a tier that defaults to pass goes on at its end", "MODEL: Default (Pass: next)",
		`Tier sec {order: 1, defaultAction: Pass}
GlobalNetworkPolicy a {tier: sec, selector: app == "db", types: [Ingress]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"a tier without a default action denies", "MODEL: Tier.defaultAction nil = Deny",
		`Tier sec {order: 1}
GlobalNetworkPolicy a {tier: sec, selector: app == "db", types: [Ingress]}`,
		"prod/web > prod/db tcp 80", "Deny: end of tier default sec",
	},
	{
		"the kube-admin tier passes at its end though the store lacks it", "S1: built-in tiers exist even if the store lacks them",
		`GlobalNetworkPolicy a {tier: kube-admin, selector: app == "db", types: [Ingress]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"the kube-baseline tier comes after the default tier", "S1: kube-baseline 10,000,000",
		`GlobalNetworkPolicy a {tier: kube-baseline, selector: app == "db", ingress: [{action: Allow}]}
GlobalNetworkPolicy b {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/b#0",
	},
	{
		"a built-in tier keeps its order and action whatever the store says", "MODEL: their order and action are fixed",
		`Tier default {order: 1, defaultAction: Pass}
Tier sec {order: 5}
GlobalNetworkPolicy a {tier: sec, selector: app == "db", ingress: [{action: Pass, protocol: TCP}]}
GlobalNetworkPolicy b {selector: app == "db", types: [Ingress]}`,
		"prod/web > prod/db udp 80", "Deny: end of tier default sec",
	},
	{
		"tiers of one order go by name", "S1: tiers likewise; ties by name",
		`Tier b {order: 1}
Tier a {order: 1}
GlobalNetworkPolicy x {tier: b, selector: app == "db", ingress: [{action: Deny}]}
GlobalNetworkPolicy y {tier: a, selector: app == "db", ingress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/y#0",
	},
	{
		"a tier without an order is last of the known ones", "S1: none = last",
		`Tier a {}
GlobalNetworkPolicy x {tier: a, selector: app == "db", ingress: [{action: Allow}]}
GlobalNetworkPolicy y {tier: kube-baseline, selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/y#0",
	},
	{
		"an unknown tier sorts after known ones and ends in deny", "S1: an unknown tier sorts after all known ones and ends in Deny",
		`Tier z {}
GlobalNetworkPolicy x {tier: a, selector: app == "db", types: [Ingress]}
GlobalNetworkPolicy y {tier: z, selector: app == "db", ingress: [{action: Pass}]}`,
		"prod/web > prod/db tcp 80", "Deny: end of tier default a",
	},
	{
		"lower orders come first", "S1: lower first",
		`GlobalNetworkPolicy a {order: 2, selector: app == "db", ingress: [{action: Deny}]}
GlobalNetworkPolicy b {order: 1, selector: app == "db", ingress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/b#0",
	},
	{
		"a policy without an order is last", "S1: none = last",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Deny}]}
GlobalNetworkPolicy b {order: 99999999, selector: app == "db", ingress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/b#0",
	},
	{
		"equal orders go by name, namespace and kind as one string", "S1: ties by name/namespace/kind as one string",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow}]}
NetworkPolicy prod/a-b {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule NetworkPolicy/prod/a-b#0", // '-' sorts before '/'
	},
	{
		"a policy without a tier is in the default one", "API-03: empty → default",
		`NetworkPolicy prod/a {selector: app == "db", types: [Ingress]}`,
		"prod/web > prod/db tcp 80", endOfDefault,
	},
}

var profileCases = []stageCase{
	{
		"a workload without any policy and profile drops", "S1: a workload without any policy and profile: drop",
		`WorkloadEndpoint prod/h2-k8s-db-eth0 {workload: db, pod: db, node: h2, orchestrator: k8s, endpoint: eth0, interfaceName: cali2, ipNetworks: [10.0.0.2/32]}`,
		"prod/web > prod/db tcp 80", "Deny: no profile",
	},
	{
		"a missing profile denies", "S1: a missing profile: deny",
		`-Profile kns.prod`,
		"test/cli > prod/db tcp 80", "Deny: profile is missing Profile/kns.prod",
	},
	{
		"a missing profile is harmless if a profile before it decides", "MODEL: a profile that does not exist → deny when reached",
		`-Profile ksa.test.robot`,
		"prod/web > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"profiles go in the endpoint's order", "S1: profiles in the endpoint's order",
		`Profile kns.test {ingress: [{action: Deny, protocol: UDP}]}
Profile ksa.test.robot {ingress: [{action: Allow}]}`,
		"prod/web > test/cli tcp 80", "Allow: profile rule Profile/ksa.test.robot#0",
	},
	{
		"profiles in which nothing matches deny", "MODEL: none → deny no profile matched",
		`Profile kns.prod {ingress: [{action: Allow, protocol: UDP}], egress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Deny: no profile matched",
	},
	{
		"projectcalico-default-allow is built in", "S1: projectcalico-default-allow is built in, never stored",
		`WorkloadEndpoint prod/h2-k8s-db-eth0 {workload: db, pod: db, node: h2, orchestrator: k8s, endpoint: eth0, interfaceName: cali2, ipNetworks: [10.0.0.2/32], profiles: [projectcalico-default-allow]}`,
		"prod/web > prod/db tcp 80", "Allow: profile rule Profile/projectcalico-default-allow#0",
	},
	{
		"profiles are not asked once a tier has decided", "S1: tiers, then profiles",
		`Profile kns.prod {ingress: [{action: Deny}], egress: [{action: Allow}]}
NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"a log rule in a profile goes on", "MODEL: Log → go on",
		`Profile kns.prod {ingress: [{action: Log}, {action: Allow}], egress: [{action: Allow}]}`,
		"prod/web > prod/db tcp 80", "Allow: profile rule Profile/kns.prod#1",
	},
}

var pathCases = []stageCase{
	{
		"a host reaches its own workload under deny-all", "S1: host → local workload is always allowed",
		`GlobalNetworkPolicy deny {types: [Ingress, Egress]}`,
		"host/h1 > prod/web tcp 80", "Allow: a host always reaches its own workloads",
	},
	{
		"a host's address is that host", "MODEL: Host (an address of a Node resource)",
		`GlobalNetworkPolicy deny {types: [Ingress, Egress]}`,
		"192.0.2.1 > prod/web tcp 80", "Allow: a host always reaches its own workloads",
	},
	{
		"another host is judged by the workload's ingress", "MODEL: workload elsewhere: its ingress",
		`GlobalNetworkPolicy deny {types: [Ingress, Egress]}`,
		"host/h2 > prod/web tcp 80", endOfDefault,
	},
	{
		"a workload does not reach its host by default", "MODEL: default Drop",
		``, "prod/web > host/h1 tcp 22", "Deny: setting defaultEndpointToHostAction",
	},
	{
		"the egress policy of a workload comes before the host's setting", "S1: policy of the workload's egress first, then the setting",
		`FelixConfiguration default {defaultEndpointToHostAction: Accept}
NetworkPolicy prod/a {selector: app == "web", types: [Egress]}`,
		"prod/web > host/h1 tcp 22", endOfDefault,
	},
	{
		"the node's own setting wins over the default one", "MODEL: FelixConfiguration node.<n> over default",
		`FelixConfiguration default {defaultEndpointToHostAction: Drop}
FelixConfiguration node.h1 {defaultEndpointToHostAction: Accept}`,
		"prod/web > host/h1 tcp 22", "Allow: setting defaultEndpointToHostAction",
	},
	{
		"return accepts as long as no host endpoint is enforced", "MODEL: Return = Accept",
		`FelixConfiguration default {defaultEndpointToHostAction: Return}`,
		"prod/web > host/h1 tcp 22", "Allow: setting defaultEndpointToHostAction",
	},
	{
		"a workload reaches another node by its egress alone", "MODEL: workload → other node's address: egress only",
		``, "prod/web > host/h2 tcp 22", profileAllows,
	},
	{
		"both ends on one host: the egress policy denies", "S1: egress of one and ingress of the other are both evaluated",
		`NetworkPolicy prod/a {selector: app == "web", types: [Egress]}`,
		"prod/web > test/cli tcp 80", endOfDefault,
	},
	{
		"both ends on one host: the ingress policy denies", "S1: egress of one and ingress of the other are both evaluated",
		`NetworkPolicy test/a {types: [Ingress]}`,
		"prod/web > test/cli tcp 80", endOfDefault,
	},
	{
		"from outside only ingress is judged", "MODEL: path of a packet",
		`NetworkPolicy prod/a {selector: app == "web", ingress: [{action: Allow, source: {nets: [203.0.113.0/24]}}]}`,
		"203.0.113.9 > prod/web tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"between two addresses that are no workload's nothing of ours is asked", "MODEL: between non-workloads: allowed",
		`GlobalNetworkPolicy deny {types: [Ingress, Egress]}`,
		"203.0.113.9 > host/h1 tcp 80", "Allow: no policy of ours is on this way",
	},
	{
		"preDNAT and doNotTrack policies do not concern workloads", "S1: untracked, pre-DNAT apply to host endpoints",
		`GlobalNetworkPolicy a {preDNAT: true, applyOnForward: true, ingress: [{action: Deny}]}
GlobalNetworkPolicy b {doNotTrack: true, applyOnForward: true, ingress: [{action: Deny}], egress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"applyOnForward means nothing to workloads", "MODEL: applyOnForward has no meaning for workloads",
		`GlobalNetworkPolicy a {applyOnForward: true, selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule GlobalNetworkPolicy/a#0",
	},
}
