package agreetest

// Labels that say where something is, claimed by what is not there. The source is what a selector of a namespace means: what
// is in it. Upstream says so of workloads (workloadendpointprocessor.go strips such labels); decision 016 of the others.
const ofNamespace = "decision 016: only the system gives such labels"

const (
	inLive    = `{action: Allow, source: {namespaceSelector: env == "live"}}`
	inProd    = `{action: Allow, source: {namespaceSelector: projectcalico.org/name == "prod"}}`
	ofRobot   = `{action: Allow, source: {serviceAccounts: {names: [robot]}}}`
	byLabel   = `{action: Allow, source: {selector: projectcalico.org/namespace == "prod"}}`
	ofPod     = `{action: Allow, source: {selector: projectcalico.org/orchestrator == "k8s"}}`
	ofGlobal  = `{action: Allow, source: {namespaceSelector: global()}}`
	setNets   = `, spec: {nets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}`
	claimsAll = `labels: {pcns.env: live, pcns.projectcalico.org/name: prod, pcsa.role: bot, projectcalico.org/namespace: prod,
  projectcalico.org/serviceaccount: robot, projectcalico.org/orchestrator: k8s, projectcalico.org/name: prod, mine: a}`
	setOfTest  = `- {kind: NetworkSet, metadata: {namespace: test, name: evil, ` + claimsAll + `}` + setNets
	setOfNone  = `- {kind: GlobalNetworkSet, metadata: {name: evil, ` + claimsAll + `}` + setNets
	setOfProd  = `- {kind: NetworkSet, metadata: {namespace: prod, name: good}` + setNets
	hostClaims = `- {kind: HostEndpoint, metadata: {name: h2, ` + claimsAll + `}, spec: {node: h2, interfaceName: eth0, expectedIPs: [203.0.113.5, "2001:db8:ffff::5"], profiles: [claims]}}`
)

var outside = []string{tcp4, tcp6}

var labelCases = []handCase{
	{"a set is in its namespace", ofNamespace, inLive, outside, nil, setOfProd},
	{"and is found by its name", ofNamespace, inProd, outside, nil, setOfProd},
	{"and by the label of the namespace", ofNamespace, byLabel, outside, nil, setOfProd},
	{"another's set is not in it, whatever it says", ofNamespace, inLive, nil, outside, setOfTest},
	{"nor by the name", ofNamespace, inProd, nil, outside, setOfTest},
	{"nor by the label", ofNamespace, byLabel, nil, outside, setOfTest},
	{"no set has a service account", ofNamespace, ofRobot, nil, outside, setOfTest},
	{"nor its labels", ofNamespace, `{action: Allow, source: {serviceAccounts: {selector: role == "bot"}}}`, nil, outside, setOfTest},
	{"no set is an orchestrator's", ofNamespace, ofPod, nil, outside, setOfTest},
	{"a set keeps what it may say", ofNamespace, `{action: Allow, source: {selector: mine == "a" && projectcalico.org/name == "prod"}}`, outside, nil, setOfTest},
	{"a global set is in no namespace, whatever it says", ofNamespace, inLive, nil, outside, setOfNone},
	{"nor by the name of one", ofNamespace, inProd, nil, outside, setOfNone},
	{"nor by the label of one", ofNamespace, byLabel, nil, outside, setOfNone},
	{"it is global", ofNamespace, ofGlobal, outside, nil, setOfNone},
	{"a global set has no service account", ofNamespace, ofRobot, nil, outside, setOfNone},
	{"a global set is no orchestrator's", ofNamespace, ofPod, nil, outside, setOfNone},
	{"a host endpoint is in no namespace, whatever it and its profiles say", ofNamespace, inLive, nil, outside, hostClaims},
	{"nor by the label", ofNamespace, byLabel, nil, outside, hostClaims},
	{"it is global, too", ofNamespace, ofGlobal, outside, nil, hostClaims},
	{"a host endpoint has no service account", ofNamespace, ofRobot, nil, outside, hostClaims},
	{"a deny of a namespace does not hit who claims to be in it", ofNamespace, `{action: Deny, source: {namespaceSelector: env == "live"}}, {action: Allow}`, outside, nil, setOfNone},
}
