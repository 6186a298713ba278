package agreetest

// A profile's rule must not pass, but one may be stored.
const passesToNobody = "upstream: felix/rules/policy.go leaves such a profile, whose next rules are not asked; app-policy/checker/check.go denies"

// ofProfiles is web with these profiles, and strict, which passes and allows.
func ofProfiles(names string) string {
	return `
- kind: WorkloadEndpoint
  metadata: {namespace: prod, name: h1-k8s-web-eth0, labels: {app: web}}
  spec:
    {orchestrator: k8s, node: h1, workload: web, pod: web, endpoint: eth0, interfaceName: cali0,
     ipNetworks: [10.65.0.1/32, "fd00:65::1/128"], profiles: [` + names + `]}
- {kind: Profile, metadata: {name: strict}, spec: {ingress: [{action: Pass, source: {nets: [203.0.113.0/24, "2001:db8:ffff::/48"]}}, {action: Allow}]}}`
}

var profileCases = []handCase{
	{"what a profile passes no rule after it allows", passesToNobody, `{action: Pass}`, []string{otherTCP4, otherTCP6}, outside, ofProfiles("strict")},
	{"nor the next profile", "upstream, app-policy/checker/check.go: a profile that passes denies", `{action: Pass}`, []string{otherTCP4, otherTCP6}, outside, ofProfiles("strict, projectcalico-default-allow")},
	{"what it does not match goes on", "upstream: profiles are asked in their order", `{action: Pass}`, []string{otherTCP4, otherTCP6, tcp4, tcp6}, nil, ofProfiles("projectcalico-default-allow, strict")},
}
