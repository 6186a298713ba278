package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
)

func host(i int) intent.Member {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i))
	return intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4(a), 32)}
}

func sid(i int) intent.SetID { return intent.SetID(fmt.Sprintf("s:%06d", i)) }

// node is one with 1,000 kernel sets and 2,000 chains: 100 endpoints, each with some of 900 policies, whose rules ask
// for the sets, the first of which has so many members.
func node(members, policies int) intent.Batch {
	b := intent.Batch{InSync: true}
	for i := range 1000 {
		s := intent.IPSet{ID: sid(i), Comment: fmt.Sprintf("app == 'a%d'", i)}
		n := 20
		if i == 0 {
			n = members
		}
		for j := range n {
			s.Members = append(s.Members, host(i*3+j))
		}
		b.IPSets = append(b.IPSets, s)
	}
	for i := range 900 {
		b.Policies = append(b.Policies, nodePolicy(i, 80))
	}
	for i := range 100 {
		e := wl(fmt.Sprintf("pod-%d", i), fmt.Sprintf("cali%d", i))
		var ids []intent.PolicyID
		for j := range policies {
			ids = append(ids, np(fmt.Sprintf("np-%d", (i*9+j)%900)))
		}
		intenttest.Normal(&e, tier("default", intent.Deny, ids, ids))
		b.Endpoints = append(b.Endpoints, e)
	}
	return b
}

func nodePolicy(i int, port uint16) intent.Policy {
	var rs []intent.Rule
	for j := range 3 {
		rs = append(rs, intent.Rule{
			Action: intent.Allow, Protocol: 6,
			Src: intent.Peer{Sets: []intent.SetID{sid((i + j) % 1000)}}, Dst: intent.Peer{Ports: []intent.PortRange{{Min: port, Max: port}}},
		})
	}
	return intent.Policy{ID: np(fmt.Sprintf("np-%d", i)), Tier: "default", Ingress: rs, Egress: rs}
}

func BenchmarkOneMemberOf100000(b *testing.B) {
	d := New(newKernel(b), Config{})
	d.Merge(node(100_000, 9))
	apply(b, d)
	i := 0
	for b.Loop() {
		m := []intent.Member{host(9_000_000 + i/2)}
		change := intent.MemberDelta{Set: sid(0), Added: m}
		if i%2 == 1 {
			change = intent.MemberDelta{Set: sid(0), Removed: m}
		}
		i++
		d.Merge(intent.Batch{Members: []intent.MemberDelta{change}})
		apply(b, d)
	}
}

// The kernel walks all paths through the chains again after each new rule: its time follows policies by endpoint.
func BenchmarkOnePolicyChanged(b *testing.B) {
	for _, n := range []int{1, 9, 20} {
		b.Run(fmt.Sprintf("%d-for-each-endpoint", n), func(b *testing.B) {
			d := New(newKernel(b), Config{})
			d.Merge(node(20, n))
			apply(b, d)
			i := 0
			for b.Loop() {
				i++
				p := nodePolicy(i%900, 80)
				p.Ingress = nodePolicy(i%900, uint16(i)).Ingress
				d.Merge(intent.Batch{Policies: []intent.Policy{p}})
				apply(b, d)
			}
		})
	}
}

func BenchmarkOneEndpointComesOrGoes(b *testing.B) {
	d := New(newKernel(b), Config{})
	all := node(20, 9)
	d.Merge(all)
	apply(b, d)
	e := all.Endpoints[0]
	i := 0
	for b.Loop() {
		change := intent.Batch{Removed: []intent.Key{e.ID}}
		if i%2 == 1 {
			change = intent.Batch{Endpoints: []intent.Endpoint{e}}
		}
		i++
		d.Merge(change)
		apply(b, d)
	}
}

func BenchmarkFullResync(b *testing.B) {
	d := New(newKernel(b), Config{})
	d.Merge(node(20, 9))
	apply(b, d)
	for b.Loop() {
		if err := d.Resync(b.Context()); err != nil {
			b.Fatal(err)
		}
		apply(b, d)
	}
}

// What a change may have to wait for when the table is read back now and then: all of it, or the comparison alone.
func BenchmarkReadBackHoldsUp(b *testing.B) {
	k := newKernel(b)
	d := New(k, Config{Reader: k})
	d.Merge(node(100_000, 9))
	apply(b, d)
	b.Run("resync", func(b *testing.B) {
		for b.Loop() {
			if err := d.Resync(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in-background", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			d.ReadBack(b.Context(), func(time.Duration, error) {})
			note := <-d.Drift()
			b.StartTimer()
			note()
		}
	})
}

func BenchmarkFirstTransaction(b *testing.B) {
	all := node(100_000, 9)
	for b.Loop() {
		d := New(newKernel(b), Config{})
		d.Merge(all)
		apply(b, d)
	}
}
