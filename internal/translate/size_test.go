package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

// A rule is made for each peer and protocol, so that an object of some hundred kilobytes could stand for millions of rules and ports. What
// it becomes is of a size that is read, and closed where there is no room.
func TestWhatIsMadeIsNeverTooLargeToBeRead(t *testing.T) {
	many := func(n int, one func(i int) string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = one(i)
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	peer := func(i int) string { return fmt.Sprintf(`{"namespaces":{"matchLabels":{"n":"%d"}}}`, i) }
	port := func(i int) string { return fmt.Sprintf(`{"tcp":{"destinationPort":{"number":%d}}}`, i+1) }
	for _, tt := range []struct{ name, kind, spec, want string }{
		{
			"peers and ports that are allowed", "NetworkPolicy",
			`"podSelector":{},"ingress":[{"from":[{"podSelector":{}}]},{"from":` + many(3000, func(i int) string { return fmt.Sprintf(`{"podSelector":{"matchLabels":{"n":"%d"}}}`, i) }) +
				`,"ports":` + many(3000, func(i int) string { return fmt.Sprintf(`{"port":%d}`, i+1) }) + `}]`,
			"Allow",
		}, {
			"and denied", translate.KindCluster,
			`"tier":"Admin","subject":{"namespaces":{}},"ingress":[{"action":"Accept","from":[{"namespaces":{}}]},
				{"action":"Deny","from":` + many(3000, peer) + `,"protocols":` + many(3000, port) + `}]`,
			"Allow Deny",
		}, {
			"prefixes", translate.KindCluster,
			`"tier":"Admin","subject":{"namespaces":{}},"egress":[{"action":"Pass","to":` +
				many(20, func(int) string {
					return `{"networks":` + many(3000, func(i int) string { return fmt.Sprintf(`"10.%d.%d.0/24"`, i/256, i%256) }) + `}`
				}) + `}]`,
			"Deny",
		}, {
			"long selectors", translate.KindCluster,
			`"tier":"Admin","subject":{"namespaces":{}},"ingress":[{"action":"Deny","from":` + many(800, func(int) string {
				return `{"namespaces":{"matchExpressions":[{"key":"n","operator":"In","values":` + many(50, func(i int) string { return fmt.Sprintf(`"%060d"`, i) }) + `}]}}`
			}) + `,"protocols":[{"destinationNamedPort":"a"}]}]`,
			"Deny",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"a"},"spec":{%s}}`, map[string]string{"NetworkPolicy": "networking.k8s.io/v1", translate.KindCluster: "policy.networking.k8s.io/v1alpha2"}[tt.kind], tt.kind, tt.spec)
			o, err := translate.Decode([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			rs, err := translate.Resources(o)
			if err == nil || !strings.Contains(err.Error(), "gress[") || !strings.Contains(err.Error(), "makes too many rules") {
				t.Errorf("error %v", err)
			}
			value, err := api.EncodeStored(rs[0])
			if err != nil {
				t.Fatal(err)
			}
			key, err := api.Key(rs[0])
			if err != nil {
				t.Fatal(err)
			}
			s, err := api.DecodeStored(api.Update{Key: key, Value: value})
			if err != nil {
				t.Fatal(err)
			}
			if s.Closed != "" || len(s.Problems) > 0 {
				t.Fatalf("%d bytes: closed %q, problems %v", len(value), s.Closed, s.Problems)
			}
			var got []string
			switch r := s.Resource.(type) {
			case *api.NetworkPolicy:
				got = actions(r.Spec.Ingress, r.Spec.Egress)
			case *api.GlobalNetworkPolicy:
				got = actions(r.Spec.Ingress, r.Spec.Egress)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("rules %v, want %s", got, tt.want)
			}
		})
	}
}

func actions(lists ...[]api.Rule) (out []string) {
	for _, rules := range lists {
		for _, r := range rules {
			out = append(out, string(r.Action))
		}
	}
	return out
}
