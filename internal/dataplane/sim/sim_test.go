package sim

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

var (
	np  = intent.PolicyID{Kind: "NetworkPolicy", Namespace: "prod", Name: "np"}
	set = intent.IPSet{ID: "s", Members: []intent.Member{{Prefix: netip.MustParsePrefix("10.0.0.1/32")}}}
	pol = intent.Policy{ID: np, Ingress: []intent.Rule{{Src: intent.Peer{Sets: []intent.SetID{"s"}}}}}
	ep  = intent.Endpoint{ID: intent.EndpointID{Namespace: "prod", Name: "web"}, Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Ingress: []intent.PolicyID{np}}}})}
)

func TestWhatRefersToNothingIsRefused(t *testing.T) {
	all := intent.Batch{IPSets: []intent.IPSet{set}, Policies: []intent.Policy{pol}, Endpoints: []intent.Endpoint{ep}}
	for _, tt := range []struct {
		name    string
		batches []intent.Batch
		want    string // of the refusal; empty: none
	}{
		{"in order", []intent.Batch{all}, ""},
		{"all goes, users first", []intent.Batch{all, {Removed: []intent.Key{set.ID, np, ep.ID}}}, ""},
		{"a policy without its set", []intent.Batch{{Policies: []intent.Policy{pol}}}, "asks for set s"},
		{"an endpoint without its policy", []intent.Batch{{Endpoints: []intent.Endpoint{ep}}}, "asks for policy NetworkPolicy/prod/np"},
		{"members of no set", []intent.Batch{{Members: []intent.MemberDelta{{Set: "s"}}}}, "members of set s"},
		{"a member twice", []intent.Batch{all, {Members: []intent.MemberDelta{{Set: "s", Added: set.Members}}}}, "gains member"},
		{"a member that was not", []intent.Batch{all, {Members: []intent.MemberDelta{{Set: "s", Removed: []intent.Member{{}}}}}}, "loses member"},
		{"a set in use goes", []intent.Batch{all, {Removed: []intent.Key{set.ID}}}, "set s goes, while"},
		{"a policy in use goes", []intent.Batch{all, {Removed: []intent.Key{np}}}, "goes, while endpoint"},
		{"what was not there goes", []intent.Batch{{Removed: []intent.Key{intent.EndpointID{Namespace: "x", Name: "y"}}}}, "is not there"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := New()
			for _, b := range tt.batches {
				n.Merge(b)
				if _, err := n.Apply(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			switch err := n.Refused(); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("refused %v, want %q", err, tt.want)
			}
		})
	}
}

func TestWhatFailsWaitsAndIsReported(t *testing.T) {
	n, boom := New(), errors.New("boom")
	key := np
	n.Fail(key, boom)
	n.Merge(intent.Batch{IPSets: []intent.IPSet{set}, Policies: []intent.Policy{pol}})
	out, err := n.Apply(t.Context())
	if err != nil || len(out) != 1 || out[0].Key != key || !errors.Is(out[0].Err, boom) || len(n.Policies) != 0 {
		t.Fatalf("outcomes %v, %v; policies %v", out, err, n.Policies)
	}
	n.Fail(key, nil)
	if out, err = n.Apply(t.Context()); err != nil || len(out) != 2 || len(n.Policies) != 1 {
		t.Errorf("outcomes %v, %v; policies %v", out, err, n.Policies)
	}
}
