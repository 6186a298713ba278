package world

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func tiersText(ts []Tier) string {
	var out []string
	for _, t := range ts {
		var names []string
		for _, p := range t.Policies {
			names = append(names, p.Name)
		}
		out = append(out, fmt.Sprintf("%s[%s] %s", t.Name, strings.Join(names, " "), t.Outcome))
	}
	return strings.Join(out, "; ")
}

func TestTiersPoliciesAndWhoTheySelect(t *testing.T) {
	w := New(updates(t, base+`
Tier sec {order: 5, defaultAction: Pass}
GlobalNetworkPolicy late {tier: sec, order: 9, selector: "has(app)"}
GlobalNetworkPolicy early {tier: sec, order: 1, selector: "app == 'web'", types: [Egress]}
GlobalNetworkPolicy lost {tier: nowhere, namespaceSelector: "env == 'live'"}
NetworkPolicy prod/db {selector: "app == 'db'"}
NetworkPolicy test/bad {selector: "app = 'db'"}
`))
	for _, tt := range []struct{ name, got, want string }{
		{"tiers in order, an unknown one last", tiersText(w.Tiers()), "sec[early late] end of tier: pass; kube-admin[] end of tier: pass; default[db] end of tier: deny; kube-baseline[] end of tier: pass; nowhere[lost] end of tier: deny"},
		{"what a packet to web meets", tiersText(w.Ladder("prod/h1-k8s-web-eth0", api.Ingress)), "sec[late] end of tier: pass; nowhere[lost] end of tier: deny"},
		{"what a packet from web meets", tiersText(w.Ladder("prod/h1-k8s-web-eth0", api.Egress)), "sec[early] end of tier: pass"},
		{"a policy that cannot be read is met first", tiersText(w.Ladder("test/h1-k8s-cli-eth0", api.Egress)), "closed[bad] deny"},
		{"no such endpoint", tiersText(w.Ladder("prod/nope", api.Egress)), ""},
		{"whom a global policy selects", fmt.Sprint(len(w.Selected(api.Ref{Kind: api.KindGlobalNetworkPolicy, Name: "lost"}))), "2"},
		{"whom a namespaced one does", w.Selected(api.Ref{Kind: api.KindNetworkPolicy, Namespace: "prod", Name: "db"})[0].Name, "prod/db"},
		{"labels with those inherited", w.Labels("prod/h1-k8s-web-eth0")["pcns.env"], "live"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got  %s\nwant %s", tt.got, tt.want)
			}
		})
	}
}
