package world

import "testing"

// stagedCases: what would become of a packet if staged policies were enforced; in the world as it is, profiles allow it.
var stagedCases = []stageCase{
	{
		"a staged policy is as one of its kind", "PARITY API-13: never enforced; evaluated",
		`StagedNetworkPolicy prod/a {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule StagedNetworkPolicy/prod/a#0",
	},
	{
		"it takes the place of the policy of its name", "PARITY API-13: stagedAction Set",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow}]}
StagedGlobalNetworkPolicy a {stagedAction: Set, selector: app == "web", egress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule StagedGlobalNetworkPolicy/a#0",
	},
	{
		"but not of one in another tier", "PARITY API-13",
		`Tier first {order: 1}
GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow}]}
StagedGlobalNetworkPolicy a {tier: first, selector: app == "db", ingress: [{action: Pass}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"it can take a policy away", "PARITY API-13: stagedAction Delete",
		`NetworkPolicy prod/a {selector: app == "db", ingress: [{action: Allow, source: {selector: app == "web"}}]}
NetworkPolicy prod/b {order: 1, selector: app == "web", egress: [{action: Allow}]}
StagedNetworkPolicy prod/a {stagedAction: Delete}
StagedNetworkPolicy prod/c {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule StagedNetworkPolicy/prod/c#0",
	},
	{
		"an older action does nothing: Learn", "PARITY API-13: Learn/Ignore legacy",
		`StagedNetworkPolicy prod/a {stagedAction: Learn, selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"nor does Ignore", "PARITY API-13: Learn/Ignore legacy",
		`GlobalNetworkPolicy a {selector: app == "db", ingress: [{action: Allow}]}
StagedGlobalNetworkPolicy a {stagedAction: Ignore, selector: app == "web", egress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
	{
		"a staged policy of Kubernetes is as a NetworkPolicy of its own", "PARITY API-14: converted like KNP into default tier",
		`StagedKubernetesNetworkPolicy prod/a {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: cli}}}]}]}`,
		"prod/web > prod/db tcp 80", "Deny: " + ReasonEndOfTier + " default",
	},
	{
		"it allows what that would", "PARITY API-14",
		`StagedKubernetesNetworkPolicy prod/a {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}]}]}`,
		"prod/web > prod/db tcp 5432", "Allow: rule StagedKubernetesNetworkPolicy/prod/a#0",
	},
	{
		"it takes the place of the NetworkPolicy of Kubernetes of its name", "PARITY API-14",
		`NetworkPolicy prod/knp.default.a {order: 1000, selector: app == "db", ingress: [{action: Allow}]}
StagedKubernetesNetworkPolicy prod/a {stagedAction: Set, podSelector: {matchLabels: {app: db}}}`,
		"prod/web > prod/db tcp 80", "Deny: " + ReasonEndOfTier + " default",
	},
	{
		"and not of Calico's", "PARITY API-14",
		`NetworkPolicy prod/a {order: 1, selector: app == "db", ingress: [{action: Allow}]}
StagedKubernetesNetworkPolicy prod/a {podSelector: {matchLabels: {app: db}}}`,
		"prod/web > prod/db tcp 80", "Allow: rule NetworkPolicy/prod/a#0",
	},
	{
		"its order is 1000, and its name that of the NetworkPolicy", "PARITY API-14: order 1000",
		`NetworkPolicy prod/knp.default.0 {order: 1000, selector: app == "db", ingress: [{action: Allow}]}
StagedNetworkPolicy prod/knp.default.b {order: 1000, selector: app == "db", ingress: [{action: Deny}]}
StagedNetworkPolicy prod/knp.default.0 {stagedAction: Delete}
StagedKubernetesNetworkPolicy prod/a {podSelector: {}, ingress: [{}]}`,
		"prod/web > prod/db tcp 80", "Allow: rule StagedKubernetesNetworkPolicy/prod/a#0",
	},
	{
		"it can take a NetworkPolicy of Kubernetes away", "PARITY API-14: stagedAction Delete",
		`NetworkPolicy prod/knp.default.a {order: 1000, selector: app == "db", ingress: [{action: Allow}]}
StagedKubernetesNetworkPolicy prod/a {stagedAction: Delete, podSelector: {}}
StagedNetworkPolicy prod/c {selector: app == "db", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", "Deny: rule StagedNetworkPolicy/prod/c#0",
	},
	{
		"with an older action it does nothing", "PARITY API-14: Learn/Ignore legacy",
		`StagedKubernetesNetworkPolicy prod/a {stagedAction: Learn, podSelector: {}}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"what cannot be translated is closed, as in a NetworkPolicy", "PARITY API-14",
		`StagedKubernetesNetworkPolicy prod/a {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}]}`,
		"prod/web > prod/db tcp 80", "Deny: " + ReasonEndOfTier + " default",
	},
	{
		"one of Kubernetes of which a part cannot be read would do nothing", "S3, and never enforced: it closes nothing",
		`StagedKubernetesNetworkPolicy prod/a {podSelector: 7, ingress: []}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
	{
		"one that cannot be read would do nothing", "S3, and never enforced: it closes nothing",
		`StagedNetworkPolicy prod/a {selector: "app ==", ingress: [{action: Deny}]}`,
		"prod/web > prod/db tcp 80", profileAllows,
	},
}

func TestWhatStagedPoliciesWouldDo(t *testing.T) {
	for _, tt := range stagedCases {
		t.Run(tt.name, func(t *testing.T) {
			w := New(append(updates(t, base), updates(t, tt.add)...))
			if !ask(t, w, tt.ask).Allowed {
				t.Errorf("in the world as it is, %s is denied", tt.ask)
			}
			if got := say(ask(t, w.Staged(), tt.ask).Decided); got != tt.want {
				t.Errorf("%s: %s, want %s (%s)", tt.ask, got, tt.want, tt.cite)
			}
		})
	}
}
