package world

// placeCases are of global policies that ask for the labels of namespaces or of service accounts: docs/decisions/026.
var placeCases = []stageCase{
	{
		"no account is not another account: a host endpoint", of026,
		openHost + `GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: "!has(role)", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"no account is not another account: not equal", of026,
		openHost + `GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: role != "bot", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"no account is not another account: not in", of026,
		openHost + `GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: "role not in {'bot'}", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"no account is not any account", of026,
		openHost + `GlobalNetworkPolicy a {serviceAccountSelector: all(), types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"a host endpoint that a selector means has no account either", of026,
		openHost + `GlobalNetworkPolicy a {selector: hep == "h1", serviceAccountSelector: "!has(role)", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"a workload without an account", of026,
		`GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: "!has(role)", types: [Ingress]}`,
		"203.0.113.9 > prod/web tcp 80", profileAllows,
	},
	{
		"a workload whose account has another label", of026,
		`GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: "!has(team)", types: [Ingress]}`,
		"203.0.113.9 > test/cli tcp 80", endOfDefault,
	},
	{
		"a workload whose account has that label", of026,
		`GlobalNetworkPolicy a {selector: all(), serviceAccountSelector: "!has(role)", types: [Ingress]}`,
		"203.0.113.9 > test/cli tcp 80", "Allow: profile rule Profile/kns.test#0",
	},
	{
		"the policy of a namespace is also of its workloads without an account", of026,
		`NetworkPolicy prod/a {selector: all(), serviceAccountSelector: "!has(role)", types: [Ingress]}`,
		"203.0.113.9 > prod/web tcp 80", endOfDefault,
	},
	{
		"no namespace is not another namespace", of026,
		openHost + `GlobalNetworkPolicy a {selector: all(), namespaceSelector: env != "live", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"no namespace is none without a label", of026,
		openHost + `GlobalNetworkPolicy a {selector: hep == "h1", namespaceSelector: "!has(env)", types: [Ingress]}`,
		inbound, openProfile,
	},
	{
		"another namespace is", of026,
		`GlobalNetworkPolicy a {selector: all(), namespaceSelector: env != "live", types: [Ingress]}`,
		"203.0.113.9 > test/cli tcp 80", endOfDefault,
	},
	{
		"in a rule, what has no account is of no account with the label", of026,
		`GlobalNetworkPolicy a {selector: app == "web", ingress: [{action: Allow, source: {serviceAccounts: {selector: "!has(role)"}}}]}`,
		"prod/db > prod/web tcp 80", "Allow: rule GlobalNetworkPolicy/a#0",
	},
}

const (
	openProfile = "Allow: profile rule Profile/projectcalico-default-allow#0"
	of026       = "decision 026: a global policy for accounts or namespaces is of endpoints that have one"
)
