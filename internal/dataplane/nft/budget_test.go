package nft

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
)

// addresses are so many hosts.
func addresses(n int) (out []netip.Prefix) {
	for i := range n {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	return out
}

func hostsOf(id string, ps []netip.Prefix) intent.IPSet {
	s := intent.IPSet{ID: intent.SetID(id)}
	for _, p := range ps {
		s.Members = append(s.Members, intent.Member{Prefix: p})
	}
	return s
}

const (
	maxTestMembers = 1 << 14 // instead of a million, which takes its time
	maxPolicyRules = 8192
)

var testBudget = desired.Price{Rules: desired.DefaultBudget.Rules, Elements: desired.DefaultBudget.Elements, Members: maxTestMembers}

func TestAPolicyOverItsBudgetDeniesAlone(t *testing.T) {
	allow := func(src intent.Peer, n int) (rs []intent.Rule) {
		for range n {
			rs = append(rs, intent.Rule{Action: intent.Allow, Protocol: 6, Src: src})
		}
		return rs
	}
	listed := intent.Peer{Nets: addresses(1 << 12)}
	selected := intent.Peer{Sets: []intent.SetID{"many"}}
	for _, tt := range []struct {
		name      string
		more, few []intent.Rule
		members   int
		want      string
	}{
		{"too many kernel rules", allow(intent.Peer{}, maxPolicyRules+1), allow(intent.Peer{}, maxPolicyRules), 0, "8193 kernel rules, at most 8192"},
		{"rules that are two in the kernel", allow(selected, maxPolicyRules/2+1), allow(selected, 1), 1, "8194 kernel rules, at most 8192"},
		{"too much in its lists", allow(listed, 65), allow(listed, 1), 0, "266240 nets and ports in its kernel rules, at most 262144"},
		{"sets with too many members", allow(selected, 1), allow(intent.Peer{}, 1), maxTestMembers + 1, "16385 members of the sets it refers to, at most 16384"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t)
			d := New(k, Config{Budget: testBudget})
			b := many(2, 1)
			big := intent.Policy{ID: np("p0"), Tier: "t", Ingress: tt.more}
			b.Policies[0] = big
			if tt.members > 0 {
				s := hostsOf("many", addresses(tt.members))
				if tt.members == 1 { // of both families, so that both have rules
					s.Members = append(s.Members, member("fd00::1/128"))
				}
				b.IPSets = append(b.IPSets, s)
			}
			d.Merge(b)
			outcomes := map[intent.Key]intent.Outcome{}
			for _, o := range apply(t, d) {
				outcomes[o.Key] = o
			}
			o := outcomes[big.ID]
			if o.Err == nil || !o.Final || !strings.Contains(o.Err.Error(), tt.want) {
				t.Errorf("outcome %+v, want %q, and no other try", o, tt.want)
			}
			for key, o := range outcomes {
				if o.Err != nil && key != big.ID {
					t.Errorf("%s fails, too: %v", key, o.Err)
				}
			}
			chain := func() string {
				return k.ns.Run("nft", "list chain inet twill "+rules.PolicyChain(big.ID, intent.Ingress))
			}
			if text := chain(); strings.Count(text, " drop ") != 1 || strings.Contains(text, "accept") {
				t.Errorf("the policy denies not everything, and nothing else:\n%s", text)
			}
			links := k.ns.Run("nft", "list map inet twill wl-in")
			if strings.Count(links, ": goto") != 2 {
				t.Errorf("an endpoint is closed, though others' policies may allow it something:\n%s", links)
			}
			if name := setName("hosts", intent.IPv4, "many"); strings.Contains(k.ns.Run("nft", "list sets"), name) {
				t.Error("its set is in the kernel")
			}
			big.Ingress = tt.few
			d.Merge(intent.Batch{Policies: []intent.Policy{big}})
			for _, o := range apply(t, d) {
				if o.Err != nil {
					t.Errorf("within its budget: %s: %v", o.Key, o.Err)
				}
			}
			if text := chain(); !strings.Contains(text, "accept") {
				t.Errorf("within its budget it does not allow:\n%.300s", text)
			}
		})
	}
}

func TestASetThatGrowsTakesItsPolicyOverBudgetAndBack(t *testing.T) {
	d := New(newKernel(t), Config{Budget: testBudget})
	b := many(1, 1)
	all := addresses(maxTestMembers + maxTestMembers/4)
	few, rest := all[:1000], hostsOf("", all[1000:]).Members
	b.IPSets[0] = hostsOf(string(b.IPSets[0].ID), few)
	d.Merge(b)
	key := intent.Key(b.Policies[0].ID)
	wantOutcome(t, d, key, "")
	d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: b.IPSets[0].ID, Added: rest}}})
	wantOutcome(t, d, key, "20480 members of the sets it refers to")
	d.Merge(intent.Batch{Members: []intent.MemberDelta{{Set: b.IPSets[0].ID, Removed: rest}}})
	wantOutcome(t, d, key, "")
}
