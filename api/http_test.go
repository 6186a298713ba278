package api

import (
	"strings"
	"testing"
)

// TestWhereRulesMayAskOfRequests: in users' files and in what is stored, only where a workload's proxy can enforce it; of what is right a user is warned.
func TestWhereRulesMayAskOfRequests(t *testing.T) {
	const rule = "{action: Allow, protocol: TCP, http: {methods: [GET]}}"
	for _, tt := range []struct{ name, kind, spec, wrong string }{
		{"ingress of a NetworkPolicy", KindNetworkPolicy, "ingress: [" + rule + "]", ""},
		{"ingress of a GlobalNetworkPolicy", KindGlobalNetworkPolicy, "ingress: [" + rule + "]", ""},
		{"ingress of a Profile", KindProfile, "ingress: [" + rule + "]", ""},
		{"egress", KindNetworkPolicy, "egress: [" + rule + "]", "is possible only in ingress rules"},
		{"egress of a Profile", KindProfile, "egress: [" + rule + "]", "is possible only in ingress rules"},
		{"what a host forwards", KindGlobalNetworkPolicy, "applyOnForward: true, ingress: [" + rule + "]", "no proxy enforces what hosts forward"},
		{"untracked", KindGlobalNetworkPolicy, "doNotTrack: true, applyOnForward: true, ingress: [" + rule + "]", "no proxy enforces what hosts forward"},
		{"before DNAT", KindGlobalNetworkPolicy, "preDNAT: true, applyOnForward: true, ingress: [" + rule + "]", "no proxy enforces what hosts forward"},
		{"a Deny", KindNetworkPolicy, "ingress: [{action: Deny, http: {methods: [GET]}}]", "is possible only in Allow rules"},
		{"UDP", KindNetworkPolicy, "ingress: [{action: Allow, protocol: UDP, http: {methods: [GET]}}]", "needs protocol TCP, or none"},
		{"no kind of path", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{}]}}]", "not one of exact and prefix"},
		{"a path without a slash", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{prefix: /a}, {prefix: a/b}]}}]", "has paths[1] that does not begin with /"},
		{"an asterisk as a path", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{exact: '*'}]}}]", "has paths[0] that does not begin with /"},
		{"a query in a path", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{prefix: /a}, {exact: '/a?b'}]}}]", "has paths[1] that no request has"},
		{"a fragment in a path", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{exact: '/a#b'}]}}]", "has paths[0] that no request has"},
		{"a space in a path", KindNetworkPolicy, "ingress: [{action: Allow, http: {paths: [{prefix: '/a b'}]}}]", "has paths[0] that no request has"},
		{"a method twice", KindNetworkPolicy, "ingress: [{action: Allow, http: {methods: [GET, PUT, GET]}}]", "has methods[2] that is there twice"},
		{"21 methods", KindNetworkPolicy, "ingress: [{action: Allow, http: {methods: [" + strings.Repeat("A,", 20) + "A]}}]", "more than 20 methods"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := "{name: a}"
			if tt.kind == KindNetworkPolicy {
				meta = "{name: a, namespace: ns}"
			}
			docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: " + tt.kind + "\nmetadata: " + meta + "\nspec: {" + tt.spec + "}"))
			if err != nil || len(docs) != 1 || len(docs[0].Warnings) != 1 || !strings.Contains(docs[0].Warnings[0].Error(), "policySyncPathPrefix") {
				t.Fatalf("%v, %v: want a warning", docs, err)
			}
			r := docs[0].Resource
			Default(r)
			if err := Validate(r); tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("validation says %v, want %q", err, tt.wrong)
			}
			key := map[string]string{KindNetworkPolicy: "networkpolicies/ns/a", KindGlobalNetworkPolicy: "globalnetworkpolicies/a", KindProfile: "profiles/a"}[tt.kind]
			s := stored(t, key, string(docs[0].JSON))
			asks, closed := false, false
			for _, l := range rulesOf(s.Resource) {
				for _, r := range *l.rules {
					asks = asks || r.HTTP != nil
					closed = closed || r.Void || r.Action == Deny
				}
			}
			if asks != (tt.wrong == "") || closed != (tt.wrong != "") || (len(s.Problems) > 0) != closed {
				t.Errorf("stored, it asks: %v, is closed: %v, problems %v", asks, closed, s.Problems)
			}
		})
	}
}

// TestWhatHasNoEffectInABGPConfigurationIsWarnedOf: each alone, and nothing where it has.
func TestWhatHasNoEffectInABGPConfigurationIsWarnedOf(t *testing.T) {
	const secret, community = "nodeMeshPassword: {secretKeyRef: {name: a, key: b}}", "communities: [{name: a, value: '1:2'}]"
	for spec, want := range map[string]string{
		secret + ", nodeMeshMaxRestartTime: 9s":                    "",
		"nodeToNodeMeshEnabled: true, " + secret:                   "",
		"nodeToNodeMeshEnabled: false":                             "",
		"nodeToNodeMeshEnabled: false, " + secret:                  "spec.nodeMeshPassword",
		"nodeToNodeMeshEnabled: false, nodeMeshMaxRestartTime: 9s": "spec.nodeMeshMaxRestartTime",
		community: "spec.communities",
		community + ", prefixAdvertisements: [{cidr: 10.0.0.0/8, communities: [a, '3:4:5']}]": "",
	} {
		docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {name: default}\nspec: {" + spec + "}"))
		if err != nil || len(docs) != 1 {
			t.Fatal(spec, err)
		}
		if w := docs[0].Warnings; (want == "") != (len(w) == 0) || want != "" && !hasPath(w, want) {
			t.Errorf("%s: warnings %v, want one at %q", spec, w, want)
		}
	}
}
