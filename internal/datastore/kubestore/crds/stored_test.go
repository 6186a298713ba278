package crds_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
)

// withoutLimits is a definition as it was before it judged objects.
func withoutLimits(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			switch key {
			case "properties":
				fields := map[string]any{}
				for name, field := range value.(map[string]any) {
					fields[name] = withoutLimits(field)
				}
				out[key] = fields
			case "enum", "pattern", "anyOf", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "required", "default", "x-kubernetes-validations", "x-kubernetes-list-type":
			default:
				out[key] = withoutLimits(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutLimits(v[i])
		}
		return out
	}
	return v
}

// TestWhatIsStoredStaysWhenLimitsCome stores objects that are wrong, and gives the cluster definitions that refuse them: they are read as they
// were, fields that nobody knows are kept, and whoever changes something else in them can.
func TestWhatIsStoredStaysWhenLimitsCome(t *testing.T) {
	s := kubetest.New(t, kubetest.Config{})
	var before []map[string]any
	for _, d := range crds.Definitions(form.V3) {
		d = maps.Clone(d)
		d["spec"] = withoutLimits(d["spec"])
		before = append(before, d)
	}
	s.Apply(t, documents(t, before))
	s.Apply(t, `apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: wrong}
spec: {order: 1, unknown: {kept: true}, ingress: [{action: allow, protocol: TPC, later: 1}], types: [Ingress, Ingress], selector: all()}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: wrong}
spec: {cidr: 10.65.0.1/16, blockSize: 7}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: bits}
spec: {cidr: 10.66.0.1/16}
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: kube-admin}
spec: {order: 3}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: a.wrong.name}
spec: {}
---
apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: rack}
spec: {healthPort: 70000}
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: wrong}
spec: {interfaceName: "a b"}
`)
	s.Apply(t, documents(t, crds.Definitions(form.V3)))
	awaitLimits(t, s)
	for _, tt := range []struct{ what, object, patch, refused string }{
		{"a label", "globalnetworkpolicies/wrong", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"something that is not wrong", "globalnetworkpolicies/wrong", `{"spec":{"order":2}}`, ""},
		{"a status", "globalnetworkpolicies/wrong/status", `{"status":{"conditions":[]}}`, ""},
		{"a rule that stays wrong", "globalnetworkpolicies/wrong", `{"spec":{"ingress":[{"action":"allow","protocol":"TCP"}]}}`, "spec.ingress[0].action"},
		{"something that becomes wrong", "globalnetworkpolicies/wrong", `{"spec":{"tier":"A.b"}}`, "spec.tier"},
		{"a label", "ippools/wrong", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"something beside a rule that does not hold", "ippools/wrong", `{"spec":{"natOutgoing":true}}`, "spec.blockSize"},
		{"a status", "ippools/wrong/status", `{"status":{"conditions":[]}}`, ""},
		{"another range", "ippools/bits", `{"spec":{"cidr":"10.66.0.0/17"}}`, "spec.cidr"},
		{"its range without bits beyond its length", "ippools/bits", `{"spec":{"cidr":"10.66.0.0/16"}}`, ""},
		{"a label", "tiers/kube-admin", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"a status", "tiers/kube-admin/status", `{"status":{"conditions":[]}}`, ""},
		{"what was right", "tiers/kube-admin", `{"spec":{"defaultAction":"Deny"}}`, "spec.defaultAction"},
		{"a spec under a name that is wrong", "globalnetworkpolicies/a.wrong.name", `{"spec":{"order":1}}`, ""},
		{"something beside what is wrong", "felixconfigurations/rack", `{"spec":{"healthEnabled":true}}`, ""},
		{"something that becomes wrong", "felixconfigurations/rack", `{"spec":{"goMaxProcs":-2}}`, "spec.goMaxProcs"},
		{"a field that is missing and needed", "hostendpoints/wrong", `{"spec":{"profiles":["a"]}}`, "spec.node"},
		{"a label", "hostendpoints/wrong", `{"metadata":{"labels":{"a":"b"}}}`, ""},
		{"all that is wrong", "hostendpoints/wrong", `{"spec":{"node":"n1","interfaceName":"*"}}`, ""},
		{"all that is wrong", "globalnetworkpolicies/wrong", `{"spec":{"ingress":[{"action":"Allow"}],"types":["Ingress"]}}`, ""},
	} {
		got := request(t, s.Admin(), "PATCH", v3+tt.object, "application/merge-patch+json", tt.patch)
		if (got == "") != (tt.refused == "") || !strings.Contains(got, tt.refused) {
			t.Errorf("%s: %s: got %q, want %q", tt.object, tt.what, got, tt.refused)
		}
	}
	var o struct{ Spec map[string]any }
	if err := s.Admin().Call(t.Context(), "GET", v3+"globalnetworkpolicies/wrong", nil, &o); err != nil {
		t.Fatal(err)
	}
	unknown, _ := json.Marshal(o.Spec["unknown"])
	if string(unknown) != `{"kept":true}` || o.Spec["tier"] != "default" || o.Spec["order"] != 2.0 {
		t.Errorf("it is now %v, with the fields %v", o.Spec, slices.Sorted(maps.Keys(o.Spec)))
	}
}

// awaitLimits waits until the server judges by the definitions that replaced others.
func awaitLimits(t *testing.T, s *kubetest.Server) {
	t.Helper()
	for _, wrong := range []struct{ path, document string }{
		{"globalnetworkpolicies", policy("GlobalNetworkPolicy", "probe", "{ingress: [{action: allow}]}")},
		{"ippools", policy("IPPool", "probe", "{cidr: 10.65.0.1/16}")},
		{"tiers", policy("Tier", "probe", "{defaultAction: Allow}")},
		{"hostendpoints", policy("HostEndpoint", "probe", "{}")},
		{"felixconfigurations", policy("FelixConfiguration", "default", "{healthPort: 70000}")},
	} {
		inForce(t, func() bool {
			return request(t, s.Admin(), "POST", v3+wrong.path+"?dryRun=All", "application/yaml", wrong.document) != ""
		})
	}
}

// TestDefaultsAreFilledIn: what a user leaves out is what package api fills in, where that is the same for all objects.
func TestDefaultsAreFilledIn(t *testing.T) {
	s := cluster(t)
	for _, tt := range []struct{ kind, spec, want string }{
		{"GlobalNetworkPolicy", "{}", `{"tier":"default"}`},
		{"StagedGlobalNetworkPolicy", "{}", `{"stagedAction":"Set","tier":"default"}`},
		{"IPPool", "{cidr: 10.65.0.0/16}", `{"allowedUses":["Workload","Tunnel"],"assignmentMode":"Automatic","cidr":"10.65.0.0/16","ipipMode":"Never","nodeSelector":"all()","vxlanMode":"Never"}`},
		{"Tier", "{}", `{}`},
	} {
		path, _ := collection(tt.kind, "")
		var o struct{ Spec map[string]any }
		in := map[string]any{"apiVersion": "projectcalico.org/v3", "kind": tt.kind, "metadata": map[string]any{"name": "filled"}, "spec": map[string]any{}}
		if tt.kind == "IPPool" {
			in["spec"] = map[string]any{"cidr": "10.65.0.0/16"}
		}
		if err := s.Admin().Call(t.Context(), "POST", path+"?dryRun=All", in, &o); err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(o.Spec); string(got) != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.kind, tt.spec, got, tt.want)
		}
	}
}
