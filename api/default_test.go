package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestTypesAreDefaulted(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"no rules", "{}", "[Ingress]"},
		{"ingress rules", "{ingress: [{action: Deny}]}", "[Ingress]"},
		{"egress rules", "{egress: [{action: Deny}]}", "[Egress]"},
		{"both", "{ingress: [{action: Deny}], egress: [{action: Deny}]}", "[Ingress Egress]"},
		{"given ones stay", "{types: [Egress]}", "[Egress]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(head + "spec: " + tt.spec))
			if err != nil {
				t.Fatal(err)
			}
			p := docs[0].Resource.(*NetworkPolicy)
			Default(p)
			if got := fmt.Sprint(p.Spec.Types); got != tt.want || p.Spec.Tier != "default" {
				t.Errorf("got %s, tier %q; want %s", got, p.Spec.Tier, tt.want)
			}
		})
	}
}

func TestStagedActionsAreDefaulted(t *testing.T) {
	for _, kind := range []string{KindStagedNetworkPolicy, KindStagedGlobalNetworkPolicy, KindStagedKubernetesNetworkPolicy} {
		for action, want := range map[string]string{"": "Set", "Learn": "Learn"} {
			docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: " + kind + "\nmetadata: {name: a}\nspec: {stagedAction: '" + action + "'}"))
			if err != nil {
				t.Fatal(err)
			}
			r := docs[0].Resource
			Default(r)
			if got, err := EncodeStored(r); err != nil || !strings.Contains(string(got), `"stagedAction":"`+want+`"`) {
				t.Errorf("%s with %q is stored as %s, %v; want %s", kind, action, got, err, want)
			}
		}
	}
}

func TestPoolsAreDefaulted(t *testing.T) {
	for _, tt := range []struct{ spec, want string }{
		{"{cidr: 10.65.0.0/16}", "10.65.0.0/16 26 Never Never all() [Workload Tunnel] Automatic"},
		{"{cidr: 'fd65::/48'}", "fd65::/48 122 Never Never all() [Workload Tunnel] Automatic"},
		{"{cidr: 'FD65:0::/48'}", "fd65::/48 122 Never Never all() [Workload Tunnel] Automatic"}, // as upstream stores it
		{"{cidr: 'fd65:0::1/48'}", "fd65:0::1/48 122 Never Never all() [Workload Tunnel] Automatic"},
		{
			"{cidr: 10.65.0.0/16, blockSize: 28, vxlanMode: Always, ipipMode: Never, nodeSelector: has(a), allowedUses: [Tunnel], assignmentMode: Manual}",
			"10.65.0.0/16 28 Always Never has(a) [Tunnel] Manual",
		},
	} {
		docs, err := Decode([]byte("apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: " + tt.spec))
		if err != nil {
			t.Fatal(err)
		}
		Default(docs[0].Resource)
		s := docs[0].Resource.(*IPPool).Spec
		if got := fmt.Sprint(s.CIDR, " ", s.BlockSize, " ", s.VXLANMode, " ", s.IPIPMode, " ", s.NodeSelector, " ", s.AllowedUses, " ", *s.AssignmentMode); got != tt.want {
			t.Errorf("%s becomes %s, want %s", tt.spec, got, tt.want)
		}
	}
}
