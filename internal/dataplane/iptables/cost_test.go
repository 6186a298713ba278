package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

// TestAPolicyOverItsBudgetDeniesAlone: each of its rules is counted as often as iptables has it, and each prefix of a list is one. With less, it is in force.
func TestAPolicyOverItsBudgetDeniesAlone(t *testing.T) {
	dear := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "dear"}
	small := desired.Price{Rules: 64, Elements: 1 << 10, Members: 16}
	some := func(n int, r intent.Rule) (rs []intent.Rule) {
		for range n {
			rs = append(rs, r)
		}
		return rs
	}
	hosts := func(n int) (ps []netip.Prefix) {
		for i := range n {
			ps = append(ps, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32))
		}
		return ps
	}
	tcpOnly := intent.Rule{Action: intent.Allow, Protocol: 6}
	ofFour := intent.Rule{Action: intent.Allow, Family: intent.IPv4}
	selected := intent.Rule{Action: intent.Allow, Src: intent.Peer{Sets: []intent.SetID{"s:many"}}}
	listed := func(n int) intent.Rule { return intent.Rule{Action: intent.Allow, Src: intent.Peer{Nets: hosts(n)}} }
	eachBackend(t, func(t *testing.T, k tools) {
		for _, tt := range []struct {
			name      string
			more, few []intent.Rule
			members   int
			want      string
		}{
			{"rules of both families", some(33, tcpOnly), some(32, tcpOnly), 0, "66 kernel rules, at most 64"},
			{"rules of one family", some(65, ofFour), some(64, ofFour), 0, "65 kernel rules, at most 64"},
			{"prefixes of lists", some(1, listed(65)), some(1, listed(64)), 0, "65 kernel rules, at most 64"},
			{"members of sets", some(1, selected), some(1, tcpOnly), 17, "17 members of the sets it refers to, at most 16"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				d := newDriven(t, k)
				d.Driver = NewDriver(d.inside, Config{Budget: small})
				e := intent.Endpoint{ID: pod, Label: "prod/web-0", Link: "cali1"}
				intenttest.Normal(&e, intent.Tier{Name: "t", Ingress: []intent.PolicyID{dear}})
				set := intent.IPSet{ID: "s:many"}
				for _, p := range hosts(tt.members) {
					set.Members = append(set.Members, intent.Member{Prefix: p})
				}
				b := intent.Batch{InSync: true, Host: &intent.HostSettings{}, IPSets: []intent.IPSet{set}, Endpoints: []intent.Endpoint{e}}
				b.Policies = []intent.Policy{{ID: dear, Ingress: tt.more}}
				if err := outcomeOf(d.apply(b), dear); err == nil || !strings.Contains(err.Error(), "over the budget of one policy, so it denies everything: "+tt.want) {
					t.Errorf("the outcome is %v, want %s", err, tt.want)
				}
				if strings.Contains(d.everything(), "dear ingress[0]") {
					t.Error("its rules are in the kernel")
				}
				if err := outcomeOf(d.apply(intent.Batch{Policies: []intent.Policy{{ID: dear, Ingress: tt.few}}}), dear); err != nil {
					t.Errorf("of what it may cost: %v", err)
				}
				if !strings.Contains(d.everything(), "dear ingress[0]") {
					t.Error("its rules are not in the kernel")
				}
			})
		}
	})
}

// outcomeOf is the error of the last outcome of an intent.
func outcomeOf(all []intent.Outcome, key intent.Key) (err error) {
	for _, o := range all {
		if o.Key == key {
			err = o.Err
		}
	}
	return err
}
