package classify_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/intent"
)

// large is a node under many policies: addresses in sets by 3,200 combinations, as labels make them; groups of which each is asked
// a tenth of the policies, each of three rules.
type large struct {
	sets  sets
	state *classify.State
}

func peerSet(i int) intent.SetID { return intent.SetID(fmt.Sprintf("s%d", i)) }

func policyOf(i int, ports ...uint16) intent.Policy {
	p := intent.Policy{ID: intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: fmt.Sprint("p", i)}, Tier: "default"}
	for _, port := range ports {
		p.Ingress = append(p.Ingress, intent.Rule{
			Action: intent.Allow, Protocol: 6, Src: intent.Peer{Sets: []intent.SetID{peerSet(i)}},
			Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}},
		})
	}
	return p
}

func address(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

func newLarge(addrs, policies, groups int) *large {
	rng := rand.New(rand.NewPCG(1, 2))
	l := &large{sets: sets{}}
	const combinations = 3200
	member := make([][]int, combinations)
	for i := range policies {
		l.sets[peerSet(i)] = map[intent.Member]bool{}
		for range max(1, combinations*10/policies) {
			c := rng.IntN(combinations)
			member[c] = append(member[c], i)
		}
	}
	for a := range addrs {
		for _, s := range member[a%combinations] {
			l.sets[peerSet(s)][intent.Member{Prefix: address(a)}] = true
		}
	}
	l.state = classify.New(classify.Limits{}, l.sets)
	for i := range policies {
		l.state.SetPolicy(policyOf(i, 80, 443, 8080))
	}
	for g := range groups {
		t := classify.Tier{Name: "default"}
		for i := g % 10; i < policies; i += 10 {
			t.Policies = append(t.Policies, policyOf(i).ID)
		}
		l.state.SetWalk(classify.Group(g+1), classify.Walk{Direction: intent.Ingress, Tiers: []classify.Tier{t}})
	}
	return l
}

func BenchmarkFlush(b *testing.B) {
	for _, size := range []struct{ addrs, policies int }{{10_000, 200}, {100_000, 2000}, {100_000, 10_000}} {
		b.Run(fmt.Sprintf("cold/addresses=%d/policies=%d", size.addrs, size.policies), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l := newLarge(size.addrs, size.policies, 20)
				b.StartTimer()
				d := l.state.Flush()
				b.ReportMetric(float64(len(d.Grow.Entries)), "entries")
				b.ReportMetric(float64(len(d.Grow.Programs)), "programs")
			}
		})
		l := newLarge(size.addrs, size.policies, 20)
		flush := func() *classify.Delta {
			d := l.state.Flush()
			l.state.Committed()
			return d
		}
		flush()
		b.Run(fmt.Sprintf("member/addresses=%d/policies=%d", size.addrs, size.policies), func(b *testing.B) {
			m := []intent.Member{{Prefix: address(7)}}
			in := l.sets[peerSet(3)][m[0]]
			for b.Loop() {
				d := intent.MemberDelta{Set: peerSet(3)}
				if in {
					d.Removed = m
				} else {
					d.Added = m
				}
				in = !in
				l.sets[peerSet(3)][m[0]] = in
				l.state.Change(d)
				flush()
			}
		})
		b.Run(fmt.Sprintf("rule/addresses=%d/policies=%d", size.addrs, size.policies), func(b *testing.B) {
			port := uint16(80)
			for b.Loop() {
				port ^= 1
				l.state.SetPolicy(policyOf(3, port, 443, 8080))
				flush()
			}
		})
	}
}
