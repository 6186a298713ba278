package nftables

import (
	"net/netip"
	"testing"
)

func BenchmarkOneElementInAndOutOfALargeSet(b *testing.B) {
	for _, interval := range []bool{false, true} {
		name := "hash"
		if interval {
			name = "interval"
		}
		b.Run(name, func(b *testing.B) {
			n := newNet(b)
			s := Set{Table: "t", Name: "s", Key: TypeIPv4Addr, Interval: interval}
			tx := NewBatch()
			tx.AddTable(Table{Name: "t"})
			tx.AddSet(s)
			els := hosts(200_000)
			var odd []Element // so that intervals do not touch
			for i := 1; i < len(els); i += 2 {
				odd = append(odd, els[i])
			}
			tx.AddElements(s, odd...)
			n.mustCommit(b, tx)
			el := Element{Key: netip.MustParseAddr("10.2.0.0").AsSlice()}
			b.ReportAllocs()
			for b.Loop() {
				tx.Reset()
				tx.AddElements(s, el)
				n.mustCommit(b, tx)
				tx.Reset()
				tx.DeleteElements(s, el)
				n.mustCommit(b, tx)
			}
		})
	}
}

func BenchmarkReplaceAChainOfAThousandRules(b *testing.B) {
	n := newNet(b)
	tx := NewBatch()
	tx.AddTable(Table{Name: "t"})
	n.mustCommit(b, tx)
	exprs := join(MatchSrc(prefix("10.0.0.1/32"), false), MatchL4Proto(6),
		MatchPorts(DstPort(), [][2]uint16{{80, 80}}, false)[0], one(Counter{}, Accept()))
	for b.Loop() {
		tx.Reset()
		tx.AddChain(Chain{Table: "t", Name: "c"})
		tx.FlushChain("t", "c")
		for range 1000 {
			tx.AddRule(Rule{Table: "t", Chain: "c", Exprs: exprs})
		}
		n.mustCommit(b, tx)
	}
}

func BenchmarkFillASetOf100000(b *testing.B) {
	n := newNet(b)
	s := Set{Table: "t", Name: "s", Key: TypeIPv4Addr}
	els := hosts(100_000)
	tx := NewBatch()
	for b.Loop() {
		tx.Reset()
		tx.PurgeTable("t")
		tx.AddTable(Table{Name: "t"})
		tx.AddSet(s)
		tx.AddElements(s, els...)
		n.mustCommit(b, tx)
	}
}

func BenchmarkListASetOf100000(b *testing.B) {
	n := newNet(b)
	s := Set{Table: "t", Name: "s", Key: TypeIPv4Addr}
	tx := NewBatch()
	tx.AddTable(Table{Name: "t"})
	tx.AddSet(s)
	tx.AddElements(s, hosts(100_000)...)
	n.mustCommit(b, tx)
	for b.Loop() {
		n.mustList(b, "t")
	}
}
