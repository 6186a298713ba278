package api

import (
	"fmt"
	"strings"
	"testing"
)

// TestHowMuchAPolicyMayHave: upstream's limits, each with the most that is taken, and one more, which is refused and named.
func TestHowMuchAPolicyMayHave(t *testing.T) {
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	each := func(n int, form string) string { // n that differ
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(form, i)
		}
		return strings.Join(all, ",")
	}
	long := func(n int) string { // a selector of n bytes
		return strings.Repeat("has(a)||", n/8-4) + "has(" + strings.Repeat("a", n-(n/8-4)*8-len("has()")) + ")"
	}
	in := func(rule string) string { return "ingress: [{action: Allow, protocol: TCP, " + rule + "}]" }
	for _, tt := range []struct {
		name string
		most int
		spec func(n int) string
		at   string // the field that is named
	}{
		{"rules in", 1024, func(n int) string { return "ingress: [" + many(n, "{action: Allow}") + "]" }, "spec.ingress"},
		{"rules out", 1024, func(n int) string { return "egress: [" + many(n, "{action: Allow}") + "]" }, "spec.egress"},
		{"nets", 256, func(n int) string { return in("source: {nets: [" + many(n, "10.0.0.0/8") + "]}") }, "spec.ingress[0].source.nets"},
		{"nets that are not meant", 256, func(n int) string { return in("source: {notNets: [" + many(n, "10.0.0.0/8") + "]}") }, "spec.ingress[0].source.notNets"},
		{"ports", 50, func(n int) string { return in("destination: {ports: [" + many(n, "80") + "]}") }, "spec.ingress[0].destination.ports"},
		{"ports that are not meant", 50, func(n int) string { return in("destination: {notPorts: [" + many(n, "80") + "]}") }, "spec.ingress[0].destination.notPorts"},
		{"methods", 20, func(n int) string { return in("http: {methods: [" + each(n, "M%d") + "]}") }, "spec.ingress[0].http"},
		{"paths", 20, func(n int) string { return in("http: {paths: [" + many(n, "{prefix: /a}") + "]}") }, "spec.ingress[0].http"},
		{"bytes of the selector", 1024, func(n int) string { return "selector: " + long(n) }, "spec.selector"},
		{"bytes of a rule's selector", 1024, func(n int) string { return in("source: {selector: " + long(n) + "}") }, "spec.ingress[0].source.selector"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, n := range []int{tt.most, tt.most + 1} {
				docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: a}\nspec: {" + tt.spec(n) + "}"))
				if err != nil {
					t.Fatal(err)
				}
				r := docs[0].Resource
				Default(r)
				if got := Validate(r).Error(); (n > tt.most) != strings.Contains(got, tt.at+": ") || n == tt.most && got != "" {
					t.Errorf("%d: %s; the most is %d", n, got, tt.most)
				}
			}
		})
	}
}
