package translate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// brief is a policy in a few words: its tier, its pods, and for each direction what its rules do, to which peers, and on which ports.
func brief(t *testing.T, r api.Resource) string {
	t.Helper()
	s := r.(*api.GlobalNetworkPolicy).Spec
	out := s.Tier + " " + strings.TrimPrefix(s.Selector, "projectcalico.org/orchestrator == 'k8s'") + " in " + s.NamespaceSelector
	for _, side := range []struct {
		name  string
		rules []api.Rule
	}{{"ingress", s.Ingress}, {"egress", s.Egress}} {
		for _, rule := range side.rules {
			out += "; " + side.name + " " + string(rule.Action)
			for _, e := range []api.EntityRule{rule.Source, rule.Destination} {
				if e.NamespaceSelector != "" {
					out += " " + e.NamespaceSelector
				}
				if len(e.Ports) > 0 {
					ports, err := json.Marshal(e.Ports)
					if err != nil {
						t.Fatal(err)
					}
					out += " " + string(ports)
				}
			}
		}
	}
	return out
}

// What an API server keeps may be of another version of the API than ours: what is unknown may say less than it seems to, so a rule with
// it does not accept, and a policy with it at its top does not, either.
func TestWhatIsUnknownInAKeptPolicyIsClosed(t *testing.T) {
	const rules = `"ingress":[
		{"action":"Accept","from":[{"namespaces":{"matchLabels":{"a":"1"}}}]},
		{"action":"Pass","from":[{"namespaces":{"matchLabels":{"b":"1"}}}]},
		{"action":"Deny","from":[{"namespaces":{"matchLabels":{"c":"1"}}}]}]`
	const kept = "; ingress Allow a == '1'; ingress Pass b == '1'; ingress Deny c == '1'"
	const selected = `"tier":"Admin","priority":1,"subject":{"namespaces":{"matchLabels":{"env":"prod"}}},`
	for _, tt := range []struct{ name, kind, spec, want, wrong string }{
		{"all is known", translate.KindCluster, selected + rules, "kube-admin  in env == 'prod'" + kept, ""},
		{
			"a condition of an Accept", translate.KindCluster, selected + strings.Replace(rules, `"Accept",`, `"Accept","ports":[{"portNumber":{"port":80}}],`, 1),
			"kube-admin  in env == 'prod'" + strings.TrimPrefix(kept, "; ingress Allow a == '1'"), "spec.ingress[0].ports: unknown field",
		},
		{
			"a condition of a Pass", translate.KindCluster, selected + strings.Replace(rules, `"Pass",`, `"Pass","when":"night",`, 1),
			"kube-admin  in env == 'prod'; ingress Allow a == '1'; ingress Deny; ingress Deny c == '1'", "spec.ingress[1].when: unknown field",
		},
		{
			"a part of a peer", translate.KindCluster, selected + strings.Replace(rules, `{"c":"1"}}`, `{"c":"1"}},"accounts":{}`, 1),
			"kube-admin  in env == 'prod'; ingress Allow a == '1'; ingress Pass b == '1'; ingress Deny", "spec.ingress[2].from[0].accounts: unknown field",
		},
		{
			"a kind of subject", translate.KindCluster, `"tier":"Baseline","priority":1,"subject":{"accounts":{}},` + rules,
			"kube-baseline  in all(); ingress Deny b == '1'; ingress Deny c == '1'", "spec.subject.accounts: unknown field",
		},
		{
			"a condition of a subject", translate.KindCluster, strings.Replace(selected, `"namespaces"`, `"accounts":{},"namespaces"`, 1) + rules,
			"kube-admin  in all(); ingress Deny b == '1'; ingress Deny c == '1'", "spec.subject.accounts: unknown field",
		},
		{
			"a field of the whole", translate.KindCluster, selected + `"until":"tomorrow",` + rules,
			"kube-admin  in all(); ingress Deny; ingress Deny", "spec.until: unknown field",
		},
		{
			"a field of another type, after which others are not looked for", translate.KindCluster, selected + strings.Replace(rules, `{"a":"1"}`, `{"a":1}`, 1),
			"kube-admin  in all(); ingress Deny; ingress Deny", "spec.ingress.from.namespaces.matchLabels: is a number: want string",
		},
		{
			"the same in a subject", translate.KindCluster, strings.Replace(selected, `{"env":"prod"}`, `[]`, 1) + rules,
			"kube-admin  in all(); ingress Deny; ingress Deny", "spec.subject.namespaces.matchLabels: is a array: want map[string]string",
		},
		{"outside of the spec", translate.KindCluster, selected + rules + `},"later":{"a":1`, "kube-admin  in env == 'prod'" + kept, "later: unknown field"},
		{
			"an older kind", translate.KindAdmin, `"priority":1,"subject":{"namespaces":{}},"egress":[{"action":"Allow","to":[{"namespaces":{}}],"protocols":[]}]`,
			"kube-admin  in all()", "spec.egress[0].protocols: unknown field",
		},
		{
			"its baseline, which has no peers of names", translate.KindBaseline, `"subject":{"namespaces":{}},"egress":[{"action":"Deny","to":[{"domainNames":["a.example"]}]}]`,
			"kube-baseline  in all(); egress Deny", "spec.egress[0].to[0].domainNames: unknown field",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := translate.Kept(tt.kind, []byte(`{"metadata":{"name":"default"},"spec":{`+tt.spec+`}}`))
			if got := brief(t, p); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.kind+" default: "+tt.wrong) {
				t.Errorf("error %v, want %s", err, tt.wrong)
			}
		})
	}
}
